package worker

import (
	"context"
	"errors"
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
func Run(ctx context.Context, c Config, held *atomic.Pointer[Worker]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.Closed, cancel)()
	began := time.Now()
	kinds := c.kindGate()
	var w *Worker
	engineWorker, err := c.Engine.Work(ctx, driver.WorkConfig{
		Name: NewName(c.now(), c.Label), Kinds: kinds, Lease: c.Lease, Ahead: c.Ahead, Retention: c.Retention, Polled: func() { w.polled() },
		Tell: func(n driver.Notice) {
			if w := held.Load(); w != nil {
				w.tell(n)
			}
		},
	})
	if err != nil && ctx.Err() != nil && !ForGood(err) {
		c.Log.Warn("durable: Run ended before the engine made a worker", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("durable: Run: %w", err)
	}
	w = newWorker(c, engineWorker, kinds, began)
	w.stop = cancel
	held.Store(w)
	defer held.Store(nil)
	w.work(ctx)
	if w.failed != nil {
		return fmt.Errorf("durable: Run: %w", w.failed)
	}
	return nil
}

// kindGate returns what this process can run.
func (c *Config) kindGate() *driver.KindGate {
	var limited []string
	for kind := range c.Limits {
		if c.Handlers[kind] != nil {
			limited = append(limited, kind)
		}
	}
	return driver.NewKindGate(slices.Collect(maps.Keys(c.Handlers)), limited...)
}

// work has each part of a worker run on a goroutine of its own.
func (w *Worker) work(ctx context.Context) {
	w.wheel = w.c.Wheel
	if w.wheel == nil {
		w.wheel = timingwheel.New(timingwheel.WithTick(100*time.Microsecond), timingwheel.WithPreciseWakeups(),
			timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.wheel.Stop()
	}
	ending, end := context.WithCancel(context.Background())
	defer end()
	w.ending = ending
	var fetching, claiming, watching sync.WaitGroup
	watching.Go(func() { w.heartbeats(ending) })
	watching.Go(func() { w.watchUnhandled(ending) })
	watching.Go(func() { w.watchBacklog(ending) })
	watching.Go(func() { w.watchFlowControl(ending) })
	claiming.Go(func() { w.claimLoop(ctx) })
	fetching.Go(func() { w.fetch(ctx) })

	<-ctx.Done()
	fetching.Wait()
	claiming.Wait()
	w.drain()
	w.ends.Close()
	end()
	watching.Wait()
	w.background.Wait()
	bye, cancel := context.WithTimeout(w.c.Requests, 5*time.Second)
	defer cancel()
	if err := w.engine.Close(bye); err != nil {
		w.c.Log.Warn("durable: cannot close the worker; others wait for the end of its lease", "error", err)
	}
}

// drain hands back what has not begun, and waits for the rest. If the engine is silent it
// gives up after a lease from when the last handler has returned: then what is not
// written down is not this worker's any more. Close makes it give up sooner.
func (w *Worker) drain() {
	now := w.lock()
	w.draining = true
	w.jobs.Drain()
	w.unlock(now) // handed back more than once: handlers may run for long, and the lease is renewed meanwhile
	if w.c.Grace > 0 {
		defer time.AfterFunc(w.c.Grace, w.cutOff).Stop()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.jobs.Counts().Running > 0 {
		w.room.Wait()
	}
	over := false
	giveUp := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.room.Broadcast()
	}
	defer time.AfterFunc(w.c.Lease, giveUp).Stop()
	defer context.AfterFunc(w.c.Requests, giveUp)()
	for w.jobs.Counts().Held > 0 && !over && !errors.Is(w.failed, driver.ErrClosed) { // then no end can be written down
		w.room.Wait()
	}
	if n := w.jobs.Counts().Held; n > 0 {
		w.c.Log.Error("durable: cannot store the ends of attempts; the jobs will run again", "attempts", n)
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
