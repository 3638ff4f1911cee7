package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// worker is what the Queue has of an engine to fetch, claim and end jobs. It joins the stories of
// which each is a type of its own, and decides nothing.
type worker struct {
	*heart
	budgets
	e          *engine
	reconciler *reconciler
	releases   *releases
	claimer    *claimer
	finisher   *finisher
}

func newWorker(e *engine, c driver.WorkConfig) *worker {
	n := len(e.parts)
	ht := &heart{c: c, heartbeats: make([]stream.Message, n), backs: make([]int64, n), life: newLife(c)}
	rc, rl := newReconciler(ht, e.parts, e.notices), &releases{heart: ht, notices: e.notices}
	return &worker{
		heart: ht, budgets: newBudgets(), e: e, reconciler: rc, releases: rl,
		claimer: &claimer{&planner{ht, e.notices}, e.flowControl, rl, rc}, finisher: &finisher{ht, e.notices, rc},
	}
}

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

// isUnanswered reports whether there was no answer, so that it is worth asking again.
func isUnanswered(err error) bool {
	return (errors.Is(err, driver.ErrUncertain) || errors.Is(err, context.DeadlineExceeded)) && !stream.IsDenial(err)
}

// Heartbeat writes the message anew, and reads when the server stored it: if that is
// longer than a lease after the heartbeat before, the lease had ended in between. A
// server whose clock is set forward by as much has the same effect, and costs a lease. It
// says so when the lease is renewed in all partitions: from then on jobs of all may
// begin.
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

func (w *worker) Close(ctx context.Context) error {
	w.reconciler.compareNoMore()
	w.releases.recall() // nobody would when the limits or pauses change
	return w.each(func(p *part) error { return p.Purge(ctx, p.workerSubject(w.c.Name), 0) })
}

// each calls f for all partitions at once.
func (w *worker) each(f func(p *part) error) error {
	errs := make([]error, len(w.e.parts))
	var wg sync.WaitGroup
	for i, p := range w.e.parts[1:] {
		wg.Go(func() { errs[i+1] = f(p) })
	}
	errs[0] = f(w.e.parts[0])
	wg.Wait()
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
func (w *worker) Release(ctx context.Context, held []*driver.Delivery, after time.Duration) error {
	errs := make([]error, len(w.e.parts))
	spread(w.e, len(held), func(i int) *part { return w.e.parts[held[i].Claim.(*handle).p.number] }, func(p *part, indices []int) {
		all := make([]*handle, len(indices))
		for k, h := range pick(held, indices) {
			all[k] = h.Claim.(*handle)
		}
		if errs[p.number] = w.releases.freeAll(ctx, p, all); errs[p.number] == nil {
			for _, hd := range all {
				w.reconciler.claims[p.number].end(hd.number)
			}
		}
		for _, hd := range all {
			hd.nak(after)
		}
		if after > 0 {
			w.releases.keepDeferred(all, after)
		}
	})
	return errors.Join(errs...)
}

// notifyCanceled notifies the worker of the requests to cancel its claims.
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

// receive passes on what another process has published.
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
