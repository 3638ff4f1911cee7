// Command fleet measures what workers of several kinds cost one another, on a NATS server
// within the process, with every write synced, and on PostgreSQL, and prints the table in
// durable/README.md.
//
//	go run ./internal/fleet -rate 500 -for 10s -rounds 3
//
// Each case has a store of its own, and is measured beside what it is compared with, by
// turns; the figures are medians over the rounds. Only their ratios mean something on a
// machine that is busy.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

var (
	rate    = flag.Int("rate", 500, "jobs a second")
	length  = flag.Duration("for", 10*time.Second, "how long jobs are added in each case")
	rounds  = flag.Int("rounds", 3, "how often each case is measured")
	backlog = flag.Int("backlog", 100_000, "jobs that are overdue and not run")
	many    = flag.Int("kinds", 1000, "kinds on one store")
	burst   = flag.Int("burst", 20_000, "jobs of one kind that are due at once, for the throughput")
	engines = flag.String("engines", "jetstream,postgres", "which engines")
	only    = flag.String("only", "", "a list of cases, with ; between; all if empty")
)

// figures are what one case has shown.
type figures struct {
	p50, p99, cpu time.Duration // lateness, and processor time of a job
	perSecond     float64       // for the throughput
}

// fleetCase is a case, and the one that it is compared with.
type fleetCase struct {
	name, against, goal string
	run                 func(s store) (figures, error)
}

var cases = []fleetCase{
	{"two workers, each runs all", "", "", func(s store) (figures, error) {
		return run(s, []worker{{kinds: []string{"a", "b"}}, {kinds: []string{"a", "b"}}}, []string{"a", "b"}, nil)
	}},
	{"two workers, one without a kind", "two workers, each runs all", "p99 1.5", func(s store) (figures, error) {
		return run(s, []worker{{kinds: []string{"a"}}, {kinds: []string{"a", "b"}}}, []string{"a", "b"}, nil)
	}},
	{"one worker", "", "", func(s store) (figures, error) {
		return run(s, []worker{{kinds: []string{"a"}}}, []string{"a"}, nil)
	}},
	{"beside overdue jobs that nobody runs", "one worker", "p99, CPU 1.2", func(s store) (figures, error) {
		return run(s, []worker{{kinds: []string{"a"}}}, []string{"a"}, []string{"nobody's"})
	}},
	{"beside overdue jobs of a kind at its limit", "one worker", "p99, CPU 1.2", func(s store) (figures, error) {
		return run(s, []worker{{kinds: []string{"a"}, full: "full"}}, []string{"a"}, []string{"full"})
	}},
	{"many kinds", "one worker", "CPU 1.2", func(s store) (figures, error) {
		kinds := make([]string, *many)
		for i := range kinds {
			kinds[i] = fmt.Sprint("kind", i)
		}
		return run(s, []worker{{kinds: kinds}}, kinds, nil)
	}},
	{"a burst of one kind", "", "", throughput},
}

func main() {
	profile := flag.String("cpuprofile", "", "a file for a CPU profile")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure() error {
	fmt.Println("| engine | case | late by p50 | p99 | CPU a job | a second | p99 to | CPU to | goal |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, engine := range strings.Split(*engines, ",") {
		all := map[string][]figures{}
		for range *rounds {
			for _, c := range cases {
				if *only != "" && !slices.Contains(strings.Split(*only, ";"), c.name) {
					continue
				}
				f, err := runCase(engine, c)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", engine, c.name, err)
				}
				all[c.name] = append(all[c.name], f)
			}
		}
		for _, c := range cases {
			if len(all[c.name]) > 0 {
				print(engine, c, all)
			}
		}
	}
	return nil
}

func runCase(engine string, c fleetCase) (figures, error) {
	s, err := stores[engine]()
	if err != nil {
		return figures{}, err
	}
	defer s.remove()
	return c.run(s)
}

// print prints a row: medians, and the medians of the ratios to the other case of the same
// round.
func print(engine string, c fleetCase, all map[string][]figures) {
	of := func(f func(figures) float64) float64 { return median(all[c.name], f) }
	to := func(f func(figures) float64) string {
		base := all[c.against]
		if len(base) == 0 {
			return ""
		}
		var ratios []float64
		for i, x := range all[c.name] {
			ratios = append(ratios, f(x)/max(f(base[i]), 1))
		}
		slices.Sort(ratios)
		return fmt.Sprintf("%.2f", ratios[len(ratios)/2])
	}
	p99 := func(f figures) float64 { return float64(f.p99) }
	cpu := func(f figures) float64 { return float64(f.cpu) }
	perSecond := ""
	if n := of(func(f figures) float64 { return f.perSecond }); n > 0 {
		perSecond = fmt.Sprintf("%.0f", n)
	}
	fmt.Printf("| %s | %s | %.2f ms | %.2f ms | %.0f us | %s | %s | %s | %s |\n", engine, c.name,
		of(func(f figures) float64 { return float64(f.p50) })/1e6, of(p99)/1e6, of(cpu)/1e3, perSecond, to(p99), to(cpu), c.goal)
}

func median(all []figures, f func(figures) float64) float64 {
	var v []float64
	for _, x := range all {
		v = append(v, f(x))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// worker is one process of the fleet: what it runs, and a kind of which it runs two that do
// not return.
type worker struct {
	kinds []string
	full  string
}

// lateness collects by how much handlers begin late.
type lateness struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *lateness) add(d time.Duration) {
	l.mu.Lock()
	l.all = append(l.all, max(d, 0))
	l.mu.Unlock()
}

func (l *lateness) quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0
	}
	slices.Sort(l.all)
	return l.all[int(q*float64(len(l.all)-1))]
}

// fleet is workers that run.
type fleet struct {
	queues []*durable.Queue
	late   lateness
	ran    atomic.Int64
	free   chan struct{} // closed: the handlers of full kinds return
	end    func() error
}

func start(s store, workers []worker) (*fleet, error) {
	f := &fleet{free: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	errs := make([]error, len(workers))
	for i, w := range workers {
		opts := []durable.Option{durable.WithConcurrency(256)}
		if w.full != "" {
			opts = append(opts, durable.WithKindConcurrency(w.full, 2))
		}
		q, err := s.open(opts...)
		if err != nil {
			stop()
			return nil, err
		}
		f.queues = append(f.queues, q)
		for _, kind := range w.kinds {
			q.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
				f.late.add(time.Since(a.Due))
				f.ran.Add(1)
				return nil
			})
		}
		if w.full != "" {
			q.Handle(w.full, func(context.Context, *durable.Attempt) error { <-f.free; return nil })
		}
		wg.Go(func() { errs[i] = q.Run(ctx) })
	}
	f.end = func() error {
		stop()
		close(f.free)
		wg.Wait()
		for i, q := range f.queues {
			if errs[i] == nil {
				errs[i] = q.Close()
			}
			if errs[i] != nil {
				return errs[i]
			}
		}
		return nil
	}
	return f, nil
}

// await waits until so many have run.
func (f *fleet) await(n int64) error {
	for end := time.Now().Add(2 * time.Minute); f.ran.Load() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d ran in two minutes", f.ran.Load(), n)
		}
	}
	return nil
}

// run has a fleet run jobs of some kinds, at the rate, that are due within two seconds,
// while jobs of other kinds are overdue.
func run(s store, workers []worker, kinds, overdue []string) (figures, error) {
	q, err := s.open()
	if err != nil {
		return figures{}, err
	}
	defer q.Close()
	for _, kind := range overdue {
		if err := addMany(q, kind, *backlog); err != nil {
			return figures{}, err
		}
	}
	f, err := start(s, workers)
	if err != nil {
		return figures{}, err
	}
	time.Sleep(3 * time.Second)
	before := s.cpu()
	added, err := addAtRate(q, kinds)
	if err == nil {
		err = f.await(added)
	}
	used := s.cpu() - before
	if endErr := f.end(); err == nil {
		err = endErr
	}
	return figures{p50: f.late.quantile(0.5), p99: f.late.quantile(0.99), cpu: used / time.Duration(max(added, 1))}, err
}

func addMany(q *durable.Queue, kind string, n int) error {
	for added := 0; added < n; added += 1000 {
		jobs := slices.Repeat([]durable.Job{{Kind: kind, Payload: make([]byte, 100)}}, min(1000, n-added))
		if err := addAll(q, jobs); err != nil {
			return err
		}
	}
	return nil
}

func addAtRate(q *durable.Queue, kinds []string) (int64, error) {
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	added := int64(0)
	for began := time.Now(); time.Since(began) < *length; time.Sleep(2 * time.Millisecond) {
		due := int64(time.Since(began).Seconds() * float64(*rate))
		var jobs []durable.Job
		for ; added < due; added++ {
			after := time.Duration(added*7919%2000) * time.Millisecond
			jobs = append(jobs, durable.Job{Kind: kinds[added%int64(len(kinds))], After: after, Payload: make([]byte, 100)})
		}
		if len(jobs) > 0 {
			wg.Go(func() {
				if err := addAll(q, jobs); err != nil {
					failed.Store(&err)
				}
			})
		}
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return added, *err
	}
	return added, nil
}

// throughput is how fast jobs of one kind that are due are run to their end.
func throughput(s store) (figures, error) {
	q, err := s.open()
	if err != nil {
		return figures{}, err
	}
	defer q.Close()
	if err := addMany(q, "a", *burst); err != nil {
		return figures{}, err
	}
	before, began := s.cpu(), time.Now()
	f, err := start(s, []worker{{kinds: []string{"a"}}})
	if err != nil {
		return figures{}, err
	}
	err = f.await(int64(*burst))
	took, used := time.Since(began), s.cpu()-before
	if endErr := f.end(); err == nil {
		err = endErr
	}
	return figures{cpu: used / time.Duration(*burst), perSecond: float64(*burst) / took.Seconds()}, err
}
