//go:build unix

// Command limits measures what limits promise, with workers that are processes and are killed,
// and prints a table of goals. It exits with 1 if one is missed.
//
//	go run ./limits -for 10m
//
// The workers write down when each attempt begins and ends. One that was killed ended then what
// it ran. All are on one machine, so they have one clock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

const (
	kindRunning = "running" // at most places at once, and perLane of a lane
	kindRate    = "rate"    // at most perSecond
	kindLanes   = "lanes"   // at most two at once; one lane has many jobs
	kindFree    = "free"    // no limit

	places    = 6
	perLane   = 2
	perSecond = 150.0
	burst     = 30
	many      = 100_000
	laneMany  = "many"
	handling  = 20 * time.Millisecond // of a handler
	lease     = 3 * time.Second
)

var (
	length  = flag.Duration("for", time.Minute, "how long workers are killed; the rate is measured for a minute of it at most")
	engines = flag.String("engines", "postgres,jetstream", "which engines")
	only    = flag.String("parts", "", "which parts alone: free, killed, rate, lanes; separated by commas")
	keep    = flag.Bool("keep", false, "keep the directory")
)

func main() {
	if name := os.Getenv(envEngine); name != "" {
		if err := work(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	missed := false
	fmt.Println("| Engine | Goal | Measured | Met |\n|---|---|---|---|")
	for _, name := range strings.Split(*engines, ",") {
		rows, err := measure(name)
		for _, r := range rows {
			fmt.Printf("| %s | %s | %s | %s |\n", name, r.goal, r.measured, map[bool]string{true: "yes", false: "NO"}[r.met])
			missed = missed || !r.met
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			missed = true
		}
	}
	if missed {
		os.Exit(1)
	}
}

var parts = []struct {
	name    string
	measure func(context.Context, *durable.Queue, *fleet) ([]row, error)
}{{"free", free}, {"killed", killed}, {"rate", rated}, {"lanes", shared}}

// row is a goal and what came of it.
type row struct {
	goal, measured string
	met            bool
}

// measure runs all on a store of an engine.
func measure(name string) ([]row, error) {
	open, ok := stores[name]
	if !ok {
		return nil, fmt.Errorf("there is no engine %q", name)
	}
	s, err := open()
	if err != nil {
		return nil, err
	}
	defer s.remove()
	dir, err := os.MkdirTemp(os.Getenv("BENCH_DIR"), "limits")
	if err != nil {
		return nil, err
	}
	if *keep {
		fmt.Fprintln(os.Stderr, dir)
	} else {
		defer os.RemoveAll(dir)
	}
	q, err := openQueue(name, s.address(), nil)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	ctx := context.Background()

	var rows []row
	for _, p := range parts {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) {
			continue
		}
		some, err := p.measure(ctx, q, &fleet{engine: name, address: s.address(), dir: dir, cpu: s.cpu})
		if rows = append(rows, some...); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// fleet starts and kills worker processes.
type fleet struct {
	engine, address, dir string
	cpu                  func() time.Duration // of the server, and of this process

	mu    sync.Mutex
	count int
	kills map[string]time.Time // by worker
}

// start starts a worker for a kind. The function that it returns kills it, and waits.
func (f *fleet) start(kind string) (kill func(), err error) {
	f.mu.Lock()
	f.count++
	name := fmt.Sprintf("%s-%d", kind, f.count)
	f.mu.Unlock()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), envEngine+"="+f.engine, envAddress+"="+f.address, envKind+"="+kind, envLedger+"="+filepath.Join(f.dir, name))
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.kills == nil {
			f.kills = map[string]time.Time{}
		}
		f.kills[name] = time.Now()
	}, nil
}

// addUntil adds jobs at about a rate until ctx ends.
func addUntil(ctx context.Context, q *durable.Queue, rate int, job func() durable.Job) error {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		for range rate / 10 {
			if err := add(q, job()); err != nil {
				return err
			}
		}
	}
}

// killed has workers killed all the time while more jobs come than the limits let run.
func killed(ctx context.Context, q *durable.Queue, f *fleet) ([]row, error) {
	err := errors.Join(
		q.SetLimit(ctx, "running", durable.Limit{Kind: kindRunning, Running: places}),
		q.SetLimit(ctx, "per lane", durable.Limit{Kind: kindRunning, PerLane: true, Running: perLane}))
	if err != nil {
		return nil, err
	}
	adding, stop := context.WithTimeout(ctx, *length)
	defer stop()
	var wg sync.WaitGroup
	var errs [4]error
	wg.Go(func() {
		errs[3] = addUntil(adding, q, 300, func() durable.Job {
			return durable.Job{Kind: kindRunning, Lane: fmt.Sprint("lane", rand.N(5))}
		})
	})
	for i := range 3 {
		wg.Go(func() {
			for adding.Err() == nil {
				kill, err := f.start(kindRunning)
				if err != nil {
					errs[i] = err
					return
				}
				sleep(adding, lease/2+rand.N(2*lease))
				kill()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	l, err := f.read(kindRunning)
	if err != nil {
		return nil, err
	}
	most, mostOfLane := l.most()
	began, kills := len(l.attempts), len(f.kills)
	return []row{{
		fmt.Sprintf("never above %d at once, and %d of a lane, whoever is killed", places, perLane),
		fmt.Sprintf("%d and %d, in %d attempts and %d kills", most, mostOfLane, began, kills),
		most <= places && mostOfLane <= perLane && began > 100,
	}}, nil
}

// rated measures a rate with more jobs than it lets begin, on two workers.
func rated(ctx context.Context, q *durable.Queue, f *fleet) ([]row, error) {
	if err := q.SetLimit(ctx, "rate", durable.Limit{Kind: kindRate, Rate: perSecond, Burst: burst}); err != nil {
		return nil, err
	}
	length := min(*length, time.Minute+2*time.Second)
	n := int(perSecond*length.Seconds()) + 1000
	jobs := make([]durable.Job, n)
	for i := range jobs {
		jobs[i] = durable.Job{Kind: kindRate}
	}
	if err := addAll(q, jobs); err != nil {
		return nil, err
	}
	for range 2 {
		kill, err := f.start(kindRate)
		if err != nil {
			return nil, err
		}
		defer kill()
	}
	sleep(ctx, length+2*time.Second)
	l, err := f.read(kindRate)
	if err != nil {
		return nil, err
	}
	begins := l.begins()
	window := length - 2*time.Second
	from, _ := slices.BinarySearchFunc(begins, begins[0].Add(time.Second), time.Time.Compare) // after the burst
	to, _ := slices.BinarySearchFunc(begins, begins[from].Add(window), time.Time.Compare)
	rate := float64(to-from) / window.Seconds()
	given := mostIn(l.tokens, time.Second)
	return []row{{
		fmt.Sprintf("a rate of %v, within 1 %%", perSecond),
		fmt.Sprintf("%.2f over %v", rate, window),
		rate > perSecond*0.99 && rate < perSecond*1.01,
	}, {
		fmt.Sprintf("never above %v in a second, by the engine's clock", perSecond+burst),
		fmt.Sprintf("%d; by the clock of the handlers, which begin when the claim is stored, %d", given, mostIn(begins, time.Second)),
		float64(given) <= perSecond+burst && len(l.tokens) >= len(begins),
	}}, nil
}

// shared measures how long a job of one lane waits while another has many, and before.
func shared(ctx context.Context, q *durable.Queue, f *fleet) ([]row, error) {
	if err := q.SetLimit(ctx, "lanes", durable.Limit{Kind: kindLanes, Running: 2}); err != nil {
		return nil, err
	}
	for range 2 {
		kill, err := f.start(kindLanes)
		if err != nil {
			return nil, err
		}
		defer kill()
	}
	sleep(ctx, 3*time.Second)
	alone, _, err := f.few(ctx, q, "alone")
	if err != nil {
		return nil, err
	}
	for left := many; left > 0; left -= 1000 {
		jobs := make([]durable.Job, 1000)
		for i := range jobs {
			jobs[i] = durable.Job{Kind: kindLanes, Lane: laneMany}
		}
		if err := addAll(q, jobs); err != nil {
			return nil, err
		}
	}
	sleep(ctx, 10*time.Second)
	beside, before, err := f.few(ctx, q, "beside")
	if err != nil {
		return nil, err
	}
	n := len(alone)
	median, longest := beside[n/2]-alone[n/2], beside[n-1]-alone[n-1]
	ms := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return []row{{
		fmt.Sprintf("a lane of %d jobs delays one of another by at most a handler's time, %v", many, handling),
		fmt.Sprintf("by %v, at most %v: %v and %v instead of %v and %v, %d jobs; of the many %d began meanwhile, at most %d",
			ms(median), ms(longest), ms(beside[n/2]), ms(beside[n-1]), ms(alone[n/2]), ms(alone[n-1]), n, before[n/2], before[n-1]),
		median <= handling && longest <= handling,
	}}, nil
}

// few adds jobs each of a lane of its own, and returns how long they have waited, and how many
// of the lane with many jobs have begun meanwhile; both are sorted.
func (f *fleet) few(ctx context.Context, q *durable.Queue, name string) (waits []time.Duration, before []int, err error) {
	added := map[string]time.Time{}
	for i := range 40 {
		lane := fmt.Sprint(name, i)
		added[lane] = time.Now()
		if err := add(q, durable.Job{Kind: kindLanes, Lane: lane}); err != nil {
			return nil, nil, err
		}
		sleep(ctx, 200*time.Millisecond+rand.N(100*time.Millisecond))
	}
	sleep(ctx, 5*time.Second)
	l, err := f.read(kindLanes)
	if err != nil {
		return nil, nil, err
	}
	for _, a := range l.attempts {
		if at, ok := added[a.lane]; ok {
			waits = append(waits, a.begin.Sub(at))
			before = append(before, l.began(laneMany, at, a.begin))
		}
	}
	if len(waits) != len(added) {
		return nil, nil, fmt.Errorf("of %d jobs of other lanes %d have begun", len(added), len(waits))
	}
	slices.Sort(waits)
	slices.Sort(before)
	return waits, before, nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
