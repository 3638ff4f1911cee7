package durable

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Run works off jobs until ctx ends, or the Queue is closed. Then it drains: it fetches no
// more jobs, hands back at once those that have not begun, and waits for the handlers
// that run and until their ends are written down. Then it returns nil. If the engine
// cannot make a worker before ctx ends, it returns an error. Later, an engine that does
// not answer does not end Run. Run panics if another call is under way, or if there is no
// handler.
func (q *Queue) Run(ctx context.Context) error {
	q.begin()
	defer q.end()
	if q.closed.Err() != nil {
		return ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.closed, cancel)()
	engineWorker, err := q.engine.Work(ctx, WorkConfig{
		Name: rand.Text(), Lease: q.lease, Ahead: q.ahead, Retention: q.retention,
	})
	if err != nil {
		return fmt.Errorf("durable: Run: %w", err)
	}
	w := newWorker(q, engineWorker)
	q.held.Store(w)
	defer q.held.Store(nil)
	w.run(ctx)
	return nil
}

func (q *Queue) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running {
		panic("durable: Run: it is under way")
	}
	if len(q.handlers) == 0 {
		panic("durable: Run: no handler")
	}
	q.running = true
	q.wg.Add(1)
}

func (q *Queue) end() {
	q.mu.Lock()
	q.running = false
	q.mu.Unlock()
	q.wg.Done()
}

// The parts of a worker each run on a goroutine of their own.
func (w *worker) run(ctx context.Context) {
	wheel := w.q.wheel
	if wheel == nil {
		wheel = timingwheel.New(timingwheel.WithTick(100*time.Microsecond), timingwheel.WithPreciseWakeups(),
			timingwheel.WithExecutor(timingwheel.Inline()))
		defer wheel.Stop()
	}
	w.wheel = wheel
	beating, stopBeating := context.WithCancel(context.Background())
	defer stopBeating()
	var feeding, claiming, beats sync.WaitGroup
	beats.Go(func() { w.beat(beating) })
	claiming.Go(func() { w.claimLoop(ctx) })
	feeding.Go(func() { w.feed(ctx) })

	<-ctx.Done()
	feeding.Wait()
	claiming.Wait()
	w.drain()
	w.ends.close()
	stopBeating()
	beats.Wait()
	bye, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := w.engine.Close(bye); err != nil {
		w.q.log.Warn("durable: the worker could not be closed; others wait for the end of its lease", "error", err)
	}
}

// feed has the engine hand out jobs until ctx ends, and begins anew when that fails.
func (w *worker) feed(ctx context.Context) {
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := w.engine.Feed(ctx, func(held []*Held) { w.hold(ctx, held) })
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > time.Minute {
			pause = 100 * time.Millisecond
		}
		w.q.log.Warn("durable: the engine hands out no jobs; trying again", "error", err, "pause", pause)
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

// beat renews the lease until ctx ends. When it has been silent for a lease it tells the
// handlers, first of all: a process that was frozen finds that out here. It does not wait for
// an answer before it asks again: one may be lost, and one that takes longer than a third of
// a lease counts as well.
func (w *worker) beat(ctx context.Context) {
	w.renewed = time.Now()
	t := time.NewTicker(w.q.lease / 3)
	defer t.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now() // before the call, so that the engine's lease ends no earlier
		w.mu.Lock()
		silent := now.Sub(w.renewed)
		w.mu.Unlock()
		if silent > w.q.lease {
			w.leaseLost(silent)
		}
		asking.Go(func() { w.renew(ctx, now) })
	}
}

// renew asks the engine once, at the time now.
func (w *worker) renew(ctx context.Context, now time.Time) {
	try, cancel := context.WithTimeout(ctx, w.q.lease)
	defer cancel()
	err := w.engine.Beat(try)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		if now.After(w.renewed) {
			w.renewed = now
		}
		w.silent = w.silent && time.Since(w.renewed) > w.q.lease
	case ctx.Err() == nil:
		w.q.log.Warn("durable: the lease could not be renewed", "error", err, "silent", time.Since(w.renewed))
	}
}

// leaseLost ends the contexts of all handlers that run.
func (w *worker) leaseLost(silent time.Duration) {
	w.mu.Lock()
	w.silent = true
	n := 0
	for _, t := range w.tasks {
		if t.cancel != nil {
			t.cancel(ErrLeaseLost)
			n++
		}
	}
	w.mu.Unlock()
	w.q.log.Error("durable: the lease was not renewed in time", "silent", silent, "handlers", n)
}
