package durable

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Run works off jobs until ctx ends, or the Queue is closed. Then it drains: it fetches
// no more jobs, hands back at once those that have not begun, and waits for the handlers
// that run and until their ends are written down. Then it returns nil. It returns nil, too,
// and logs why, if ctx ends before the engine has made a worker. An engine that does not
// answer never ends Run. One that refuses to make a worker ends Run with its error. So does
// one that cannot go on, because its connection is closed for good ([ErrClosed]), or because
// a newer version of it has changed the store ([ErrVersion]); this error is the cause with
// which the contexts of the running handlers end. Run panics if another call is under way,
// or if there is no handler.
func (q *Queue) Run(ctx context.Context) error {
	q.begin()
	defer q.end()
	if q.env.closed.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.env.closed, cancel)()
	began := time.Now()
	kinds := q.workKinds()
	var w *worker
	engineWorker, err := q.env.engine.Work(ctx, WorkConfig{
		Name: newWorkerName(q.env.now(), q.env.workerName), Kinds: kinds, Lease: q.env.lease, Ahead: q.env.ahead, Retention: q.env.retention, Looked: func() { w.looked() },
		Tell: func(n Notice) {
			if w := q.held.Load(); w != nil {
				w.tell(n)
			}
		},
	})
	if err != nil && ctx.Err() != nil && !forGood(err) {
		q.env.log.Warn("durable: Run has ended before the engine had made a worker", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("durable: Run: %w", err)
	}
	w = newWorker(q.env, engineWorker, kinds, began)
	q.held.Store(w)
	defer q.held.Store(nil)
	w.stop = cancel
	w.run(ctx)
	if w.failed != nil {
		return fmt.Errorf("durable: Run: %w", w.failed)
	}
	return nil
}

func (q *Queue) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running {
		panic("durable: Run: it is under way")
	}
	if len(q.env.handlers) == 0 {
		panic("durable: Run: no handler")
	}
	q.running = true
	q.wg.Add(1)
}

// workKinds returns what this process can run.
func (q *Queue) workKinds() *Kinds {
	var limited []string
	for kind := range q.env.kinds {
		if q.env.handlers[kind] != nil {
			limited = append(limited, kind)
		}
	}
	return NewKinds(slices.Collect(maps.Keys(q.env.handlers)), limited...)
}

func (q *Queue) end() {
	q.mu.Lock()
	q.running = false
	q.mu.Unlock()
	q.wg.Done()
}

// The parts of a worker each run on a goroutine of their own.
func (w *worker) run(ctx context.Context) {
	wheel := w.env.wheel
	if wheel == nil {
		wheel = timingwheel.New(timingwheel.WithTick(100*time.Microsecond), timingwheel.WithPreciseWakeups(),
			timingwheel.WithExecutor(timingwheel.Inline()))
		defer wheel.Stop()
	}
	w.wheel = wheel
	beating, stopBeating := context.WithCancel(context.Background())
	defer stopBeating()
	w.ending = beating
	var feeding, claiming, beats sync.WaitGroup
	beats.Go(func() { w.beat(beating) })
	beats.Go(func() { w.watchUnhandled(beating) })
	beats.Go(func() { w.watchBacklog(beating) })
	beats.Go(func() { w.watchRules(beating) })
	claiming.Go(func() { w.claimLoop(ctx) })
	feeding.Go(func() { w.feed(ctx) })

	<-ctx.Done()
	feeding.Wait()
	claiming.Wait()
	w.drain()
	w.ends.close()
	stopBeating()
	beats.Wait()
	w.side.Wait()
	bye, cancel := context.WithTimeout(w.env.asking, 5*time.Second)
	defer cancel()
	if err := w.engine.Close(bye); err != nil {
		w.env.log.Warn("durable: the worker could not be closed; others wait for the end of its lease", "error", err)
	}
}

// feed has the engine hand out jobs until ctx ends, and begins anew when that fails.
func (w *worker) feed(ctx context.Context) {
	var said rarely
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := w.engine.Feed(ctx, func(held []*Held) { w.hold(ctx, held) })
		if ctx.Err() != nil {
			return
		}
		if forGood(err) {
			w.mu.Lock()
			w.fail(err)
			w.mu.Unlock()
			return
		}
		if time.Since(began) > time.Minute {
			pause = 100 * time.Millisecond
		}
		if said.now() {
			w.env.log.Warn("durable: the engine hands out no jobs; trying again", "error", err, "pause", pause)
		}
		sleep(ctx, pause)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
