package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
)

// begin runs a job that has a slot. w.mu is held.
func (w *Worker) begin(j *dispatch.Job) {
	ctx, cancel := context.WithCancelCause(w.c.Closed)
	r := &run{job: j, cancel: cancel}
	r.attempt.Delivery, r.attempt.Number, r.attempt.Engine, r.attempt.Times = j.Delivery, j.Attempt, w.link.engine, w.c.Times
	if d := j.Delivery.Record.Timeout; d > 0 {
		r.overdue = time.Now().Add(d).Add(w.c.Lease) // the sum of the longest durations would overflow
	}
	w.runs[j] = r
	go w.run(ctx, r)
}

func (w *Worker) run(ctx context.Context, r *run) {
	if !w.mayRun(ctx, r) {
		return
	}
	a := &r.attempt
	rec := &a.Delivery.Record
	if !rec.Expires.IsZero() && !a.Began.Before(rec.Expires) || w.c.Times.IsLeftOut(rec, a.Began) {
		w.expire(r)
		return
	}
	if d := rec.Timeout; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, driver.ErrTimeout)
		defer stop()
	}
	w.c.Counters.lateBy(a.Began.Sub(rec.Due))
	w.c.Counters.Attempts.Add(1)
	if rec.IsOccurrence() {
		if recur.DecodeOccurrence(rec.Occurrence).Pass {
			w.ran(r, nil) // it only makes the next one
			return
		}
		a.Occurrence = recur.Occurred(rec)
	}
	a.Call(ctx, w.c.Handlers[rec.Kind], func(err error) { w.ran(r, err) })
}

// mayRun looks at the lease once more, on the goroutine of the handler, right before
// that. If it is lost the job is dropped; if it is in doubt it waits among those that
// are ready.
func (w *Worker) mayRun(ctx context.Context, r *run) bool {
	now := w.lock()
	defer w.unlockAndAct(now)
	stands := w.stands(now.Local) // it may lose the lease, and end ctx
	lost := errors.Is(context.Cause(ctx), driver.ErrLeaseLost)
	if stands == sound && !lost {
		r.attempt.Began = now.Engine
		return true
	}
	r.cancel(nil)
	delete(w.runs, r.job)
	if lost || w.draining {
		w.dispatcher.Return(r.job)
		return false
	}
	w.dispatcher.Requeue(r.job)
	if r.canceled {
		w.cancel(r.job.Delivery.Ref)
	}
	return false
}

// cutOff ends the contexts of the handlers that run when Grace is over.
func (w *Worker) cutOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) == 0 {
		return
	}
	w.c.Log.Warn("durable: handlers did not return within WithGrace; their contexts end", "handlers", len(w.runs))
	for _, r := range w.runs {
		r.cutOff = true
		r.cancel(errCutOff)
	}
}

var errCutOff = fmt.Errorf("%w: the handler did not return within WithGrace", driver.ErrClosed)

// handlers are the jobs that run, each from its begin until its handler has returned. Worker.mu guards them and the flags of
// each run. They end contexts, and take no job out: that is for the goroutine of its handler.
type handlers map[*dispatch.Job]*run

// endAll ends the contexts of all handlers.
func (h handlers) endAll(cause error) {
	for _, r := range h {
		r.cancel(cause)
	}
}

// isStuck reports whether a handler has not returned though its Timeout has been over for a lease.
func (r *run) isStuck(now time.Time) bool { return !r.overdue.IsZero() && now.After(r.overdue) }

// stuck returns how many handlers are stuck.
func (h handlers) stuck(now time.Time) (n int64) {
	for _, r := range h {
		if r.isStuck(now) {
			n++
		}
	}
	return n
}

// logStuck logs each handler once that is stuck.
func (h handlers) logStuck(c *Config, now time.Time) {
	for j, r := range h {
		if !r.logged && r.isStuck(now) {
			r.logged = true
			rec := &j.Delivery.Record
			c.Log.Warn("durable: a handler has not returned after its Timeout", "kind", rec.Kind, "ref", j.Delivery.Ref,
				"running", (now.Sub(r.overdue) + rec.Timeout + c.Lease).Round(time.Millisecond))
		}
	}
}

// cancel ends the context of a handler, or a job that is claimed and has not begun. w.mu is held.
func (w *Worker) cancel(ref driver.Ref) {
	if j := w.dispatcher.End(ref); j != nil {
		go func() {
			out := driver.DoneWith(j.Delivery, time.Time{})
			out.Canceled = true
			began := w.c.Clock.Time()
			defer func() { w.ends.plain.Put(&end{job: j, out: out, began: began, early: true}) }()
			w.c.Times.Follow(&out, began)
		}()
		return
	}
	if r := w.runs[w.dispatcher.Job(ref)]; r != nil && !r.canceled {
		r.canceled = true
		r.cancel(driver.ErrCanceled)
	}
}

// errKilled is the failure of a job whose last attempt ended with its process.
var errKilled = errors.New("durable: the last attempt did not end: its process died or was cut off")

// bury ends a job that has no attempt left.
func (w *Worker) bury(j *dispatch.Job) {
	out := driver.Completion{Delivery: j.Delivery, End: driver.DeadLetter, Error: errKilled.Error()}
	w.c.Log.Warn("durable: a job is dead; its last attempt did not end", "kind", j.Delivery.Record.Kind,
		"ref", j.Delivery.Ref, "error", out.Error)
	began := w.c.Clock.Time()
	defer func() { w.ends.plain.Put(&end{job: j, out: out, began: began}) }()
	attempt.Note(&out, j.Attempt, began)
	w.c.Times.Follow(&out, began)
}
