package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
)

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

// begin runs a job that has a slot. w.mu is held.
func (w *Worker) begin(j *dispatch.Job) {
	ctx, cancel := context.WithCancelCause(w.c.Closed)
	r := &run{job: j, cancel: cancel}
	r.attempt.Delivery, r.attempt.Number, r.attempt.Engine, r.attempt.Times = j.Delivery, j.Attempt, w.engine, w.c.Times
	if d := j.Delivery.Record.Timeout; d > 0 {
		r.overdue = time.Now().Add(d + w.c.Lease)
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
	now := w.c.now()
	a.Began = now
	if hasExpired(rec, now) {
		w.expire(r)
		return
	}
	if d := rec.Timeout; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, d, driver.ErrTimeout)
		defer stop()
	}
	w.c.Counters.lateBy(now.Sub(rec.Due))
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
	defer w.unlock(now)
	stands := w.stands(now.Local) // it may lose the lease, and end ctx
	lost := errors.Is(context.Cause(ctx), driver.ErrLeaseLost)
	if stands == sound && !lost {
		return true
	}
	r.cancel(nil)
	delete(w.runs, r.job)
	if lost || w.draining {
		w.jobs.Return(r.job)
		return false
	}
	w.jobs.Requeue(r.job)
	if r.canceled {
		w.cancel(r.job.Delivery.Ref)
	}
	return false
}

// ran takes a job whose handler has ended. The user's code that decides what becomes of
// it may fail in any way: the deferred call is made though it ends the goroutine.
func (w *Worker) ran(r *run, err error) {
	a := &r.attempt
	err = a.Returned(err)
	if err != nil && w.isCutOff(r) {
		if !a.Delivery.Record.FreeWhenBegun {
			w.handBack(r)
			return
		}
		err = attempt.Snooze(0) // it takes its key again, or is superseded
	}
	out := a.Undecided(err, w.c.now())
	defer func() { w.ended(r, &out) }()
	if err != nil && w.wasCanceled(r) {
		out = driver.Completion{Delivery: a.Delivery, End: driver.Done}
	}
	if out.End != driver.Done {
		a.Decide(&out, err, w.c.now(), w.c.Backoff)
	}
	w.c.Times.Follow(&out, a.Began)
}

// isCutOff reports whether the attempt of a handler that has returned an error does not count, since it
// was cut off. If the handler has written an end down by itself, that may be committed.
func (w *Worker) isCutOff(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	own, _ := r.attempt.Own()
	return r.cutOff && !r.canceled && own == nil
}

// handBack hands a job back that was cut off.
func (w *Worker) handBack(r *run) {
	now := w.lock()
	defer w.unlock(now)
	r.cancel(nil)
	delete(w.runs, r.job)
	w.jobs.Return(r.job)
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

// isStuck reports whether a handler has not returned though its Timeout has been over for a lease.
func (r *run) isStuck(now time.Time) bool { return !r.overdue.IsZero() && now.After(r.overdue) }

// stuck returns how many handlers are stuck. w.mu is held.
func (w *Worker) stuck(now time.Time) (n int64) {
	for _, r := range w.runs {
		if r.isStuck(now) {
			n++
		}
	}
	return n
}

// logStuck logs each handler once that is stuck. w.mu is held.
func (w *Worker) logStuck(now time.Time) {
	for j, r := range w.runs {
		if !r.logged && r.isStuck(now) {
			r.logged = true
			rec := &j.Delivery.Record
			w.c.Log.Warn("durable: a handler has not returned after its Timeout", "kind", rec.Kind, "ref", j.Delivery.Ref,
				"running", (now.Sub(r.overdue) + rec.Timeout + w.c.Lease).Round(time.Millisecond))
		}
	}
}

// wasCanceled reports whether the error of a handler means that its job was canceled.
func (w *Worker) wasCanceled(r *run) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.early = r.canceled
	return r.canceled
}

// ended passes an end on to be stored, and gives the slot of the job to the next.
func (w *Worker) ended(r *run, out *driver.Completion) {
	if own, _ := r.attempt.Own(); own == nil {
		w.logFailure(r.job, out)
	}
	attempt.Note(out, r.job.Attempt, w.c.now())
	now := w.lock()
	defer w.unlock(now)
	r.cancel(nil)
	delete(w.runs, r.job)
	wanted := w.jobs.Done(r.job, now)
	w.ends.Put(&ended{job: r.job, run: r, out: *out, began: r.attempt.Began, early: r.early})
	if wanted {
		w.ends.Hurry()
	}
}

// logFailure logs how an attempt has ended, if it has failed.
func (w *Worker) logFailure(j *dispatch.Job, out *driver.Completion) {
	if out.End == driver.Done || out.Uncounted {
		return
	}
	short, _, _ := strings.Cut(out.Error, "\n\n") // without the stack of a panic
	w.c.Log.Warn("durable: an attempt failed", "kind", j.Delivery.Record.Kind, "ref", j.Delivery.Ref,
		"attempt", j.Attempt, "dead", out.End == driver.DeadLetter, "error", short)
}

// cancel ends the context of a handler, or a job that is claimed and has not begun. w.mu is held.
func (w *Worker) cancel(ref driver.Ref) {
	if j := w.jobs.End(ref); j != nil {
		go func() {
			out := driver.Completion{Delivery: j.Delivery, End: driver.Done}
			began := w.c.now()
			defer func() { w.ends.Put(&ended{job: j, out: out, began: began, early: true}) }()
			w.c.Times.Follow(&out, began)
		}()
		return
	}
	if r := w.runs[w.jobs.Job(ref)]; r != nil && !r.canceled {
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
	began := w.c.now()
	defer func() { w.ends.Put(&ended{job: j, out: out, began: began}) }()
	attempt.Note(&out, j.Attempt, began)
	w.c.Times.Follow(&out, began)
}

// hasExpired reports whether no attempt may begin any more.
func hasExpired(r *driver.Record, now time.Time) bool {
	return !r.Expires.IsZero() && !now.Before(r.Expires)
}

// expire ends a job that has expired, in the slot of its handler.
func (w *Worker) expire(r *run) {
	rec := &r.attempt.Delivery.Record
	out := driver.Completion{Delivery: r.attempt.Delivery, End: driver.DeadLetter, Uncounted: true, Error: driver.ErrExpired.Error()}
	if rec.IsOccurrence() { // that is what RunNone asks for
		out.End = driver.Done
	}
	w.c.Log.Warn("durable: a job has expired", "kind", rec.Kind, "ref", r.attempt.Delivery.Ref, "dropped", out.End == driver.Done)
	defer func() { w.ended(r, &out) }()
	w.c.Times.Follow(&out, r.attempt.Began)
}
