package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// finisher writes ends down. It has no state of its own. An end replaces the status of its claim in one commit with all
// that follows from it, so that it is written once, and only while nobody has taken over.
type finisher struct {
	*heart
	notices    *notices
	reconciler *reconciler
}

// finishKeyed is finish. An end of a job that has left its key may meet a newer job of the key, which is stored
// or begins: then it is made once more.
func (fn *finisher) finishKeyed(ctx context.Context, p *part, outs []driver.Completion) []error {
	errs := fn.finish(ctx, p, outs)
	for range claimTries {
		var again []int
		for i, err := range errs {
			if outs[i].Delivery.Record.FreeWhenBegun && errors.Is(err, errConflict) {
				again = append(again, i)
			}
		}
		if len(again) == 0 {
			break
		}
		for k, err := range fn.finish(ctx, p, pick(outs, again)) {
			errs[again[k]] = err
		}
	}
	return errs
}

// finish writes ends down. Each replaces the status of the claim, so that it can be
// written only as long as nobody has taken over. An end whose answer was lost is recognized
// by its token, in a later call, too.
func (fn *finisher) finish(ctx context.Context, p *part, outs []driver.Completion) []error {
	token := rand.Text()
	for _, o := range outs {
		hd := o.Delivery.Claim.(*handle)
		hd.ending = cmp.Or(hd.ending, token)
	}
	refreshed := p.refresh(ctx, outs)
	all, errs := fn.endAll(ctx, p, outs)
	for i, err := range refreshed {
		errs[i] = cmp.Or(err, errs[i])
	}
	var groups []group
	var of []int
	for i, err := range errs {
		if err == nil {
			groups, of = append(groups, statusLast(all[i])), append(of, i)
		} else if errors.Is(err, driver.ErrLeaseLost) {
			fn.reconciler.claims[p.number].end(outs[i].Delivery.Claim.(*handle).number)
		}
	}
	results := fn.commitEnds(ctx, p, groups, func(k int) *handle { return outs[of[k]].Delivery.Claim.(*handle) })
	fn.notices.freed(p.quotas, groups, results, func(k int) string { return outs[of[k]].Delivery.Record.Lane })
	for k, res := range results {
		i, err := of[k], res.err
		if err != nil {
			err = fn.checkEnd(ctx, p, outs[i].Delivery.Claim.(*handle), err)
		}
		hd := outs[i].Delivery.Claim.(*handle)
		if errs[i] = err; err == nil {
			hd.ack()
		}
		if err == nil || errors.Is(err, driver.ErrLeaseLost) {
			fn.reconciler.claims[p.number].end(hd.number)
		}
	}
	return errs
}

// commitEnds is commit; in a full store of one end after the other, each of which makes room for the next.
func (fn *finisher) commitEnds(ctx context.Context, p *part, ends []group, of func(int) *handle) []result {
	if !p.admission.isFull() {
		return p.commit(ctx, ends)
	}
	results := make([]result, len(ends))
	for i := range ends {
		results[i] = p.commit(ctx, ends[i:i+1])[0]
		if results[i].err == nil {
			of(i).leaveFull(ctx)
		}
	}
	return results
}

// endAll is end of each. That of a job with a key reads, and that of an occurrence twice:
// one after the other a thousand of them would take as long as a thousand questions.
func (fn *finisher) endAll(ctx context.Context, p *part, outs []driver.Completion) ([]group, []error) {
	all, errs := make([]group, len(outs)), make([]error, len(outs))
	var reading []int
	for i := range outs {
		if outs[i].Delivery.Record.Key != "" {
			reading = append(reading, i)
			continue
		}
		all[i], errs[i] = fn.end(ctx, p, &outs[i])
	}
	inParallel(reading, func(i int) { all[i], errs[i] = fn.end(ctx, p, &outs[i]) })
	return all, errs
}

// end returns all that is written with an end, and that is a sentence: the status says so, a dead job is kept, the forward
// goes, the key is left or has the next occurrence, the schedule moves on, the permits are free, and the next occurrence
// waits. An attempt that is to be retried ends its version instead, as a move does. Each condition is on what was read
// here; a commit that is refused is looked into by checkEnd.
func (fn *finisher) end(ctx context.Context, p *part, o *driver.Completion) (group, error) {
	hd := o.Delivery.Claim.(*handle)
	r := o.Delivery.Record
	ending := o.Ending(fn.c.Name, p.now())
	r.Attempt, r.Crashes, r.LastError, r.Errors = min(hd.status.attempt, r.MaxAttempts), 0, o.Error, o.Errors
	if o.Uncounted {
		r.Attempt = hd.status.attempt - 1
	}
	var key group
	superseded := false
	if o.End == driver.Retry {
		r.Retried(o.At)
		if r.FreeWhenBegun {
			var err error
			if key, superseded, err = p.retakeKey(ctx, &r); err != nil {
				return nil, err
			}
		}
		if !superseded {
			return append(p.records.moveGroup(&r, hd.data, hd.at, hd.status, hd.ending, o.At, p.now()), key...), nil
		}
	}
	end := status{fate: done, token: hd.ending, attempt: hd.status.attempt}
	if o.End == driver.DeadLetter {
		end.fate = dead
	}
	g := group{{subject: p.fateSubject(hd.at), data: end.encode(), last: seq(hd.status.seq), rollup: p.admission.pressed()}}
	switch {
	case ending != nil:
		kept, ttl := r, r.Retain
		if kept.End(ending); ending.State == driver.Dead {
			ttl = max(ttl, fn.c.Retention)
		}
		g = append(g, p.records.endedWrite(&kept, hd.data, ttl))
	case o.End == driver.DeadLetter:
		g = append(g, p.records.endedWrite(&r, hd.data, fn.c.Retention))
	}
	if hd.at.version > 0 {
		g = append(g, grave(p.forward(r.ID)))
	}
	if !superseded {
		var err error
		if key, err = p.leaveKey(ctx, &r, o.Next); err != nil {
			return nil, err
		}
	}
	schedule, err := p.schedules.endSchedule(ctx, o)
	if err != nil {
		return nil, err
	}
	g = append(append(append(g, p.leave(hd.status)...), key...), schedule...)
	if o.Next == nil || len(key) == 0 {
		return g, nil
	}
	if bucket := p.openFor(o.Next.Due); bucket != p.nearOf(o.Next.Due) {
		return append(g, p.records.elsewhere(o.Next, bucket, true)...), nil
	}
	return append(g, p.records.recordWrite(o.Next, nil, p.nearOf(o.Next.Due), p.now(), true)), nil
}

// checkEnd finds out what an error of an end means.
func (fn *finisher) checkEnd(ctx context.Context, p *part, hd *handle, err error) error {
	s, readErr := p.status(ctx, hd.at)
	switch {
	case readErr != nil:
		return err
	case s.token == hd.ending:
		return nil // the answer was lost
	case s.fate == claimed && s.token == hd.status.token:
		hd.status.seq = s.seq
		if errors.Is(err, errConflict) { // about the key, or a bucket that is closed
			return cmp.Or(p.readWatermark(ctx), err)
		}
		return err
	default:
		return driver.ErrLeaseLost
	}
}
