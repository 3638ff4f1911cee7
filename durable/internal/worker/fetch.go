package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// fetch calls the engine's Fetch, which calls accept, until ctx ends, and begins anew when that
// fails.
func (w *Worker) fetch(ctx context.Context) {
	var said Rarely
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		began := time.Now()
		err := w.link.engine.Fetch(ctx, func(held []*driver.Delivery) { w.accept(ctx, held) })
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
			logNotFetched(&w.c, err, pause)
		}
		sleep(ctx, pause)
	}
}

// accept takes the jobs that the engine hands out, and blocks while the worker is full.
func (w *Worker) accept(ctx context.Context, held []*driver.Delivery) {
	defer context.AfterFunc(ctx, w.wake)()
	var back []*driver.Delivery
	for _, h := range held {
		if !w.admit(ctx, h) {
			back = append(back, h)
		}
	}
	if len(back) == 0 {
		return
	}
	// Not all after one time: where workers poll in step, one that leaves a job to others
	// would be handed it each time.
	after := w.c.Lease/4 + rand.N(w.c.Lease/2)
	if ctx.Err() != nil {
		after = 0 // this worker is leaving, so others get them. drain has just handed back some of these.
	}
	w.link.release(back, after)
}

// wake ends all waits for changed. It takes the lock, so that it cannot come
// between another's look at its condition and its wait.
func (w *Worker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changed.Broadcast()
}

// admit takes one job, or returns false if it is better off elsewhere: nobody here can
// run it, which the engine should have known, or the lease is not renewed, so that others
// must get what is running here.
func (w *Worker) admit(ctx context.Context, h *driver.Delivery) bool {
	w.mu.Lock()
	for w.dispatcher.Full() && ctx.Err() == nil {
		w.blocked++
		w.changed.Wait()
		w.blocked--
	}
	now := w.c.moment()
	defer w.unlockAndAct(now)
	switch {
	case !w.silent && w.dispatcher.Has(h):
		return true
	case ctx.Err() != nil || w.silent || h.Record.IsOccurrence() && !w.unreadable.mayFollow(&w.c, &h.Record):
		return false
	}
	return w.dispatcher.Add(h, now)
}

// unreadable are the schedules whose specs cannot be read here, by name: each was logged once. Worker.mu guards them.
type unreadable map[string]bool

// mayFollow reports whether an occurrence may end here, for all that is known of its schedule.
func (u unreadable) mayFollow(c *Config, r *driver.Record) bool {
	if c.Times.MayFollow(r.Occurrence) {
		return true
	}
	if !u[r.Schedule] {
		u[r.Schedule] = true
		c.Log.Warn("durable: cannot read the spec of a schedule; other workers run its jobs", "name", r.Schedule)
	}
	return false
}
