package worker

import (
	"context"
	"errors"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
)

// The end of an attempt waits for others for endsLinger, or until endsEnough of them wait, unless the
// engine says what suits it. The price: if the process is killed meanwhile, a job that has ended
// runs again.
const (
	endsLinger = 5 * time.Millisecond
	endsEnough = 16
)

// ended is a job whose handler has returned, or that has ended without one.
type ended struct {
	job   *dispatch.Job
	run   *run // nil: no handler was called
	out   driver.Completion
	began time.Time // by the engine's clock
	tries int
	early bool // by CancelRunning
}

// own returns what the handler has written down by itself, and whether it has returned nil.
func (e *ended) own() (out *driver.Completion, fine bool) {
	if e.run == nil {
		return nil, false
	}
	return e.run.attempt.Own()
}

// finish writes ends down. One that fails is tried again until it succeeds, or the lease is
// lost: an end that is known here must not be forgotten.
func (w *Worker) finish(batch []*ended) {
	outs := make([]driver.Completion, len(batch))
	for i, e := range batch {
		outs[i] = e.out
	}
	ctx, cancel := context.WithTimeout(w.c.Requests, max(w.c.Lease, 5*time.Second))
	defer cancel()
	errs := w.engine.Finish(ctx, outs)
	now := w.lock()
	defer w.unlock(now)
	for i, e := range batch {
		own, _ := e.own()
		switch err := errs[i]; {
		case err == nil:
			if own != nil {
				w.logFailure(e.job, &e.out)
			}
			w.c.Counters.tally(&e.out, e.early)
			w.jobs.Forget(e.job, now)
		case errors.Is(err, driver.ErrChanged):
			w.followChanged(e)
		case errors.Is(err, driver.ErrLeaseLost):
			w.tooLate(e)
			w.jobs.Forget(e.job, now)
		case errors.Is(err, driver.ErrClosed) && w.endsForGood(err):
		default:
			w.tryAgain(e, err)
		}
	}
}

// endsForGood reports whether Run ends with an error, so that drain waits for no more ends. Its
// context may have ended before the engine was closed. w.mu is held.
func (w *Worker) endsForGood(err error) bool {
	w.fail(err)
	w.room.Broadcast()
	return w.failed != nil
}

// tooLate is called of an end for which there is nothing left. If the handler has written its end
// down, and has returned nil, that was committed. If it has failed its commit may have been done
// all the same, its answer lost.
func (w *Worker) tooLate(e *ended) {
	switch own, fine := e.own(); {
	case own == nil:
		w.c.Counters.LeaseLost.Add(1)
		w.c.Log.Warn("durable: another worker has the job; the end of the attempt is not stored", "ref", e.out.Delivery.Ref)
	case fine:
		w.c.Counters.tally(own, false)
	default:
		w.c.Counters.LeaseLost.Add(1)
		w.c.Log.Warn("durable: an attempt was completed in its handler's transaction, or another worker has the job",
			"ref", e.out.Delivery.Ref, "error", e.out.Error)
	}
}

// tryAgain writes an end again that could not be written down. w.mu is held.
func (w *Worker) tryAgain(e *ended, err error) {
	e.tries++
	pause := min(20*time.Millisecond<<min(e.tries, 10), 5*time.Second)
	if w.unwritten.Now() {
		w.c.Log.Warn("durable: cannot store the end of an attempt; trying again", "ref", e.out.Delivery.Ref, "error", err, "pause", pause)
	}
	w.after(pause, func() { w.ends.Put(e) })
}

// followChanged writes an end again after its schedule has changed.
func (w *Worker) followChanged(e *ended) {
	w.background.Go(func() {
		defer w.ends.Put(e)
		ctx, cancel := context.WithTimeout(context.Background(), w.c.Lease)
		defer cancel()
		if err := w.c.Times.FollowAgain(ctx, &e.out, e.began); err != nil {
			w.c.Log.Warn("durable: cannot read a schedule; trying again", "name", e.out.Delivery.Record.Schedule, "error", err)
			sleep(ctx, 200*time.Millisecond)
		}
	})
}

func (w *Worker) release(held []*driver.Delivery, after time.Duration) error {
	ctx, cancel := context.WithTimeout(w.c.Requests, 5*time.Second)
	defer cancel()
	err := w.engine.Release(ctx, held, after)
	if err != nil {
		w.c.Log.Warn("durable: cannot hand back jobs; others get them after the lease", "error", err)
	}
	return err
}

// giveBack hands back what was dropped, which may be claimed, until the engine has taken
// it or Run ends: nobody else gets what a worker has claimed that lives.
func (w *Worker) giveBack(held []*driver.Delivery) {
	if len(held) == 0 {
		return
	}
	w.background.Go(func() {
		for pause := 100 * time.Millisecond; w.release(held, 0) != nil; pause = min(2*pause, 5*time.Second) {
			if sleep(w.ending, pause); w.ending.Err() != nil {
				return
			}
		}
	})
}
