package jetstream

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// limitedAtOnce returns how many claims under as many limits are one commit. Those that share a
// counter are one group, which is never divided. Each has a status and a key, and of every limit a
// permit, one that it gives back, and perhaps the counter of its lane.
func limitedAtOnce(limits int) int { return max(1, stream.MaxWrites/(2+3*limits)) }

// claimer is the one way of a claim: it surveys what is known of the jobs, plans permits
// and tokens, commits, and looks whether the bucket was open. It has no state of its own. A
// job is granted only after its status was written here, or was found to be that of this
// very handle; so two workers never have one job while both their leases last.
//
// It holds no lock while it asks a server, except the one that keeps the claims under
// limits of a process apart. Other processes are kept apart by the conditions of the
// commits alone.
type claimer struct {
	*planner
	flow       *flowControl
	releases   *releases
	reconciler *reconciler
}

// claim claims jobs: those that limits cover first. It never fails: a job of which nothing
// certain is known is RetryLater, and its handle remembers what is unsure.
//
// Jobs that were handed out just now, without limits or keys, cost one commit, one read for
// each of their buckets, and one of the limits, up to MaxWrites of them. All else costs
// reads before that: of statuses, of quotas, of keys.
func (cl *claimer) claim(ctx context.Context, p *part, held []*driver.Delivery) []driver.ClaimResult {
	if p.CheckDisk() != nil { // nothing can be claimed before there is room
		return slices.Repeat([]driver.ClaimResult{{Status: driver.RetryLater, After: time.Second}}, len(held))
	}
	token, flow, now := cryptorand.Text(), cl.flow.lastFlowControl(), p.Now()
	all := make([]*claimRequest, len(held))
	var limited, free []*claimRequest
	for i, h := range held {
		if all[i] = newClaimRequest(flow, h, now); len(all[i].limits) > 0 {
			limited = append(limited, all[i])
		} else {
			free = append(free, all[i])
		}
	}
	cl.claimLimited(ctx, p, limited, token)
	cl.claimAll(ctx, p, free, token)
	results := make([]driver.ClaimResult, len(held))
	for i, j := range all {
		if results[i] = j.result; j.result.Status == driver.Granted {
			results[i].At = j.tokenAt
		}
	}
	cl.applyLimits(ctx, p, held, results, flow)
	cl.reconciler.claims[p.number].answered(held, results)
	return results
}

// claimLimited claims jobs under limits. Two calls of a process would choose permits by the
// same quotas, and one of them would be refused for most: so they take the lock one after
// the other. No lock but this one is held over requests, and no heartbeat, end or other
// claim waits for it.
func (cl *claimer) claimLimited(ctx context.Context, p *part, jobs []*claimRequest, token string) {
	if len(jobs) == 0 {
		return
	}
	p.quotas.claims.Lock()
	defer p.quotas.claims.Unlock()
	limits := 0
	for _, j := range jobs {
		limits = max(limits, len(j.limits))
	}
	for some := range slices.Chunk(jobs, limitedAtOnce(limits)) {
		cl.claimAll(ctx, p, some, token)
	}
}

// claimAll claims jobs. It chooses permits and tokens by what is known here of the limits, and
// takes each job for one that waits; the conditions of the commit tell whether that is so.
//
// A round reads, plans and commits. Refused claims go into the next round, with its readings.
// Each round that refuses something counts: after claimTries the rest is
// RetryLater, after a random pause, or workers that meet would meet again. A sweep for
// permits happens once in a call.
func (cl *claimer) claimAll(ctx context.Context, p *part, jobs []*claimRequest, token string) {
	swept := false
	for tries := 0; len(jobs) > 0; {
		some, err := cl.survey(ctx, p, jobs, token)
		var again []*claimRequest
		if err == nil {
			some, again = cl.endSuperseded(ctx, p, some, token)
		}
		if err != nil || tries == claimTries {
			for _, j := range append(some, again...) {
				j.result = driver.ClaimResult{Status: driver.RetryLater, After: 10*time.Millisecond + rand.N(20*time.Millisecond)}
			}
			return
		}
		drafts, won, full := cl.planClaims(p, some)
		jobs = append(cl.commitClaims(ctx, p, drafts, won, token, tries == 0), again...)
		if len(jobs) > 0 {
			tries++
		}
		if !swept && len(full) > 0 {
			swept = true
			jobs = append(jobs, cl.sweepFor(ctx, p, full)...)
		}
	}
}

// survey reads, at one time, what is not known of the limits, and of the jobs. It returns
// those jobs that may be claimed, and sets the results of the others.
//
// The quotas are read beside the statuses, since neither needs the other. A job in its
// first round is unseen: its status is looked up if it may have one. One that was refused
// is read anew (restand). All others are as the round before has left them.
func (cl *claimer) survey(ctx context.Context, p *part, jobs []*claimRequest, token string) (rest []*claimRequest, err error) {
	var wg sync.WaitGroup
	wg.Go(func() { err = p.quotas.readQuotasOf(ctx, jobs, cl.others.Load() == 0) })
	var unseen, refused []*claimRequest
	for _, j := range jobs {
		switch {
		case j.refused:
			refused = append(refused, j)
		case !j.seen:
			unseen = append(unseen, j)
		default:
			rest = append(rest, j)
		}
		j.seen, j.refused = true, false
	}
	rest = slices.Concat(cl.restand(ctx, p, refused, token), rest, cl.claimable(ctx, p, unseen, p.statusesAmong(ctx, deliveriesOf(unseen))))
	wg.Wait()
	return rest, cmp.Or(err, p.readKeys(ctx, rest))
}

// claimable returns the jobs that have not ended, and are not claimed by another worker
// that lives, by their statuses. Any other job would make the server refuse all that is
// written with it, and its status stays so for a while. claimable sets the results of
// these.
//
// It reads the lease of each other worker once. Without an answer the job stays in: then
// the commit is refused, and standing finds out why.
func (cl *claimer) claimable(ctx context.Context, p *part, jobs []*claimRequest, statuses []status) (rest []*claimRequest) {
	leases := map[string]time.Duration{}
	for i, j := range jobs {
		s := statuses[i]
		if s.fate.final() {
			j.result = cl.releases.gone(ctx, p, j.h)
			continue
		}
		if s.fate == claimed && s.worker != cl.c.Name {
			lease, asked := leases[s.worker]
			if !asked {
				lease, _ = cl.leaseOf(ctx, p.leases, s.worker) // with an error the claim tells
				leases[s.worker] = lease
			}
			if lease > 0 {
				j.result = driver.ClaimResult{Status: driver.RetryLater, After: max(min(lease, cl.soon()), 10*time.Millisecond)}
				continue
			}
		}
		rest = append(rest, j)
	}
	return rest
}

// readKeys finds out which jobs leave their key when they begin.
//
// Only exact claims leave a key, since only they are the begin. Each job costs a read or
// more, maxReads of them at a time. One that fails is the error of all, and all jobs of the
// round are RetryLater.
func (ks *keys) readKeys(ctx context.Context, jobs []*claimRequest) error {
	var mu sync.Mutex
	var failed error
	leave := slices.DeleteFunc(slices.Clone(jobs), func(j *claimRequest) bool { return !j.h.Record.FreeWhenBegun || !j.h.Exact })
	inParallel(leave, func(j *claimRequest) {
		var err error
		j.key, j.superseded, err = ks.leaveAtBegin(ctx, &j.h.Record, j.basis.replaces)
		mu.Lock()
		defer mu.Unlock()
		failed = cmp.Or(failed, err)
	})
	return failed
}

// commitClaims writes claims, and returns those that were refused. It sets the results of the
// others. A batch is refused as a whole when one of its jobs has a status, and where many are
// canceled most batches have some. So the first batch of claims of one message is not tried again
// in halves: which these are is looked up.
//
// The claims are known to the reconciler before they are written: so a comparison that
// finds them in the stream does not take them for forgotten. A claim without an answer may
// be stored: its handle is unsure until its status was read. A refusal is sure, and leaves
// nothing in the stream.
func (cl *claimer) commitClaims(ctx context.Context, p *part, drafts map[string]*draft, won []*claimRequest, token string, first bool) (again []*claimRequest) {
	groups := cl.compose(p, drafts, won, token)
	cl.reconciler.claims[p.number].begin(p.Backs(), len(won), func(i int) *driver.Delivery { return won[i].h })
	all, writes := make([]stream.Group, len(groups)), 0
	for i := range groups {
		all[i] = groups[i].group
		writes += len(all[i])
	}
	var results []stream.Result
	if first && len(drafts) == 0 && len(all) > stream.FewWrites && writes <= stream.MaxWrites {
		results = p.CommitAtOnce(ctx, all)
	} else {
		results = p.Commit(ctx, all)
	}
	open := map[int64]error{} // what is known of the buckets, after the commit
	for i, res := range results {
		if groups[i].learn(p, res); res.Err == nil {
			cl.confirmAll(ctx, p, groups[i].jobs, open)
			continue
		}
		for _, j := range groups[i].jobs {
			j.refused, j.hd.unsure = true, !errors.Is(res.Err, stream.ErrConflict) && !errors.Is(res.Err, stream.ErrBusy)
		}
		again = append(again, groups[i].jobs...)
	}
	return again
}

// confirmAll is confirm of claims that are written. The mark of each bucket is read once
// for all of them: a claim that came about in a closed bucket was written after the
// statuses there were removed, and so long after the mark.
func (cl *claimer) confirmAll(ctx context.Context, p *part, jobs []*claimRequest, open map[int64]error) {
	for _, j := range jobs {
		if _, asked := open[j.hd.at.bucket]; !asked && !j.hd.stale() {
			open[j.hd.at.bucket] = p.stillOpen(ctx, j.hd)
		}
		j.result = cl.confirm(ctx, p, j.h, open[j.hd.at.bucket])
	}
}

// confirm ends a claim that has created its status. If the bucket was closed, the job had
// ended before and that was forgotten: here a worker learns it that was frozen between Fetch
// and Claim. Its status is removed. If the handle is stale, the bucket's mark says nothing,
// so the job's message itself is looked for.
//
// Without an answer the claim stays, and the job is RetryLater: the next call finds this
// worker's claim there, and replaces it. No job is taken for ended because a server is
// silent.
func (cl *claimer) confirm(ctx context.Context, p *part, h *driver.Delivery, open error) driver.ClaimResult {
	hd, waits, err := h.Claim.(*handle), true, open
	if errors.Is(open, errBucketClosed) || open == nil && hd.stale() {
		waits, err = p.reopened(ctx, hd, p.nearMark(hd.at.bucket))
	}
	switch {
	case err == nil && waits:
		return driver.ClaimResult{Status: driver.Granted, Attempt: hd.status.attempt}
	// Another may have taken over meanwhile: the status that it has written is the one
	// that says how the job has ended, and stays.
	case err == nil && cl.releases.takeBack(ctx, p, hd) == nil:
		return cl.releases.gone(ctx, p, h)
	}
	return driver.ClaimResult{Status: driver.RetryLater, After: 50 * time.Millisecond}
}

// restand reads what became of jobs that could not be claimed, and returns those that are to
// be tried again. Where there are many it is looked up first, rather than to ask for each.
func (cl *claimer) restand(ctx context.Context, p *part, jobs []*claimRequest, token string) (again []*claimRequest) {
	unknown := map[*claimRequest]bool{}
	if len(jobs) > 1 {
		statuses := p.statusesOf(ctx, deliveriesOf(jobs))
		for i, j := range jobs {
			unknown[j] = statuses[i].fate == none && j.basis.replaces.fate == none
		}
		jobs = cl.claimable(ctx, p, jobs, statuses)
	}
	for _, j := range jobs {
		if unknown[j] {
			again = append(again, j) // nothing is known of it: the next conflict tells
			continue
		}
		b, v := cl.standing(ctx, p, j.h, token)
		if v != nil {
			j.result = *v
			continue
		}
		j.basis = b
		again = append(again, j)
	}
	return again
}

// standing reads the status of a job that could not be claimed, and returns what a claim
// has to replace; or the result.
//
// The cases, in their order: a claim of this handle and call, whose answer was lost, is
// confirmed. One of another worker that lives is left to it. One of this worker that it
// does not know came back with a stream that went back, and is freed. One of this worker
// from an earlier call is replaced, and counts neither as an attempt nor as a crash. One
// whose lease has ended is taken over: that is a crash, and only an exact claim may do it. A
// status that is final ends the job here.
func (cl *claimer) standing(ctx context.Context, p *part, h *driver.Delivery, token string) (b basis, v *driver.ClaimResult) {
	hd := h.Claim.(*handle)
	s, err := p.status(ctx, hd.at)
	if err != nil {
		return b, &driver.ClaimResult{Status: driver.RetryLater, After: 50 * time.Millisecond}
	}
	hd.unsure = false
	b = basis{replaces: s, begun: h.Record.Attempt, crashes: h.Record.Crashes}
	switch s.fate {
	case claimed:
		if s.token == hd.token(token) {
			hd.status = s
			return b, new(cl.confirm(ctx, p, h, p.stillOpen(ctx, hd)))
		}
		if left, err := cl.leaseOf(ctx, p.leases, s.worker); err != nil || left > 0 && s.worker != cl.c.Name {
			return b, &driver.ClaimResult{Status: driver.RetryLater, After: max(min(left, cl.soon()), 10*time.Millisecond)}
		}
		if s.worker == cl.c.Name && !cl.reconciler.claims[p.number].knows(s) {
			_ = cl.reconciler.disown(ctx, p, hd.at, s) // or the next claim finds it again
			return b, &driver.ClaimResult{Status: driver.RetryLater, After: 10 * time.Millisecond}
		}
		if b.begun, b.crashes = s.begun(); s.worker == cl.c.Name {
			// In a call whose answer was lost: that was no crash, and nothing has begun.
			b.begun, b.crashes = s.attempt-1, s.crashes
		}
	case freed:
		b.begun, b.crashes = s.begun()
	case done, canceled, moved, dead:
		return b, new(cl.releases.gone(ctx, p, h))
	}
	if b.crashes > 0 && !h.Exact {
		hd.status = status{}
		return b, &driver.ClaimResult{Status: driver.Suspect, Crashes: b.crashes}
	}
	return b, nil
}

// applyLimits reads the limits and pauses once jobs are claimed, as of then. If they have
// changed, it gives back the claims of jobs that are covered otherwise now, and these are
// claimed again. So each claim that begins after a change of limits or pauses obeys it,
// and claims that none covers cost one read for each call of Claim.
//
// They are read as of the last claim of the call: so earlier changes are seen, also on a
// server that is behind. Without an answer all claims are given back. One that cannot be
// given back is found to be this worker's own when it is claimed again.
func (cl *claimer) applyLimits(ctx context.Context, p *part, held []*driver.Delivery, results []driver.ClaimResult, by *driver.FlowControl) {
	last := stream.Witness{}
	for i, h := range held {
		if hd := h.Claim.(*handle); results[i].Status == driver.Granted && hd.status.seq > last.Seq {
			last = stream.Witness{Subject: p.statusSubject(hd.at), Seq: hd.status.seq}
		}
	}
	if last.Seq == 0 {
		return
	}
	now, err := cl.flow.flowControlSince(ctx, p.buckets, last)
	if err == nil && now == by { // the same revision may be that of others, in a stream that went back
		return
	}
	var back []*handle
	for i, h := range held {
		if results[i].Status == driver.Granted && (err != nil || !coveredAlike(by, now, &h.Record, p.Now())) {
			results[i] = driver.ClaimResult{Status: driver.RetryLater, After: time.Millisecond}
			back = append(back, h.Claim.(*handle))
		}
	}
	for i, res := range cl.releases.free(ctx, p, back) {
		if res.Err == nil {
			back[i].status = status{}
		} // else it is found to be this worker's when it is asked for again
	}
}

// coveredAlike reports whether two states of the limits and pauses cover a job alike at a
// time. How long a pause still lasts does not matter: no claim under it is granted. Nil is
// a state without any.
func coveredAlike(a, b *driver.FlowControl, r *driver.Record, at time.Time) bool {
	x, pausedX := a.Covering(r.Kind, r.Lane, at)
	y, pausedY := b.Covering(r.Kind, r.Lane, at)
	same := func(a, b *driver.StoredLimit) bool { return *a == *b }
	return (pausedX > 0) == (pausedY > 0) && slices.EqualFunc(x, y, same)
}

// endSuperseded ends jobs whose claim finds that a newer one has superseded them, and sets
// their results. It returns the others, and those whose end is to be tried again.
//
// Such a job was handed back after it had begun and left its key, and a newer one has taken
// that since. It is not claimed and run for nothing. Its end is the same commit as that of
// a job that is done: the status, the forward, what is kept, its permits; and the key's
// message as it was read, so that the newer job is still the newest.
func (cl *claimer) endSuperseded(ctx context.Context, p *part, jobs []*claimRequest, token string) (rest, again []*claimRequest) {
	var ends []stream.Group
	var ended []*claimRequest
	for _, j := range jobs {
		if !j.superseded {
			rest = append(rest, j)
			continue
		}
		s := j.basis.replaces
		end := status{fate: done, token: j.hd.token(token), attempt: s.attempt}
		g := stream.Group{{Subject: p.statusSubject(j.hd.at), Data: end.encode(), Last: stream.Seq(s.seq)}}
		if j.hd.at.version > 0 {
			g = append(g, grave(p.forward(j.hd.at.id)))
		}
		o := driver.DoneWith(j.h, time.Time{})
		if e := o.Ending(cl.c.Name, p.Now()); e != nil {
			r := j.h.Record
			r.Attempt = s.attempt
			r.End(e)
			g = append(g, p.records.endedWrite(&r, j.hd.data, r.Retain))
		}
		ends, ended = append(ends, append(append(g, p.leave(s)...), j.key...)), append(ended, j)
	}
	if len(ended) == 0 {
		return rest, nil
	}
	results := p.Commit(ctx, ends)
	cl.notices.freed(p.quotas, ends, results, func(k int) string { return ended[k].h.Record.Lane })
	for k, j := range ended {
		if results[k].Err != nil {
			j.refused = true
			again = append(again, j)
			continue
		}
		j.hd.ack()
		j.result = driver.ClaimResult{Status: driver.Gone}
	}
	return rest, again
}

func deliveriesOf(jobs []*claimRequest) []*driver.Delivery {
	held := make([]*driver.Delivery, len(jobs))
	for i, j := range jobs {
		held[i] = j.h
	}
	return held
}
