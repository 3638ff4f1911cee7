//go:build unix

// Command fleet measures what workers of several kinds cost one another, on a NATS server
// within the process, with every write synced, and on PostgreSQL, and prints the table in
// durable/RESULTS.md.
//
//	go run ./fleet -rate 500 -for 6s -rounds 3
//
// Each case has a store of its own, and is measured right after what it is compared with in
// each round; the figures are medians over the rounds. Only the ratios mean something on a
// machine that is busy.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

var (
	rate    = flag.Int("rate", 500, "jobs a second")
	length  = flag.Duration("for", 6*time.Second, "how long jobs are added in each case")
	rounds  = flag.Int("rounds", 3, "how often each case is measured")
	backlog = flag.Int("backlog", 100_000, "jobs that are overdue and not run")
	many    = flag.Int("kinds", 1000, "kinds on one store")
	engines = flag.String("engines", "jetstream,postgres", "which engines")
)

// figures are what one case has shown.
type figures struct {
	p99, cpu time.Duration // lateness, and processor time of a job
	hot      float64       // of PostgreSQL's updates, the share that stays within its page; 0: no such thing
}

// fleetCase is a case, or what cases are compared with.
type fleetCase struct {
	name string
	run  func(s store) (figures, error)
}

// comparison is a row of the table for each of its cases.
type comparison struct {
	base  fleetCase
	cases []fleetCase
	goals []string // of the cases
}

func comparisons() []comparison {
	both, one := []string{"a", "b"}, []string{"a"}
	kinds := make([]string, *many)
	for i := range kinds {
		kinds[i] = fmt.Sprint("kind", i)
	}
	return []comparison{{
		fleetCase{"two workers that run two kinds", func(s store) (figures, error) {
			return run(s, []worker{{kinds: both}, {kinds: both}}, both, "")
		}},
		[]fleetCase{{"one of the two runs one kind", func(s store) (figures, error) {
			return run(s, []worker{{kinds: one}, {kinds: both}}, both, "")
		}}},
		[]string{"p99 1.5"},
	}, {
		fleetCase{"a worker of one kind", func(s store) (figures, error) {
			return run(s, []worker{{kinds: one}}, one, "")
		}},
		[]fleetCase{{fmt.Sprint(*backlog, " overdue that nobody runs"), func(s store) (figures, error) {
			return run(s, []worker{{kinds: one}}, one, "nobody's")
		}}, {fmt.Sprint(*backlog, " overdue of a kind at its limit"), func(s store) (figures, error) {
			return run(s, []worker{{kinds: one, full: "full"}}, one, "full")
		}}, {fmt.Sprint(*many, " kinds"), func(s store) (figures, error) {
			return run(s, []worker{{kinds: kinds}}, kinds, "")
		}}},
		[]string{"p99, CPU 1.2", "p99, CPU 1.2", "CPU 1.2"},
	}}
}

func main() {
	flag.Parse()
	fmt.Println("| engine | case | late by p99 | beside | ratio | CPU a job | beside | ratio | goal |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, engine := range strings.Split(*engines, ",") {
		if err := measure(engine); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// measure prints the rows of an engine.
func measure(engine string) error {
	if stores[engine] == nil {
		return fmt.Errorf("fleet: there is no engine %q", engine)
	}
	var hot []float64
	for _, c := range comparisons() {
		base, of := make([]figures, *rounds), make([][]figures, len(c.cases))
		for r := range *rounds {
			var err error
			for i, one := range append([]fleetCase{c.base}, c.cases...) {
				var f figures
				if f, err = runCase(engine, one); err != nil {
					return fmt.Errorf("%s: %s: %w", engine, one.name, err)
				}
				if i == 0 {
					base[r], hot = f, append(hot, f.hot)
				} else {
					of[i-1] = append(of[i-1], f)
				}
			}
		}
		for i, one := range c.cases {
			p99 := row(of[i], base, func(f figures) float64 { return f.p99.Seconds() * 1e3 }, "%.2f ms")
			cpu := row(of[i], base, func(f figures) float64 { return f.cpu.Seconds() * 1e6 }, "%.0f us")
			fmt.Printf("| %s | %s, beside %s | %s | %s | %s |\n", engine, one.name, c.base.name, p99, cpu, c.goals[i])
		}
	}
	if share := median(hot); share > 0 {
		fmt.Printf("| %s | updates that are HOT, with nothing overdue: %.1f %% | | | | | | | 96 %% |\n", engine, 100*share)
	}
	return nil
}

func runCase(engine string, c fleetCase) (figures, error) {
	s, err := stores[engine]()
	if err != nil {
		return figures{}, err
	}
	defer s.remove()
	f, err := c.run(s)
	if err == nil {
		f.hot, err = s.hot()
	}
	return f, err
}

// row returns three fields of the table: the median of a figure, that of what it is compared
// with, and the median of the ratios of each round.
func row(all, base []figures, f func(figures) float64, format string) string {
	var own, others, ratios []float64
	for i := range all {
		a, b := f(all[i]), f(base[i])
		own, others, ratios = append(own, a), append(others, b), append(ratios, a/b)
	}
	return fmt.Sprintf(format+" | "+format+" | %.2f", median(own), median(others), median(ratios))
}

func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
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

// settled is how long workers run before anything is measured: they have found one another
// and what is overdue.
const settled = 3 * time.Second

// run has a fleet run jobs of some kinds, at the rate, that are due within two seconds,
// while jobs of another kind are overdue, if there is one.
func run(s store, workers []worker, kinds []string, overdue string) (figures, error) {
	q, err := s.open()
	if err != nil {
		return figures{}, err
	}
	defer q.Close()
	if overdue != "" {
		if err := addMany(q, overdue, *backlog); err != nil {
			return figures{}, err
		}
	}
	f, err := start(s, workers)
	if err != nil {
		return figures{}, err
	}
	time.Sleep(settled)
	before := s.cpu()
	added, err := addAtRate(q, kinds)
	if err == nil {
		err = f.await(added)
	}
	used := s.cpu() - before
	if endErr := f.end(); err == nil {
		err = endErr
	}
	return figures{p99: f.late.quantile(0.99), cpu: used / time.Duration(max(added, 1))}, err
}

func add(q *durable.Queue, jobs []durable.Job) error {
	_, err := q.AddMany(context.Background(), jobs...)
	return err
}

func addMany(q *durable.Queue, kind string, n int) error {
	for added := 0; added < n; added += 1000 {
		jobs := slices.Repeat([]durable.Job{{Kind: kind, Payload: make([]byte, 100)}}, min(1000, n-added))
		if err := add(q, jobs); err != nil {
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
				if err := add(q, jobs); err != nil {
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
