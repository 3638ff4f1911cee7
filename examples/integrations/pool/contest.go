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
	{"ants, blocking", startAnts},
	{"Wait", startPool(func(*result) pool.WhenFull { return pool.Wait })},
	{"CallerRuns", startPool(func(*result) pool.WhenFull { return pool.CallerRuns })},
	{"Discard", startPool(func(r *result) pool.WhenFull {
		return pool.Discard(func(func()) { r.dropped.Add(1) })
	})},
}

// startAnts plugs in a pool of ants by its Submit, which blocks while the pool is full.
// The pool has no queue: the goroutine that calls Submit waits, and here that is the
// driver. If Submit refuses a task, the caller has to handle that.
func startAnts(r *result) (timingwheel.Executor, func(), error) {
	pool, err := ants.NewPool(*workers)
	if err != nil {
		return nil, nil, err
	}
	return timingwheel.ExecutorFunc(func(task func()) {
		if err := pool.Submit(task); err != nil {
			task() // on the driver, as CallerRuns does
			r.refused.Add(1)
		}
	}), pool.Release, nil
}

func startPool(full func(r *result) pool.WhenFull) func(*result) (timingwheel.Executor, func(), error) {
	return func(r *result) (timingwheel.Executor, func(), error) {
		p := pool.New(*workers, *queue, full(r))
		return p, p.Close, nil
	}
}

// result is what became of the tasks.
type result struct {
	byWorkers, byDriver, discarded int

	dropped, refused atomic.Int64

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
	r.byDriver = int(st.CallerRuns + r.refused.Load())
	r.discarded = int(st.Discarded)
	r.byWorkers = len(r.lateness) - r.byDriver
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
