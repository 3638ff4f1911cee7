package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// finisher writes ends down. It has no state of its own, and no lock: the token of an end is in the
// handle, which one call has at a time.
//
// An end replaces the status of its claim in one commit with all that follows from it. The
// condition is the sequence of that status, so an end is written once, and only while nobody has
// taken over. A plain job is one message, and the ends of a call share a batch.
//
// It never ends a claim of another worker, and never forgets a claim whose end may not be stored.
type finisher struct {
	*heart
	notices    *notices
	reconciler *reconciler
}

// finishKeyed is finish, once more for jobs that have left their keys: a newer job of the key may
// be stored or begin between the reading of the key and the commit. Other conflicts are left to the
// caller, who calls Finish again.
func (fn *finisher) finishKeyed(ctx context.Context, p *part, outs []driver.Completion) []error {
	errs := fn.finish(ctx, p, outs)
	for range claimTries {
		var again []int
		for i, err := range errs {
			if outs[i].Delivery.Record.FreeWhenBegun && errors.Is(err, stream.ErrConflict) {
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

// finish writes ends down. An end whose answer was lost is recognized by its token, in a later
// call, too: a handle keeps the token of its first try, so that the second one finds its own end
// and does not take it for another worker's.
//
// The message of a job is acknowledged after its end is stored, and never before: until then any
// worker that is handed the message must find the claim or the end.
//
// The worker forgets a claim when its end is stored, or when another has taken over. After any
// other error it may still be in the stream, and stays known, so that the comparison of claims does
// not free it.
func (fn *finisher) finish(ctx context.Context, p *part, outs []driver.Completion) []error {
	token := rand.Text()
	for _, o := range outs {
		hd := o.Delivery.Claim.(*handle)
		hd.ending = cmp.Or(hd.ending, token)
	}
	refreshed := p.refresh(ctx, outs)
	all, errs := fn.endAll(ctx, p, outs)
	var groups []stream.Group
	var of []int // which end a group is of
	for i := range errs {
		if errs[i] = cmp.Or(refreshed[i], errs[i]); errs[i] == nil {
			groups, of = append(groups, statusLast(all[i])), append(of, i)
		}
	}
	ended := func(k int) *driver.Delivery { return outs[of[k]].Delivery }
	results := fn.commitEnds(ctx, p, groups, ended)
	fn.notices.freed(p.quotas, groups, results, func(k int) string { return ended(k).Record.Lane })
	for k, res := range results {
		hd := ended(k).Claim.(*handle)
		if res.Err != nil {
			res.Err = fn.checkEnd(ctx, p, hd, res.Err)
		}
		if errs[of[k]] = res.Err; res.Err == nil {
			hd.ack()
		}
	}
	for i, err := range errs {
		if err == nil || errors.Is(err, driver.ErrLeaseLost) {
			fn.reconciler.claims[p.number].end(outs[i].Delivery.Claim.(*handle).number)
		}
	}
	return errs
}

// commitEnds is Commit, and in a full store Commit of one end after the other, each of which makes
// room for the next. A batch that meets the limit in its middle is stored in part by a server that
// is alone (admission.go), so no two ends share one then. That is slow, but only until there is
// room again.
func (fn *finisher) commitEnds(ctx context.Context, p *part, ends []stream.Group, of func(int) *driver.Delivery) []stream.Result {
	if !p.admission.isFull() {
		return p.Commit(ctx, ends)
	}
	results := make([]stream.Result, len(ends))
	for i := range ends {
		results[i] = p.Commit(ctx, ends[i:i+1])[0]
		if results[i].Err == nil {
			of(i).Claim.(*handle).leaveFull(ctx)
		}
	}
	return results
}

// endAll is end of each. The end of a job with a key reads the key, and that of an occurrence also
// its schedule: one after the other, those of a thousand jobs would take as long as a thousand
// questions. A plain job reads nothing, so it gets no goroutine.
func (fn *finisher) endAll(ctx context.Context, p *part, outs []driver.Completion) ([]stream.Group, []error) {
	all, errs := make([]stream.Group, len(outs)), make([]error, len(outs))
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

// end returns all that is written with an end, and that is a sentence: the status says so, a dead
// job is kept, the forward goes, the key is left or has the next occurrence, the schedule moves on,
// the permits are free, and the next occurrence waits. An attempt that is to be retried ends its
// version instead, as a move does, unless a newer job of its key has superseded it: then it ends
// for good.
//
// It writes nothing. Each condition is on what was read here; checkEnd looks into a commit that is
// refused.
func (fn *finisher) end(ctx context.Context, p *part, o *driver.Completion) (stream.Group, error) {
	hd := o.Delivery.Claim.(*handle)
	r := o.Delivery.Record // a copy: another try needs the record as it was
	ending := o.Ending(fn.c.Name, p.Now())
	// The claim of a job whose last attempt never ended has a number above MaxAttempts: it is there
	// for the burial, and no attempt.
	r.Attempt, r.Crashes, r.LastError, r.Errors = min(hd.status.attempt, r.MaxAttempts), 0, o.Error, o.Errors
	if o.Uncounted {
		r.Attempt = hd.status.attempt - 1
	}
	var key, schedule stream.Group
	var superseded bool
	var err error
	if o.End == driver.Retry {
		r.Retried(o.At)
		if r.FreeWhenBegun {
			if key, superseded, err = p.retakeKey(ctx, &r); err != nil {
				return nil, err
			}
		}
		if !superseded {
			return append(p.records.moveGroup(&r, hd.data, hd.at, hd.status, hd.ending, o.At, p.Now()), key...), nil
		}
	}
	// The rollup is for a store that is filling up: there the status of the claim goes at once, and
	// not with its bucket. Elsewhere the removal of the bucket takes both, in one request for many
	// jobs.
	end, ttl := status{fate: done, token: hd.ending, attempt: hd.status.attempt}, r.Retain
	if o.End == driver.DeadLetter {
		end.fate, ttl = dead, max(ttl, fn.c.Retention)
	}
	g := stream.Group{{Subject: p.statusSubject(hd.at), Data: end.encode(), Last: stream.Seq(hd.status.seq), Rollup: p.admission.pressed()}}
	if ending != nil {
		r.End(ending)
	}
	if ending != nil || end.fate == dead {
		g = append(g, p.records.endedWrite(&r, hd.data, ttl))
	}
	if hd.at.version > 0 {
		g = append(g, grave(p.forward(r.ID)))
	}
	if !superseded {
		if key, err = p.leaveKey(ctx, &r, o.Next); err != nil {
			return nil, err
		}
	}
	if schedule, err = p.schedules.endSchedule(ctx, o); err != nil {
		return nil, err
	}
	g = append(append(append(g, p.leave(hd.status)...), key...), schedule...)
	if o.Next == nil || len(key) == 0 { // another job has the key
		return g, nil
	}
	// A closed bucket refuses the occurrence, and so the whole end. Then checkEnd reads the
	// watermark, and the caller's next try stores it in a bucket that is open.
	if bucket := p.openFor(o.Next.Due); bucket != p.nearOf(o.Next.Due) {
		return append(g, p.records.elsewhere(o.Next, bucket, true)...), nil
	}
	return append(g, p.records.recordWrite(o.Next, nil, p.nearOf(o.Next.Due), p.Now(), true)), nil
}

// checkEnd finds out what an error of an end means. Only the status that is stored decides: an
// answer may be lost though the end was stored, and a conflict may be about the key though the
// claim stands. So it is read, whatever the error was. No status means the same as that of another
// worker: somebody has taken the claim over, and its end is gone with the bucket.
//
// A claim that stands gets the sequence that it has now, for the next try. checkEnd tries nothing
// itself.
func (fn *finisher) checkEnd(ctx context.Context, p *part, hd *handle, err error) error {
	s, readErr := p.status(ctx, hd.at)
	switch {
	case readErr != nil:
		return err
	case s.token == hd.ending:
		return nil // the answer was lost
	case s.fate == claimed && s.token == hd.status.token:
		hd.status.seq = s.seq
		if errors.Is(err, stream.ErrConflict) { // about the key, or a bucket that is closed
			return cmp.Or(p.readWatermark(ctx), err)
		}
		return err
	default:
		return driver.ErrLeaseLost
	}
}
