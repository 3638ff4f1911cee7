package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Run is Run of a Queue: it makes a worker, and works off jobs until ctx or the Queue's time
// ends. The worker is at held while it is under way.
func Run(ctx context.Context, env *Env, held *atomic.Pointer[Worker]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(env.Closed, cancel)()
	began := time.Now()
	kinds := env.workKinds()
	var w *Worker
	engineWorker, err := env.Engine.Work(ctx, driver.WorkConfig{
		Name: NewName(env.Now(), env.WorkerName), Kinds: kinds, Lease: env.Lease, Ahead: env.Ahead, Retention: env.Retention, Polled: func() { w.polled() },
		Tell: func(n driver.Notice) {
			if w := held.Load(); w != nil {
				w.tell(n)
			}
		},
	})
	if err != nil && ctx.Err() != nil && !ForGood(err) {
		env.Log.Warn("durable: Run has ended before the engine had made a worker", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("durable: Run: %w", err)
	}
	w = newWorker(env, engineWorker, kinds, began)
	held.Store(w)
	defer held.Store(nil)
	w.stop = cancel
	w.run(ctx)
	if w.failed != nil {
		return fmt.Errorf("durable: Run: %w", w.failed)
	}
	return nil
}

// workKinds returns what this process can run.
func (e *Env) workKinds() *driver.KindGate {
	var limited []string
	for kind := range e.Kinds {
		if e.Handlers[kind] != nil {
			limited = append(limited, kind)
		}
	}
	return driver.NewKindGate(slices.Collect(maps.Keys(e.Handlers)), limited...)
}

// The parts of a worker each run on a goroutine of their own.
func (w *Worker) run(ctx context.Context) {
	wheel := w.env.Wheel
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
	feeding.Go(func() { w.fetch(ctx) })

	<-ctx.Done()
	feeding.Wait()
	claiming.Wait()
	w.drain()
	w.ends.Close()
	stopBeating()
	beats.Wait()
	w.side.Wait()
	bye, cancel := context.WithTimeout(w.env.Asking, 5*time.Second)
	defer cancel()
	if err := w.engine.Close(bye); err != nil {
		w.env.Log.Warn("durable: the worker could not be closed; others wait for the end of its lease", "error", err)
	}
}

// fetch has the engine hand out jobs until ctx ends, and begins anew when that fails.
func (w *Worker) fetch(ctx context.Context) {
	var said Rarely
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := w.engine.Fetch(ctx, func(held []*driver.Delivery) { w.hold(ctx, held) })
		if ctx.Err() != nil {
			return
		}
		if ForGood(err) {
			w.mu.Lock()
			w.fail(err)
			w.mu.Unlock()
			return
		}
		if time.Since(began) > time.Minute {
			pause = 100 * time.Millisecond
		}
		if said.Now() {
			w.env.Log.Warn("durable: the engine hands out no jobs; trying again", "error", err, "pause", pause)
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
