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
	renewed time.Time // when the last beat that was answered began; compared monotonically
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
	doubtful                 // not before a beat is answered
	over
)

// at returns how the lease stands. An eighth of it is left for clocks that drift apart,
// and for what comes between the look and the handler's first instruction. By the
// monotonic clock it is over after its length. That clock may stand still while a
// machine is suspended. So where the wall clock says that it is old a beat has to tell:
// to a machine whose wall clock was set that costs no more than the beat.
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

// beat renews the lease until ctx ends. It does not wait for an answer before it asks
// again: one may be lost, and one that takes longer than a third of a lease counts as
// well.
func (w *Worker) beat(ctx context.Context) {
	t := time.NewTicker(w.env.Lease / 3)
	defer t.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-w.doubt:
		}
		now := time.Now() // before the call, so that the engine's lease ends no earlier
		w.mu.Lock()
		w.stands(now)
		w.asking++
		w.mu.Unlock()
		asking.Go(func() { w.renew(ctx, now) })
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

// mayBegin reports whether a handler may begin now. If not, a beat is asked for that does
// not wait for its turn, and start is called when it is answered. w.mu is held.
func (w *Worker) mayBegin() bool {
	s := w.stands(time.Now())
	if s != sound && w.asking == 0 {
		select {
		case w.doubt <- struct{}{}:
		default:
		}
	}
	return s == sound
}

// renew asks the engine once, at the time began.
func (w *Worker) renew(ctx context.Context, began time.Time) {
	try, cancel := context.WithTimeout(ctx, w.env.Lease)
	defer cancel()
	err := w.engine.Heartbeat(try)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking--
	now := time.Now()
	switch {
	case err == nil || errors.Is(err, driver.ErrLeaseLost):
		if err != nil && !w.silent {
			w.lose(now)
		}
		if !began.Before(w.lease.renewed) {
			w.lease.renew(began)
		}
		if w.lease.at(now) != over {
			w.silent = false
			w.start()
		}
	case ctx.Err() != nil:
	case ForGood(err):
		w.fail(err)
	case w.unrenewed.Now():
		w.env.Log.Warn("durable: the lease could not be renewed", "error", err, "silent", now.Sub(w.lease.renewed))
	}
}

// lose is called when the lease is lost. It ends the contexts of the handlers that run,
// and drops what has not begun: others may have taken it over by now, and may have ended
// it. It is handed back in case that they have not. Claims that are under way at this
// moment are dropped with their answers. w.mu is held.
func (w *Worker) lose(now time.Time) {
	w.silent = true
	w.losses++
	var back []*driver.Delivery
	handlers := 0
	for _, t := range w.tasks {
		if t.next != nil {
			back = append(back, t.next)
			t.next = nil
		}
		switch {
		case t.cancel != nil:
			t.cancel(driver.ErrLeaseLost)
			handlers++
		case t.phase < running && t.phase != claiming:
			back = append(back, t.held)
			w.drop(t)
		}
	}
	w.clearQueues()
	w.env.Log.Error("durable: the lease was not renewed in time", "silent", now.Sub(w.lease.renewed),
		"handlers", handlers, "dropped", len(back))
	w.giveBack(back)
}

// giveBack hands back what was dropped, which may be claimed, until the engine has taken
// it or Run ends: nobody else gets what a worker has claimed that lives.
func (w *Worker) giveBack(held []*driver.Delivery) {
	if len(held) == 0 {
		return
	}
	w.side.Go(func() {
		for pause := 100 * time.Millisecond; w.release(held, 0) != nil; pause = min(2*pause, 5*time.Second) {
			if sleep(w.ending, pause); w.ending.Err() != nil {
				return
			}
		}
	})
}

// ForGood reports whether an engine has said that it cannot go on.
func ForGood(err error) bool {
	return errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrVersion)
}

// fail ends Run with an error, unless it ends already. The ends of handlers can most
// likely not be written down, so their contexts end. w.mu is held.
func (w *Worker) fail(err error) {
	if w.failed != nil || w.env.Closed.Err() != nil {
		return
	}
	w.failed = err
	for _, t := range w.tasks {
		if t.cancel != nil {
			t.cancel(err)
		}
	}
	w.stop()
}
