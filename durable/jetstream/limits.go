package jetstream

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// claimRequest is a job that is to be claimed.
type claimRequest struct {
	h          *driver.Delivery
	hd         *handle
	barred     *driver.ClaimResult   // not nil: the limits or pauses do not let it be claimed
	limits     []*driver.StoredLimit // that cover it
	quotas     []string              // of each
	basis      basis
	result     driver.ClaimResult
	permits    []string // that its claim has
	took       []string // those of them that are new
	key        group    // that leaves the key of a job with FreeWhenBegun
	superseded bool     // and key is what tells that: order.go
	seen       bool     // it was looked whether it has ended
	refused    bool     // its claim: what it was based on is to be read
}

// draft is the counter of a quota as claims would change it, and the permits that they take.
type draft struct {
	of      *quota
	c       driver.Counter
	chosen  map[int]bool // permits
	changed bool         // what its message has
	written bool         // that is part of what is to be written with claims
	rated   bool         // tokens are counted
}

// newClaimRequest returns a job that is to be claimed. One that may be claimed already must not wait
// for its own permit: what became of it is read first.
func newClaimRequest(flow *driver.FlowControl, h *driver.Delivery) *claimRequest {
	j := &claimRequest{h: h, hd: h.Claim.(*handle), basis: basis{begun: h.Record.Attempt, crashes: h.Record.Crashes}}
	j.refused = j.hd.unsure || j.hd.status.fate == claimed && j.hd.status.seq > 0
	limits, paused := flow.Covering(h.Record.Kind, h.Record.Lane)
	switch {
	case h.Record.Crashes > 0 && !h.Exact:
		j.barred = &driver.ClaimResult{Status: driver.Suspect, Crashes: h.Record.Crashes}
	case paused && h.Exact:
		j.barred = &driver.ClaimResult{Status: driver.Throttled, After: driver.RetryInterval}
	case !h.Exact && (paused || len(limits) > 0):
		j.barred = &driver.ClaimResult{Status: driver.Throttled}
	default:
		for _, l := range limits {
			j.limits, j.quotas = append(j.limits, l), append(j.quotas, quotaOf(l.Key(h.Record.Lane)))
		}
	}
	return j
}

const (
	limitedAtOnce = 200 // claims under limits that are one commit
	claimTries    = 6   // while others claim the same, or under the same limits
	sweptAtOnce   = 16
)

// claimLimited claims jobs under limits.
func (w *worker) claimLimited(ctx context.Context, p *part, jobs []*claimRequest, token string) {
	if len(jobs) == 0 {
		return
	}
	p.quotas.claims.Lock()
	defer p.quotas.claims.Unlock()
	for some := range slices.Chunk(jobs, limitedAtOnce) {
		w.claimAll(ctx, p, some, token)
	}
}

// claimAll claims jobs. It chooses permits and tokens by what is known here of the limits, and
// takes each job for one that waits; the conditions of the commit tell whether that is so.
func (w *worker) claimAll(ctx context.Context, p *part, jobs []*claimRequest, token string) {
	swept := false
	for tries := 0; len(jobs) > 0; {
		some, err := w.survey(ctx, p, jobs, token)
		var again []*claimRequest
		if err == nil {
			some, again = w.endSuperseded(ctx, p, some, token)
		}
		if err != nil || tries == claimTries {
			for _, j := range append(some, again...) {
				j.result = driver.ClaimResult{Status: driver.RetryLater, After: 10*time.Millisecond + rand.N(20*time.Millisecond)}
			}
			return
		}
		drafts, won, full := w.planClaims(p, some)
		jobs = append(w.commitClaims(ctx, p, drafts, won, token, tries == 0), again...)
		if len(jobs) > 0 {
			tries++
		}
		if !swept && len(full) > 0 {
			swept = true
			jobs = append(jobs, w.sweepFor(ctx, p, full)...)
		}
	}
}

// survey reads, at one time, what is not known of the limits, and of the jobs. It returns
// those jobs that may be claimed, and sets the results of the others.
func (w *worker) survey(ctx context.Context, p *part, jobs []*claimRequest, token string) (rest []*claimRequest, err error) {
	var wg sync.WaitGroup
	wg.Go(func() { err = p.readQuotasOf(ctx, jobs, w.others.Load() == 0) })
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
	rest = slices.Concat(w.restand(ctx, p, refused, token), rest, w.claimable(ctx, p, unseen, p.statusesAmong(ctx, deliveriesOf(unseen))))
	wg.Wait()
	return rest, cmp.Or(err, p.readKeys(ctx, rest))
}

// readKeys finds out which jobs leave their key when they begin.
func (p *part) readKeys(ctx context.Context, jobs []*claimRequest) error {
	var mu sync.Mutex
	var failed error
	leave := slices.DeleteFunc(slices.Clone(jobs), func(j *claimRequest) bool { return !j.h.Record.FreeWhenBegun || !j.h.Exact })
	inParallel(leave, func(j *claimRequest) {
		var err error
		j.key, j.superseded, err = p.leaveAtBegin(ctx, &j.h.Record, j.basis.replaces)
		mu.Lock()
		defer mu.Unlock()
		failed = cmp.Or(failed, err)
	})
	return failed
}

// claimable returns the jobs that have not ended, and are not claimed by another worker that lives, by their
// statuses. Any other job would make the server refuse all that is written with it, and its status stays so
// for a while. claimable sets the results of these.
func (w *worker) claimable(ctx context.Context, p *part, jobs []*claimRequest, statuses []status) (rest []*claimRequest) {
	leases := map[string]time.Duration{}
	for i, j := range jobs {
		s := statuses[i]
		if s.fate.final() {
			j.result = w.gone(ctx, j.h)
			continue
		}
		if s.fate == claimed && s.worker != w.c.Name {
			lease, asked := leases[s.worker]
			if !asked {
				lease, _ = w.leaseOf(ctx, p, s.worker) // with an error the claim tells
				leases[s.worker] = lease
			}
			if lease > 0 {
				j.result = driver.ClaimResult{Status: driver.RetryLater, After: max(min(lease, w.soon()), 10*time.Millisecond)}
				continue
			}
		}
		rest = append(rest, j)
	}
	return rest
}

func deliveriesOf(jobs []*claimRequest) []*driver.Delivery {
	held := make([]*driver.Delivery, len(jobs))
	for i, j := range jobs {
		held[i] = j.h
	}
	return held
}

func (p *part) readQuotasOf(ctx context.Context, jobs []*claimRequest, alone bool) error {
	wanted, lanes := map[string]*driver.StoredLimit{}, map[string]string{}
	for _, j := range jobs {
		for k, l := range j.limits {
			wanted[j.quotas[k]], lanes[j.quotas[k]] = l, j.h.Record.Lane
		}
	}
	return p.quotas.readQuotas(ctx, wanted, lanes, alone)
}

// sweepFor frees what dead workers have of the quotas that are full, and returns the jobs
// that may be claimed now.
func (w *worker) sweepFor(ctx context.Context, p *part, full map[string][]*claimRequest) (again []*claimRequest) {
	n := 0
	for key, jobs := range full {
		if n++; n > sweptAtOnce {
			break
		}
		if w.sweepPermits(ctx, p, key) {
			again = append(again, jobs...)
		}
	}
	return again
}

func newDraft(q *quota, l *driver.StoredLimit) *draft {
	d := &draft{of: q, c: q.counter, chosen: map[int]bool{}, rated: l.Rate > 0}
	d.c.Taken = q.used
	return d
}

// differs reports whether what is counted is to be written. Whose turn it is does not matter
// to a worker that is alone.
func (d *draft) differs(alone bool) bool {
	was := d.of.counter
	was.Taken = d.c.Taken
	if alone {
		was.ReservedFor, was.ReservedUntil, was.LastHolder = d.c.ReservedFor, d.c.ReservedUntil, d.c.LastHolder
	}
	return was != d.c
}

// planClaims decides which jobs are claimed, and with which permits. Full are the quotas that have
// no permit, and the jobs that wait for one there.
func (w *worker) planClaims(p *part, jobs []*claimRequest) (drafts map[string]*draft, won []*claimRequest, full map[string][]*claimRequest) {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	now := p.now()
	drafts, full = map[string]*draft{}, map[string][]*claimRequest{}
	for _, j := range jobs {
		if j.barred != nil {
			j.result = *j.barred
			continue
		}
		counters, has := make([]*driver.Counter, len(j.limits)), make([]bool, len(j.limits))
		j.permits, j.took = nil, nil
		for k, key := range j.quotas {
			d := drafts[key]
			if d == nil {
				d = newDraft(p.quotas.all[key], j.limits[k])
				drafts[key] = d
			}
			counters[k] = &d.c
			if kept := j.basis.replaces.permitAt(key); kept != "" {
				has[k], j.permits = true, append(j.permits, kept)
			}
		}
		if j.result = (driver.ClaimResult{Status: driver.Granted}); j.basis.replaces.worker != w.c.Name || slices.Contains(has, false) {
			j.result = driver.Take(j.limits, counters, has, w.c.Name, now)
		} else { // the answer was lost: it has all it needs
			j.result.At = driver.TokenValidBy(j.limits, now)
		}
		for k, key := range j.quotas {
			d := drafts[key]
			d.changed = d.differs(w.others.Load() == 0)
			if j.result.Status == driver.Granted && !has[k] {
				i := d.of.freePermit(j.limits[k], d.chosen)
				d.chosen[i] = true
				j.took = append(j.took, permitOf(key, i))
			}
			if n := j.limits[k].Running; j.result.Status == driver.Throttled && j.result.Limit == j.limits[k].ID && n > 0 && d.c.Taken >= n {
				full[key] = append(full[key], j)
			}
		}
		if j.permits = append(j.permits, j.took...); j.result.Status == driver.Granted {
			won = append(won, j)
		}
	}
	return drafts, won, full
}

// permitAt returns the permit of a quota that a claim has.
func (s status) permitAt(quota string) string {
	for _, name := range s.permits {
		if key, _, ok := parsePermit(name); ok && key == quota {
			return name
		}
	}
	return ""
}

// compose returns the writes of planned claims. The count of a limit is written with all claims
// that are counted there, so these are written together; where only permits are taken each
// claim is for itself.
func (w *worker) compose(p *part, drafts map[string]*draft, won []*claimRequest, token string) (groups []claimGroup) {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	var together claimGroup
	now := p.now()
	for _, j := range won {
		j.hd.status = w.claimOf(j.h, token, j.basis.begun, j.basis.crashes)
		j.hd.status.permits = j.permits
		pl := &together
		if !j.counted(drafts) {
			groups = append(groups, claimGroup{})
			pl = &groups[len(groups)-1]
		}
		pl.add(w, p, j, drafts)
	}
	for _, d := range drafts {
		switch { // a turn is not written anew each time that somebody asks
		case !d.changed:
		case d.written:
			together.drafts = append(together.drafts, d)
			wr := p.quotas.counterWrite(d.of, d.c, now)
			if !d.rated {
				wr.last = nil
			}
			together.group = append(together.group, wr)
		case d.of.counter.ReservedFor != d.c.ReservedFor || d.c.ReservedUntil-d.of.counter.ReservedUntil > int64(driver.ReservationLasts/2):
			groups = append(groups, claimGroup{drafts: []*draft{d}, group: group{p.quotas.counterWrite(d.of, d.c, now)}})
		}
	}
	if len(together.group) > 0 {
		groups = append(groups, together)
	}
	return groups
}

// commitClaims writes claims, and returns those that were refused. It sets the results of the
// others. A batch is refused as a whole when one of its jobs has a status, and where many are
// canceled most batches have some. So the first batch of claims of one message is not tried again
// in halves: which these are is looked up.
func (w *worker) commitClaims(ctx context.Context, p *part, drafts map[string]*draft, won []*claimRequest, token string, first bool) (again []*claimRequest) {
	groups := w.compose(p, drafts, won, token)
	w.claims[p.number].begin(p, won)
	all, writes := make([]group, len(groups)), 0
	for i := range groups {
		all[i] = groups[i].group
		writes += len(all[i])
	}
	var results []result
	if first && len(drafts) == 0 && len(all) > fewWrites && writes <= maxWrites {
		results = make([]result, len(all))
		_ = p.commitAtOnce(ctx, all, results)
	} else {
		results = p.commit(ctx, all)
	}
	open := map[int64]error{} // what is known of the buckets, after the commit
	for i, res := range results {
		if groups[i].learn(p, res); res.err == nil {
			w.confirmAll(ctx, p, groups[i].jobs, open)
			continue
		}
		for _, j := range groups[i].jobs {
			j.refused, j.hd.unsure = true, !errors.Is(res.err, errConflict) && !errors.Is(res.err, errBusy)
		}
		again = append(again, groups[i].jobs...)
	}
	return again
}

// counted reports whether something is counted with the claim but its permits.
func (j *claimRequest) counted(drafts map[string]*draft) (is bool) {
	for _, key := range j.quotas {
		if drafts[key].changed {
			drafts[key].written, is = true, true
		}
	}
	return is
}

// claimGroup is what is written together.
type claimGroup struct {
	group  group
	jobs   []*claimRequest
	first  []int // where in the group the messages of each begin: its status, and its permits
	drafts []*draft
}

// add has a claim be written. p.quotas.mu is held.
func (pl *claimGroup) add(w *worker, p *part, j *claimRequest, drafts map[string]*draft) {
	pl.jobs, pl.first = append(pl.jobs, j), append(pl.first, len(pl.group))
	pl.group = append(pl.group, write{subject: p.fateSubject(j.hd.at), data: j.hd.status.encode(), last: seq(j.basis.replaces.seq)})
	for _, name := range j.permits {
		key, i, _ := parsePermit(name)
		lane := drafts[key].of.key.Lane
		wr := p.quotas.permitWrite(name, j.hd.at, w.c.Name, lane)
		if slices.Contains(j.took, name) {
			wr.last = seq(drafts[key].of.permits[i].seq)
		}
		pl.group = append(pl.group, wr)
	}
	for _, name := range j.basis.replaces.permits {
		if !slices.Contains(j.permits, name) {
			pl.group = append(pl.group, grave(p.permitSubject(name)))
		}
	}
	pl.group = append(pl.group, j.key...)
}

// learn notes the result of a commit: its sequences, or that all that it is about is to be read again.
func (pl *claimGroup) learn(p *part, res result) {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	for k, j := range pl.jobs {
		if res.err != nil {
			for _, key := range j.quotas {
				p.quotas.all[key].read = time.Time{}
			}
			continue
		}
		j.hd.status.seq = res.first + uint64(pl.first[k])
		for n, name := range j.permits {
			key, i, _ := parsePermit(name)
			p.quotas.all[key].set(i, permit{seq: j.hd.status.seq + 1 + uint64(n), at: j.hd.at, worker: j.hd.status.worker})
		}
	}
	for k, d := range pl.drafts {
		if res.err != nil {
			d.of.read = time.Time{}
			continue
		}
		d.of.counter, d.of.seq = d.c, res.first+uint64(len(pl.group)-len(pl.drafts)+k)
	}
}

// confirmAll is confirm of claims that are written.
func (w *worker) confirmAll(ctx context.Context, p *part, jobs []*claimRequest, open map[int64]error) {
	for _, j := range jobs {
		if _, asked := open[j.hd.at.bucket]; !asked && !j.hd.stale() {
			open[j.hd.at.bucket] = p.stillOpen(ctx, j.hd)
		}
		at := j.result.At
		j.result = w.confirm(ctx, j.h, open[j.hd.at.bucket])
		j.result.At = at
	}
}

// restand reads what became of jobs that could not be claimed, and returns those that are to
// be tried again. Where there are many it is looked up first, rather than to ask for each.
func (w *worker) restand(ctx context.Context, p *part, jobs []*claimRequest, token string) (again []*claimRequest) {
	unknown := map[*claimRequest]bool{}
	if len(jobs) > 1 {
		statuses := p.statusesOf(ctx, deliveriesOf(jobs))
		for i, j := range jobs {
			unknown[j] = statuses[i].fate == none && j.basis.replaces.fate == none
		}
		jobs = w.claimable(ctx, p, jobs, statuses)
	}
	for _, j := range jobs {
		if unknown[j] {
			again = append(again, j) // nothing is known of it: the next conflict tells
			continue
		}
		at := j.result.At
		b, v := w.standing(ctx, j.h, token)
		if v == nil {
			j.basis = b
			again = append(again, j)
			continue
		}
		if j.result = *v; v.Status == driver.Granted { // the answer was lost
			j.result.At = at
		}
	}
	return again
}

// basis is the status that a claim replaces, and the attempts and crashes before it.
type basis struct {
	replaces       status
	begun, crashes int
}

// standing reads the status of a job that could not be claimed, and returns what a claim has
// to replace; or the result.
func (w *worker) standing(ctx context.Context, h *driver.Delivery, token string) (b basis, v *driver.ClaimResult) {
	hd := h.Claim.(*handle)
	p := hd.p
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
			v := w.confirm(ctx, h, p.stillOpen(ctx, hd))
			return b, &v
		}
		if left, err := w.leaseOf(ctx, p, s.worker); err != nil || left > 0 && s.worker != w.c.Name {
			return b, &driver.ClaimResult{Status: driver.RetryLater, After: max(min(left, w.soon()), 10*time.Millisecond)}
		}
		if s.worker == w.c.Name && !w.claims[p.number].knows(s) {
			_ = w.disown(ctx, p, hd.at, s) // or the next claim finds it again
			return b, &driver.ClaimResult{Status: driver.RetryLater, After: 10 * time.Millisecond}
		}
		if b.begun, b.crashes = s.begun(); s.worker == w.c.Name {
			// In a call whose answer was lost: that was no crash, and nothing has begun.
			b.begun, b.crashes = s.attempt-1, s.crashes
		}
	case freed:
		b.begun, b.crashes = s.begun()
	case done, canceled, moved, dead:
		v := w.gone(ctx, h)
		return b, &v
	}
	if b.crashes > 0 && !h.Exact {
		hd.status = status{}
		return b, &driver.ClaimResult{Status: driver.Suspect, Crashes: b.crashes}
	}
	return b, nil
}

// takeBack removes a claim of what has ended before. One that has permits leaves them first, in
// one commit with the claim; if others have removed that meanwhile, sweepPermits finds the permits.
func (w *worker) takeBack(ctx context.Context, hd *handle) error {
	upTo := hd.status.seq
	if len(hd.status.permits) > 0 {
		g := []group{hd.p.freeGroup(hd.at, hd.status, false)}
		res := hd.p.commit(ctx, g)
		w.notifyFreed(hd.p, g, res, func(int) string { return hd.record.Lane })
		if errors.Is(res[0].err, errConflict) {
			return nil
		}
		if res[0].err != nil {
			return res[0].err
		}
		upTo = res[0].first
	}
	return hd.p.purge(ctx, hd.p.fateSubject(hd.at), upTo)
}

// free gives claims back, with their permits. A job that has left its key takes it again, if no
// other has it by now: it has not begun.
func (w *worker) free(ctx context.Context, p *part, handles []*handle) []result {
	results, groups := make([]result, len(handles)), make([]group, len(handles))
	var of []int // which claim a group is of
	for i, hd := range handles {
		g := p.freeGroup(hd.at, hd.status, false)
		if hd.record.FreeWhenBegun {
			key, superseded, err := p.retakeKey(ctx, hd.record)
			if err != nil {
				results[i].err = err
				continue
			}
			if !superseded {
				g = append(g, key...)
			}
		}
		groups[i], of = g, append(of, i)
	}
	for k, res := range p.commit(ctx, pick(groups, of)) {
		results[of[k]] = res
	}
	w.notifyFreed(p, groups, results, func(i int) string { return handles[i].record.Lane })
	return results
}

// applyLimits reads the limits and pauses once jobs are claimed, as of then. If they have changed, it gives
// back the claims of jobs that are covered otherwise now, and these are asked for again. So each claim that
// begins after a change of limits or pauses obeys it, and claims that none covers cost one read for each call
// of Claim.
func (w *worker) applyLimits(ctx context.Context, p *part, held []*driver.Delivery, results []driver.ClaimResult, by *driver.FlowControl) {
	last := witness{}
	for i, h := range held {
		if hd := h.Claim.(*handle); results[i].Status == driver.Granted && hd.status.seq > last.seq {
			last = witness{p.fateSubject(hd.at), hd.status.seq}
		}
	}
	if last.seq == 0 {
		return
	}
	now, err := w.e.flowControlSince(ctx, p, last)
	if err == nil && now == by { // the same revision may be that of others, in a stream that went back
		return
	}
	var back []*handle
	for i, h := range held {
		if results[i].Status == driver.Granted && (err != nil || !coveredAlike(by, now, &h.Record)) {
			results[i] = driver.ClaimResult{Status: driver.RetryLater, After: time.Millisecond}
			back = append(back, h.Claim.(*handle))
		}
	}
	for i, res := range w.free(ctx, p, back) {
		if res.err == nil {
			back[i].status = status{}
		} // else it is found to be this worker's when it is asked for again
	}
}

// coveredAlike reports whether two states of the limits and pauses cover a job alike.
func coveredAlike(a, b *driver.FlowControl, r *driver.Record) bool {
	x, pausedX := a.Covering(r.Kind, r.Lane)
	y, pausedY := b.Covering(r.Kind, r.Lane)
	if pausedX != pausedY || len(x) != len(y) {
		return false
	}
	for i := range x {
		if *x[i] != *y[i] {
			return false
		}
	}
	return true
}
