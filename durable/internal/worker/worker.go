// Package worker fetches, claims and runs the jobs of a Queue, and writes their ends down. It does not
// know the Queue: Config is what the two share. Which job is next is for package dispatch; this one
// does what that says, and has the goroutines and the lock.
package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/batch"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Worker is one Run. Its own methods are the steps of a job and its goroutines; each change of the dispatcher or of runs
// is made under mu, and act follows it before mu is given back. No request and no handler is called under mu.
type Worker struct {
	c     Config
	kinds *driver.KindSet // what the engine is to hand out
	wheel *timingwheel.TimingWheel
	ends  ends

	cooldowns *batch.Batcher[*cooldown] // that are to be stored

	claimNow     chan struct{} // for claimLoop: there may be something to claim
	renewNow     chan struct{} // for heartbeats: one is to be sent at once
	reloadLimits chan struct{} // for watchFlowControl: limits and pauses are to be read at once

	stop  func() // ends Run
	link  link
	polls polls

	mu      sync.Mutex // guards all below; lock and unlockAndAct
	changed *sync.Cond // of mu: jobs are gone, or handlers have returned
	runs    handlers

	dispatcher *dispatch.Dispatcher
	apart      apart

	lease      lease
	renewing   int  // heartbeats that are not answered yet
	silent     bool // the lease was lost, and not renewed since
	draining   bool
	cooling    int   // handlers that have returned and store a cooldown
	failed     error // why Run ends by itself
	unreadable unreadable
	unwritten  Rarely // for the log: ends that could not be written down
	unrenewed  Rarely // the same of the lease

	blocked   int       // calls of accept that wait while the worker is full
	lastClaim time.Time // when a claim was answered
}

// run is a job that runs. Its flags are guarded by Worker.mu.
type run struct {
	job      *dispatch.Job
	cancel   context.CancelCauseFunc
	canceled bool      // by CancelRunning
	early    bool      // and its handler has returned an error
	cutOff   bool      // by the end of Grace
	overdue  time.Time // when it is stuck; zero: it has no Timeout
	logged   bool      // that it is
	attempt  attempt.Attempt
}

// ends are those on their way to the engine. Each is in one batch, or waits on the wheel to be put there again: none is
// dropped before the engine has answered for it.
type ends struct {
	plain  *batch.Batcher[*end]
	retake *batch.Batcher[*end] // those that take a key again: they may wait for another's transaction
}

// end is the end of a job on its way to the engine.
type end struct {
	job   *dispatch.Job
	out   driver.Completion
	began time.Time // by the engine's clock
	tries int
	early bool // by CancelRunning

	own  *driver.Completion // that the handler has stored itself; nil without one
	fine bool               // the handler has returned nil
}

// lock returns the time as of when it has the lock.
func (w *Worker) lock() dispatch.Moment {
	w.mu.Lock()
	return w.c.moment()
}

// unlockAndAct does what follows from the changes since lock, such as to begin handlers, and gives
// the lock back.
func (w *Worker) unlockAndAct(now dispatch.Moment) {
	defer w.mu.Unlock()
	w.act(now)
}

// act carries out what follows from the changes since lock. w.mu is held, and stays so.
func (w *Worker) act(now dispatch.Moment) {
	a := w.dispatcher.Next(now, w.stands(now.Local) == sound)
	for _, k := range a.Kinds {
		w.kinds.Set(k.Kind, k.Open)
	}
	for _, t := range a.Timers {
		w.wheel.Schedule(t.After, func() { w.fire(t) }) // fails when Run has ended
	}
	for _, j := range a.Begin {
		w.begin(j)
	}
	for _, j := range a.Bury {
		go w.bury(j)
	}
	if len(a.Dropped) > 0 {
		w.link.giveBack(a.Dropped)
	}
	for _, d := range a.Deferred {
		w.link.background.Go(func() { w.link.release(d.Jobs, d.After) })
	}
	if a.Claim {
		notify(w.claimNow)
	}
	if a.Renew && w.renewing == 0 {
		notify(w.renewNow)
	}
	if a.ReadLimits {
		notify(w.reloadLimits)
	}
	if a.Changed {
		w.changed.Broadcast()
	}
}

func (w *Worker) fire(t dispatch.Timer) {
	now := w.lock()
	defer w.unlockAndAct(now)
	w.dispatcher.Fire(t, now)
}

// stands returns how the lease stands, and loses it if it is over. w.mu is held.
func (w *Worker) stands(now time.Time) standing {
	s := w.lease.at(now)
	if s == over && !w.silent {
		w.lose(now)
	}
	return s
}

// lose is called when the lease is lost. It ends the contexts of the handlers that run,
// and drops what has not begun. w.mu is held.
func (w *Worker) lose(now time.Time) {
	w.silent = true
	w.runs.endAll(driver.ErrLeaseLost)
	w.c.Log.Error("durable: the lease was not renewed in time", "silent", now.Sub(w.lease.renewed),
		"handlers", len(w.runs), "dropped", w.dispatcher.LoseLease())
}

// fail ends Run with an error, unless it ends already. The ends of handlers can most
// likely not be written down, so their contexts end. It reports whether Run ends with an error, so that
// drain waits for no more ends: its context may have ended before the engine was closed. w.mu is held.
func (w *Worker) fail(err error) bool {
	if w.failed == nil && w.c.Closed.Err() == nil {
		w.failed = err
		w.runs.endAll(err)
		w.stop()
	}
	w.changed.Broadcast()
	return w.failed != nil
}

// ForGood reports whether an engine has said that it cannot go on.
func ForGood(err error) bool {
	return errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrVersion)
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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
