package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// ending is the end of a wheel.
type ending struct {
	life     *life
	begun    atomic.Bool   // set just before Stop or Shutdown is called
	over     chan struct{} // closed when begun is set
	quiet    atomic.Bool   // no more calls are made
	fromTask atomic.Bool   // the next task that runs stops the wheel

	// neverRoom says that the pool is closed before the end, so that what waits for room stays
	// pending until Stop, and Shutdown waits for it.
	neverRoom bool

	mu       sync.Mutex
	pending  []timingwheel.Pending // guarded by mu; what Stop handed back
	deadline time.Duration         // of the one that callHandedBack is calling
}

// end ends the wheel in one of several ways.
func (e *ending) end() {
	e.begun.Store(true)
	close(e.over)
	switch rand.IntN(4) {
	case 0:
		e.shutdown()
	case 1:
		e.waitForTask()
	case 2:
		e.severalAtOnce()
	}
	e.stop()
}

// shutdown waits for everything that is pending, if none of it can be far off, and
// otherwise not for long.
func (e *ending) shutdown() {
	l := e.life
	patient := l.shape.farthest < time.Minute && !e.neverRoom
	limit := pick(0, time.Millisecond, 100*time.Millisecond)
	if patient {
		limit = patience
		e.quiet.Store(true) // otherwise what is pending could be reset without end
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := l.w.Shutdown(ctx); err != nil && patient {
		l.violate("Shutdown: %v\n%s", err, stacks())
	}
}

// waitForTask lets a task stop the wheel, if one runs soon.
func (e *ending) waitForTask() {
	e.fromTask.Store(true)
	for begin := time.Now(); e.fromTask.Load() && time.Since(begin) < 100*time.Millisecond; {
		time.Sleep(time.Millisecond)
	}
}

// stopFromTask is called by a task. It stops the wheel if waitForTask has asked for that
// and no other task has done it, and reports whether it did.
func (e *ending) stopFromTask() bool {
	if !e.fromTask.Load() || !e.fromTask.CompareAndSwap(true, false) {
		return false
	}
	e.stop()
	return true
}

func (e *ending) severalAtOnce() {
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(e.stop)
	}
	wg.Go(func() { e.life.w.Shutdown(context.Background()) })
	wg.Wait()
}

func (e *ending) stop() {
	pending := e.life.w.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pending = append(e.pending, pending...)
}

// callHandedBack calls what was handed back. The mode of the life must be handingBack, so
// that the functions know what the call means.
func (e *ending) callHandedBack() {
	e.mu.Lock()
	pending := e.pending
	e.mu.Unlock()
	for _, p := range pending {
		e.deadline = p.Deadline.Sub(e.life.soak.begin)
		p.Func()
	}
}
