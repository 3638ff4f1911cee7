package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// worker is what the Queue has of an engine to fetch, claim and end jobs. It joins the stories of
// which each is a type of its own, and decides nothing. It has no lock. The Queue calls it from
// several goroutines, and never passes one Delivery to two calls at a time, so that a handle needs
// no lock either.
//
// Each call serves all partitions at once, each in commits of its own. A partition that fails costs
// Claim and Finish the jobs of that one only. A heartbeat counts when it is stored in all.
type worker struct {
	*heart
	budgets
	e          *engine
	reconciler *reconciler
	releases   *releases
	claimer    *claimer
	finisher   *finisher
}

// newWorker returns a worker of which nothing is stored yet. The types that it joins share one
// heart, which knows its name.
func newWorker(e *engine, c driver.WorkConfig) *worker {
	n := len(e.parts)
	ht := &heart{c: c, heartbeats: make([]stream.Message, n), backs: make([]int64, n), life: newLife(c)}
	rc, rl := newReconciler(ht, e.parts, e.notices), &releases{heart: ht, notices: e.notices}
	return &worker{
		heart: ht, budgets: newBudgets(), e: e, reconciler: rc, releases: rl,
		claimer: &claimer{&planner{ht, e.notices}, e.flowControl, rl, rc}, finisher: &finisher{ht, e.notices, rc},
	}
}

// Work returns a worker once its first heartbeat is stored in all partitions. While nobody answers
// it tries again, until ctx ends: a server that starts, or elects a leader, is no reason for Run to
// fail. A refusal or a denial is.
func (e *engine) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	if !validName(c.Name) || len(c.Name) > driver.MaxWorker {
		return nil, fmt.Errorf("%w: the worker's name %.300q is not letters, digits, - and _, of at most %d", driver.ErrInvalid, c.Name, driver.MaxWorker)
	}
	w := newWorker(e, c)
	for { // a claim without a heartbeat would be taken over at once
		err := w.Heartbeat(ctx)
		if err == nil || errors.Is(err, driver.ErrLeaseLost) { // between two tries: nothing is claimed yet
			return w, nil
		}
		if ctx.Err() != nil || !isUnanswered(err) {
			return nil, err
		}
		e.parts[0].Wait(ctx, 100*time.Millisecond)
	}
}

// isUnanswered reports whether there was no answer, so that it is worth asking again. A denial is
// no such error, also where it leaves open whether a write is stored: the next one would be denied,
// too.
func isUnanswered(err error) bool {
	return (errors.Is(err, driver.ErrUncertain) || errors.Is(err, context.DeadlineExceeded)) && !stream.IsDenial(err)
}

// Heartbeat writes the message anew, and reads when the server stored it: if that is
// longer than a lease after the heartbeat before, the lease had ended in between. A
// server whose clock is set forward by as much has the same effect, and costs a lease. It
// says so when the lease is renewed in all partitions: from then on jobs of all may
// begin.
//
// In each partition it costs a write, a read as of that write, the stream's description for the
// clock, and a read of the requests to cancel; in the first one also a read of the limits and
// pauses. The last two may fail, and are done with the next heartbeat: the lease is renewed
// already. They have a timeout of their own, or a slow one would cost the lease.
//
// It does not say which jobs the worker has. So a stream that went back is noticed here, and the
// claims are compared beside, by the reconciler.
func (w *worker) Heartbeat(ctx context.Context) error {
	err := w.each(func(p *part) error {
		written, err := w.writeHeartbeat(ctx, p.buckets)
		if err != nil {
			return err
		}
		now, err := p.LastSince(ctx, written, written.Subject, false)
		if err != nil {
			return err
		}
		if err := p.Clock.Sync(ctx); err != nil {
			return err
		}
		w.noteHeartbeat(p.buckets, now)
		w.reconciler.reconcile(p)
		asking, cancel := context.WithTimeout(ctx, stream.AnswerTimeout)
		defer cancel()
		_ = w.notifyCanceled(asking, p) // or the next heartbeat does: the lease is renewed
		if p == w.e.parts[0] {
			_, _ = w.e.flowControlSince(asking, p.buckets, written)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		w.over = false
		return driver.ErrLeaseLost
	}
	return nil
}

// Close takes leave: without a heartbeat others take over at once what is still claimed. Before
// that the comparisons end, which write heartbeats, and the deferred jobs are requested, so that
// other workers are handed them now.
func (w *worker) Close(ctx context.Context) error {
	w.reconciler.compareNoMore()
	w.releases.recall() // nobody would when the limits or pauses change
	return w.each(func(p *part) error { return p.PurgeAll(ctx, p.workerSubject(w.c.Name)) })
}

// each calls f for all partitions at once, and returns the errors of all. A queue of one partition
// starts no goroutine.
func (w *worker) each(f func(p *part) error) error {
	errs := make([]error, len(w.e.parts))
	spread(w.e, len(errs), func(i int) *part { return w.e.parts[i] }, func(p *part, _ []int) { errs[p.number] = f(p) })
	return errors.Join(errs...)
}

// Claim claims the jobs of each partition in commits of their own, all at once: a slow partition
// delays only itself.
func (w *worker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	results := make([]driver.ClaimResult, len(held))
	spread(w.e, len(held), func(i int) *part { return w.e.parts[held[i].Claim.(*handle).p.number] }, func(p *part, indices []int) {
		for k, v := range w.claimer.claim(ctx, p, pick(held, indices)) {
			results[indices[k]] = v
		}
	})
	return results
}

// Finish writes the ends of each partition in commits of their own, as Claim does.
func (w *worker) Finish(ctx context.Context, outs []driver.Completion) []error {
	errs := make([]error, len(outs))
	spread(w.e, len(outs), func(i int) *part { return w.e.parts[outs[i].Delivery.Claim.(*handle).p.number] }, func(p *part, indices []int) {
		for k, err := range w.finisher.finishKeyed(ctx, p, pick(outs, indices)) {
			errs[indices[k]] = err
		}
	})
	return errs
}

// Release gives back. A claim is replaced by a status that anyone may replace.
//
// The status comes first, and then the consumer learns that it may hand the job out: the other way
// round the next worker would find a claim of one that lives, and leave the job for seconds. If the
// status cannot be written the job is handed out all the same, and its next claim finds out. The
// claims of a partition are forgotten only if all of them are free: of the others nobody knows here
// which are, and the Queue calls again.
func (w *worker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	errs := make([]error, len(w.e.parts))
	spread(w.e, len(held), func(i int) *part { return w.e.parts[held[i].Claim.(*handle).p.number] }, func(p *part, indices []int) {
		all := make([]*handle, len(indices))
		for k, h := range pick(held, indices) {
			all[k] = h.Claim.(*handle)
		}
		err := w.releases.freeAll(ctx, p, all)
		for _, hd := range all {
			if err == nil {
				w.reconciler.claims[p.number].end(hd.number)
			}
			hd.nak(after)
		}
		errs[p.number] = err
		if after > 0 {
			w.releases.keepDeferred(all, after)
		}
	})
	return errors.Join(errs...)
}

// notifyCanceled notifies the worker of the requests to cancel its claims. A request stays until
// its claim has ended, so one may be reported several times, and one whose notice was lost is found
// with the next heartbeat.
func (w *worker) notifyCanceled(ctx context.Context, p *part) error {
	if w.c.Notify == nil {
		return nil
	}
	refs, err := p.changes.canceledOf(ctx, w.c.Name)
	if len(refs) > 0 {
		w.c.Notify(driver.Notice{Canceled: refs})
	}
	return err
}

// notifyAllCanceled does so of all partitions; or the next heartbeat does.
func (w *worker) notifyAllCanceled(ctx context.Context) {
	_ = w.each(func(p *part) error { return w.notifyCanceled(ctx, p) })
}

// receive passes on what another process has published. It is a hint, and may be lost, doubled or
// forged by anybody who may publish there: so it says only that something is to be read, or that a
// permit may be free, which the commit of the claim checks. A notice that it does not know, or
// cannot read, is left alone: a newer build may have sent it.
func (w *worker) receive(ctx context.Context, what string, data []byte) {
	switch what {
	case "limits":
		if _, err := w.e.FlowControl(ctx); err == nil {
			w.c.Notify(driver.Notice{FlowControl: true})
		}
	case "freed":
		var freed wireFreed
		if json.Unmarshal(data, &freed) == nil && freed.Part >= 0 && freed.Part < len(w.e.parts) {
			w.e.parts[freed.Part].quotas.learnFreed(freed.Permits)
			w.c.Notify(driver.Notice{Freed: freed.Limits})
		}
	case "cancel." + w.c.Name:
		w.notifyAllCanceled(ctx)
	}
}
