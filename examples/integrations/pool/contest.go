package main

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/ants/v2"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// contestant is a pool. Start makes it: an executor, and what closes it.
type contestant struct {
	name  string
	start func(r *result) (executor timingwheel.Executor, close func(), err error)
}

var contestants = []contestant{
	{"ants, blocking", startAnts()},
	{"ants, refusing", startAnts(ants.WithNonblocking(true))},
	{"Wait", startPool(func(*result) pool.WhenFull { return pool.Wait })},
	{"CallerRuns", startPool(func(*result) pool.WhenFull { return pool.CallerRuns })},
	{"Discard", startPool(func(r *result) pool.WhenFull {
		return pool.Discard(func(func()) { r.dropped.Add(1) })
	})},
}

// startAnts plugs in a pool of ants by its Submit, which blocks while the pool is full. The
// pool has no queue: the goroutine that calls Submit waits, and here that is the driver. A
// nonblocking pool returns an error instead. Then the task runs on a goroutine of the wheel.
func startAnts(options ...ants.Option) func(*result) (timingwheel.Executor, func(), error) {
	return func(*result) (timingwheel.Executor, func(), error) {
		pool, err := ants.NewPool(*workers, options...)
		if err != nil {
			return nil, nil, err
		}
		return timingwheel.SubmitFunc(pool.Submit), pool.Release, nil
	}
}

func startPool(full func(r *result) pool.WhenFull) func(*result) (timingwheel.Executor, func(), error) {
	return func(r *result) (timingwheel.Executor, func(), error) {
		p := pool.New(*workers, *queue, full(r))
		return p, p.Close, nil
	}
}

// result is what became of the tasks.
type result struct {
	byWorkers, byDriver, refused, discarded int

	dropped atomic.Int64

	mu       sync.Mutex
	lateness []time.Duration // of those that ran; guarded by mu
}

// late returns how late the given fraction of the tasks that ran was at most.
func (r *result) late(part float64) time.Duration {
	if len(r.lateness) == 0 {
		return 0
	}
	return r.lateness[int(part*float64(len(r.lateness)-1))].Round(10 * time.Microsecond)
}

// try gives the tasks to a pool, and waits until all has ended, or ctx has.
func try(ctx context.Context, c contestant) (*result, error) {
	r := new(result)
	executor, closePool, err := c.start(r)
	if err != nil {
		return nil, err
	}
	defer closePool()
	w := timingwheel.New(timingwheel.WithExecutor(executor))
	defer w.Stop()
	start := time.Now()
	for i := range *tasks {
		at := start.Add(time.Duration(float64(*over) * float64(i) / float64(*tasks)))
		if _, err := w.ScheduleAt(at, func() { r.run(time.Since(at)) }); err != nil {
			return nil, err
		}
	}
	if err := w.Shutdown(ctx); err != nil {
		return nil, err
	}
	st := w.Stats()
	r.byDriver, r.refused, r.discarded = int(st.CallerRuns), int(st.Refused), int(st.Discarded)
	r.byWorkers = len(r.lateness) - r.byDriver - r.refused
	slices.Sort(r.lateness)
	return r, nil
}

// run is a task, which waits for something for a while.
func (r *result) run(late time.Duration) {
	r.mu.Lock()
	r.lateness = append(r.lateness, late)
	r.mu.Unlock()
	time.Sleep(*work)
}
