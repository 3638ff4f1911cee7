package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// lease is what a worker knows of its own lease.
//
// No handler begins but under a lease that was renewed so short a time ago that nobody
// can have taken its job over. That is looked at where the handler begins, by the age of
// the lease: a process that was frozen, or cut off, must not depend on which of its
// goroutines finds that out first.
type lease struct {
	length  time.Duration
	renewed time.Time // when the last heartbeat that was answered began; compared monotonically
	wall    time.Time // the same by the wall clock
}

func newLease(length time.Duration, renewed time.Time) lease {
	l := lease{length: length}
	l.renew(renewed)
	return l
}

func (l *lease) renew(at time.Time) { l.renewed, l.wall = at, at.Round(0) }

// standing is what may be done under a lease.
type standing int

const (
	sound    standing = iota // handlers may begin
	doubtful                 // not before a heartbeat is answered
	over
)

// at returns how the lease stands. An eighth of it is left for clocks that drift apart,
// and for what comes between the look and the handler's first instruction. By the
// monotonic clock it is over after its length. That clock may stand still while a
// machine is suspended. So where the wall clock says that it is old a heartbeat has to tell:
// to a machine whose wall clock was set that costs no more than the heartbeat.
func (l *lease) at(now time.Time) standing {
	age, old := now.Sub(l.renewed), l.length-l.length/8
	switch {
	case age >= l.length:
		return over
	case age >= old || now.Round(0).Sub(l.wall) >= old:
		return doubtful
	}
	return sound
}

// heartbeats renews the lease until ctx ends. It does not wait for an answer before it sends the
// next one: an answer may be lost, and one that takes longer than a third of a lease counts as
// well.
func (w *Worker) heartbeats(ctx context.Context) {
	t := time.NewTicker(w.c.Lease / 3)
	defer t.Stop()
	var sent sync.WaitGroup
	defer sent.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.renewNow:
		}
		now := w.lock() // before the call, so that the engine's lease ends no earlier
		w.renewing++
		w.logStuck(now.Local)
		w.unlock(now)
		sent.Go(func() { w.renew(ctx, now.Local) })
	}
}

// stands returns how the lease stands, and loses it if it is over. w.mu is held.
func (w *Worker) stands(now time.Time) standing {
	s := w.lease.at(now)
	if s == over && !w.silent {
		w.lose(now)
	}
	return s
}

// renew sends a heartbeat, at the time began.
func (w *Worker) renew(ctx context.Context, began time.Time) {
	try, cancel := context.WithTimeout(ctx, w.c.Lease)
	defer cancel()
	err := w.engine.Heartbeat(try)
	now := w.lock()
	defer w.unlock(now)
	w.renewing--
	switch {
	case err == nil || errors.Is(err, driver.ErrLeaseLost):
		if err != nil && !w.silent {
			w.lose(now.Local)
		}
		if !began.Before(w.lease.renewed) {
			w.lease.renew(began)
		}
		if w.lease.at(now.Local) != over {
			w.silent = false
		}
	case ctx.Err() != nil:
	case ForGood(err):
		w.fail(err)
	case w.unrenewed.Now():
		w.c.Log.Warn("durable: cannot renew the lease", "error", err, "silent", now.Local.Sub(w.lease.renewed))
	}
}

// lose is called when the lease is lost. It ends the contexts of the handlers that run,
// and drops what has not begun. w.mu is held.
func (w *Worker) lose(now time.Time) {
	w.silent = true
	w.endHandlers(driver.ErrLeaseLost)
	w.c.Log.Error("durable: the lease was not renewed in time", "silent", now.Sub(w.lease.renewed),
		"handlers", len(w.runs), "dropped", w.jobs.LoseLease())
}

// endHandlers ends the contexts of all handlers. w.mu is held.
func (w *Worker) endHandlers(cause error) {
	for _, r := range w.runs {
		r.cancel(cause)
	}
}

// ForGood reports whether an engine has said that it cannot go on.
func ForGood(err error) bool {
	return errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrVersion)
}

// fail ends Run with an error, unless it ends already. The ends of handlers can most
// likely not be written down, so their contexts end. w.mu is held.
func (w *Worker) fail(err error) {
	if w.failed != nil || w.c.Closed.Err() != nil {
		return
	}
	w.failed = err
	w.endHandlers(err)
	w.stop()
}
