package jetstream

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// claimRequest is a job that is to be claimed, for one call of Claim. It has no lock: one
// goroutine at a time works on it. All that its commit rests on is in basis, key and the
// quotas; after a refusal these are read anew, and all else is decided again.
type claimRequest struct {
	h          *driver.Delivery
	hd         *handle
	barred     *driver.ClaimResult   // not nil: the limits or pauses do not let it be claimed
	limits     []*driver.StoredLimit // that cover it
	quotas     []string              // of each
	basis      basis
	result     driver.ClaimResult
	tokenAt    time.Time    // as it was planned last
	permits    []string     // that its claim has
	took       []string     // those of them that are new
	key        stream.Group // that leaves the key of a job with FreeWhenBegun
	superseded bool         // and key is what tells that: see leaveAtBegin
	seen       bool         // it was looked whether it has ended
	refused    bool         // its claim: what it was based on is to be read
}

// basis is the status that a claim replaces, and the attempts and crashes before it. The
// sequence of the status is the condition of the commit. So a claim rests on what was read,
// however old that is: if anybody has written the status since, it is refused.
type basis struct {
	replaces       status
	begun, crashes int
}

// newClaimRequest returns a job that is to be claimed. One that may be claimed already must
// not wait for its own permit: what became of it is read first.
//
// The limits are those that were read last, without a request. If others are stored by now,
// the claim is given back once it is written (applyLimits). A claim ahead under a limit is
// barred: it would hold a permit until the job is due. So is one of a suspect, which must
// be exact.
func newClaimRequest(flow *driver.FlowControl, h *driver.Delivery, now time.Time) *claimRequest {
	j := &claimRequest{h: h, hd: h.Claim.(*handle), basis: basis{begun: h.Record.Attempt, crashes: h.Record.Crashes}}
	j.refused = j.hd.unsure || j.hd.status.fate == claimed && j.hd.status.seq > 0
	limits, paused := flow.Covering(h.Record.Kind, h.Record.Lane, now)
	switch {
	case h.Record.Crashes > 0 && !h.Exact:
		j.barred = &driver.ClaimResult{Status: driver.Suspect, Crashes: h.Record.Crashes}
	case paused > 0 && h.Exact:
		j.barred = new(driver.Paused(paused))
	case !h.Exact && (paused > 0 || len(limits) > 0):
		j.barred = &driver.ClaimResult{Status: driver.Throttled}
	default:
		j.limits = limits
		for _, l := range limits {
			j.quotas = append(j.quotas, quotaOf(l.Key(h.Record.Lane)))
		}
	}
	return j
}

// planner decides which claims limits let through, and with which permits. It writes only
// to free what dead workers have. The quotas' own lock guards what it plans by; a plan may
// be wrong, and then the commit is refused.
//
// So a limit is kept by the conditions alone, whatever planners of other processes do at
// the same time.
type planner struct {
	*heart
	notices *notices
}

// readQuotasOf reads the quotas of jobs, those that are not known well enough. Jobs of one
// lane, or of a limit for all lanes, share a quota, which is read once. Without limits it
// makes no request.
func (qs *quotas) readQuotasOf(ctx context.Context, jobs []*claimRequest, alone bool) error {
	wanted, lanes := map[string]*driver.StoredLimit{}, map[string]string{}
	for _, j := range jobs {
		for k, l := range j.limits {
			wanted[j.quotas[k]], lanes[j.quotas[k]] = l, j.h.Record.Lane
		}
	}
	return qs.readQuotas(ctx, wanted, lanes, alone)
}

// draft is the counter of a quota as claims would change it, and the permits that they
// take. The quota itself stays as it is until the commit is stored, so that a plan that is
// refused leaves no trace. It lives for one round, under p.quotas.mu while it is planned
// and composed.
type draft struct {
	of      *quota
	c       driver.Counter
	chosen  map[int]bool // permits
	changed bool         // what its message has
	written bool         // that message is to be written with claims
	rated   bool         // tokens are counted
}

// differs reports whether what is counted is to be written. Whose turn it is does not matter
// to a worker that is alone.
//
// The permits that are taken do not count: they have messages of their own. So a limit
// without a rate writes its counter only for the sake of turns.
func (d *draft) differs(alone bool) bool {
	was := d.of.counter
	was.Taken = d.c.Taken
	if alone {
		was.ReservedFor, was.ReservedUntil, was.LastHolder = d.c.ReservedFor, d.c.ReservedUntil, d.c.LastHolder
	}
	return was != d.c
}

// planClaims decides which jobs are claimed, and with which permits. Full are the quotas
// that have no permit, and the jobs that wait for one there.
//
// It asks no server, since it holds the lock of the quotas. Claims of one call share a
// draft of each quota: two of them never have one permit, and tokens are counted once for
// all.
func (pn *planner) planClaims(p *part, jobs []*claimRequest) (drafts map[string]*draft, won []*claimRequest, full map[string][]*claimRequest) {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	now := p.Now()
	drafts, full = map[string]*draft{}, map[string][]*claimRequest{}
	for _, j := range jobs {
		if j.barred != nil {
			j.result = *j.barred
			continue
		}
		if pn.plan(p.quotas, j, drafts, now); j.result.Status == driver.Granted {
			won = append(won, j)
			continue
		}
		for k, key := range j.quotas {
			if l := j.limits[k]; l.ID == j.result.Limit && l.Running > 0 && drafts[key].c.Taken >= l.Running {
				full[key] = append(full[key], j)
			}
		}
	}
	return drafts, won, full
}

// plan decides about one job, and counts it in the drafts of its quotas. A turn may change
// there also if the job is refused. A job that keeps the permit of a claim before takes a
// token at most. One that is only claimed once more by the same worker, since an answer was
// lost, takes neither: it has them. The caller holds qs.mu.
func (pn *planner) plan(qs *quotas, j *claimRequest, drafts map[string]*draft, now time.Time) {
	counters, has := make([]*driver.Counter, len(j.limits)), make([]bool, len(j.limits))
	j.permits, j.took = nil, nil
	for k, key := range j.quotas {
		d := drafts[key]
		if d == nil {
			q := qs.all[key]
			d = &draft{of: q, c: q.counter, chosen: map[int]bool{}, rated: j.limits[k].Rate > 0}
			d.c.Taken, drafts[key] = q.used, d
		}
		counters[k] = &d.c
		for _, name := range j.basis.replaces.permits { // a takeover keeps its permits, and needs none that are free
			if of, _, _ := parsePermit(name); of == key {
				has[k], j.permits = true, append(j.permits, name)
			}
		}
	}
	if j.basis.replaces.worker != pn.c.Name || slices.Contains(has, false) {
		j.result = driver.Take(j.limits, counters, has, pn.c.Name, now)
	} else { // the answer was lost: it has all it needs
		j.result = driver.ClaimResult{Status: driver.Granted, At: driver.TokenValidBy(j.limits, now)}
	}
	j.tokenAt = j.result.At
	for k, key := range j.quotas {
		d := drafts[key]
		d.changed = d.differs(pn.others.Load() == 0)
		if j.result.Status == driver.Granted && !has[k] {
			i := d.of.freePermit(j.limits[k], d.chosen)
			d.chosen[i] = true
			j.took = append(j.took, permitOf(key, i))
		}
	}
	j.permits = append(j.permits, j.took...)
}

// claimGroup is what is written together, or not at all: the statuses of jobs, their
// permits and keys, and then the counters. Only learn needs that order: it finds the
// sequences by it.
type claimGroup struct {
	group  stream.Group
	jobs   []*claimRequest
	first  []int // where in the group the messages of each begin: its status, and its permits
	drafts []*draft
}

// compose returns the writes of planned claims. The count of a limit is written with all
// claims that are counted there, so these are written together; where only permits are
// taken each claim is for itself.
//
// A counter of tokens has the condition that it is as it was read: two workers that count
// at one time would both have the token. A turn that is written with claims has none: if
// one is lost, a worker waits a while longer, and a refusal would cost all claims of the
// group. One that is written by itself may be refused, and nobody minds.
func (pn *planner) compose(p *part, drafts map[string]*draft, won []*claimRequest, token string) (groups []claimGroup) {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	var together claimGroup
	now := p.Now()
	for _, j := range won {
		// Nothing is attempt 2 of 1: a job whose last attempt never ended is claimed for
		// its burial.
		j.hd.status = status{
			fate: claimed, token: j.hd.token(token), worker: pn.c.Name, permits: j.permits, exact: j.h.Exact,
			attempt: min(j.basis.begun, j.h.Record.MaxAttempts) + 1, crashes: j.basis.crashes,
		}
		pl := &together
		if !j.counted(drafts) {
			groups = append(groups, claimGroup{})
			pl = &groups[len(groups)-1]
		}
		pl.add(p, j, drafts)
	}
	for _, d := range drafts {
		switch { // a turn is not written anew each time that somebody asks
		case !d.changed:
		case d.written:
			together.drafts = append(together.drafts, d)
			wr := p.quotas.counterWrite(d.of, d.c, now)
			if !d.rated {
				wr.Last = nil
			}
			together.group = append(together.group, wr)
		case d.of.counter.ReservedFor != d.c.ReservedFor || d.c.ReservedUntil-d.of.counter.ReservedUntil > int64(driver.ReservationLasts/2):
			groups = append(groups, claimGroup{drafts: []*draft{d}, group: stream.Group{p.quotas.counterWrite(d.of, d.c, now)}})
		}
	}
	if len(together.group) > 0 {
		groups = append(groups, together)
	}
	return groups
}

// counted reports whether something is counted with the claim but its permits. Then its
// group has the message of a counter, which all claims under the quota share: so they are
// one group, and are stored together or not at all. It marks those counters as written.
func (j *claimRequest) counted(drafts map[string]*draft) (is bool) {
	for _, key := range j.quotas {
		if drafts[key].changed {
			drafts[key].written, is = true, true
		}
	}
	return is
}

// add adds the writes of a claim. A permit that is new has the condition that nobody took
// it since it was read; one that the claim has already is written anew without a condition,
// since the condition of the status covers it: both change in one commit. Permits of the
// claim before that no limit asks for any more are given back. The caller holds
// p.quotas.mu.
func (pl *claimGroup) add(p *part, j *claimRequest, drafts map[string]*draft) {
	pl.jobs, pl.first = append(pl.jobs, j), append(pl.first, len(pl.group))
	pl.group = append(pl.group, stream.Write{Subject: p.statusSubject(j.hd.at), Data: j.hd.status.encode(), Last: stream.Seq(j.basis.replaces.seq)})
	for _, name := range j.permits {
		key, i, _ := parsePermit(name)
		q := drafts[key].of
		wr := p.quotas.permitWrite(name, j.hd.at, j.hd.status.worker, q.key.Lane)
		if slices.Contains(j.took, name) {
			wr.Last = stream.Seq(q.permits[i].seq)
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

// learn notes the result of a commit: its sequences, or that all that it is about is to be
// read again. After an error only a reading can tell: a commit without an answer may be
// stored.
//
// Its notes may be old already, since others use the quotas, too: the next conflict tells.
// A quota whose time of reading is cleared is read before it is planned by.
func (pl *claimGroup) learn(p *part, res stream.Result) {
	p.quotas.mu.Lock()
	defer p.quotas.mu.Unlock()
	for k, j := range pl.jobs {
		if res.Err != nil {
			for _, key := range j.quotas {
				p.quotas.all[key].read = time.Time{}
			}
			continue
		}
		j.hd.status.seq = res.First + uint64(pl.first[k])
		for n, name := range j.permits {
			key, i, _ := parsePermit(name)
			p.quotas.all[key].set(i, permit{seq: j.hd.status.seq + 1 + uint64(n), at: j.hd.at, worker: j.hd.status.worker})
		}
	}
	for k, d := range pl.drafts {
		if res.Err != nil {
			d.of.read = time.Time{}
			continue
		}
		d.of.counter, d.of.seq = d.c, res.First+uint64(len(pl.group)-len(pl.drafts)+k)
	}
}

// sweptAtOnce is how many quotas are swept in one claim. Each takes a read and perhaps some
// leases, and the jobs that could be claimed wait for that; the next claim sweeps others.
const sweptAtOnce = 16

// sweepFor frees what dead workers have of the quotas that are full, and returns the jobs
// that may be claimed now.
//
// Which of many are swept first is chance, as is the order of a map: so none is left out
// for ever.
func (pn *planner) sweepFor(ctx context.Context, p *part, full map[string][]*claimRequest) (again []*claimRequest) {
	n := 0
	for key, jobs := range full {
		if n++; n > sweptAtOnce {
			break
		}
		if pn.sweepPermits(ctx, p, key) {
			again = append(again, jobs...)
		}
	}
	return again
}

// sweepPermits frees permits whose workers are dead, or which no claim names, of a quota that has
// none that is free. It returns whether there is one now.
//
// One of a process sweeps a quota in sweepWait, and all others find it swept. The reading
// is a hint: a permit is freed only by freeDead, on the conditions of its commit. The lock
// is not held while it asks, so a permit may change hands meanwhile, which isTaken finds
// out for less than a commit.
func (pn *planner) sweepPermits(ctx context.Context, p *part, key string) bool {
	p.quotas.mu.Lock()
	q := p.quotas.all[key]
	if q == nil || time.Since(q.swept) < sweepWait {
		p.quotas.mu.Unlock()
		return false
	}
	q.swept = time.Now()
	lane := q.key.Lane
	suspects := map[string]permit{}
	subjects := []string{}
	for i, s := range q.permits {
		if s.worker != "" {
			suspects[permitOf(key, i)] = s
			subjects = append(subjects, p.statusSubject(s.at))
		}
	}
	p.quotas.mu.Unlock()
	found, err := p.Lasts(ctx, subjects) // a hint
	if err != nil {
		return false
	}
	over := map[string]bool{}
	var dead []string
	for name, s := range suspects {
		m := found[p.statusSubject(s.at)]
		if is, err := decodeStatus(m.Data, m.Seq); err == nil && is.names(name) {
			if _, known := over[s.worker]; !known {
				left, err := pn.leaseOf(ctx, p.leases, s.worker)
				over[s.worker] = err == nil && left <= 0
			}
			if !over[s.worker] {
				continue
			}
		}
		if p.quotas.isTaken(name, s) { // else its job has ended since
			dead = append(dead, name)
		}
	}
	var some atomic.Bool
	inParallel(dead, func(name string) {
		if pn.freeDead(ctx, p, name, lane, suspects[name]) {
			some.Store(true)
		}
	})
	return some.Load()
}

// freeDead frees one permit. It reads the status of the holder as of when that has taken the
// permit. If it names the permit, the claim is given back with it, as in a takeover. If it does not,
// it was removed with its bucket: the permit is left, if nobody has taken it since.
//
// Without an answer, and under the lease of a worker that lives, it stays taken: a limit is
// rather used less than exceeded. The claims of this worker are not freed here, since
// reconciling does that.
func (pn *planner) freeDead(ctx context.Context, p *part, name, lane string, s permit) bool {
	ctx, cancel := context.WithTimeout(ctx, stream.AnswerTimeout)
	defer cancel()
	m, err := p.LastSince(ctx, stream.Witness{Subject: p.permitSubject(name), Seq: s.seq}, p.statusSubject(s.at), false)
	is := status{}
	if err == nil && m.Seq > 0 {
		is, err = decodeStatus(m.Data, m.Seq)
	}
	if err != nil {
		return false
	}
	left := grave(p.permitSubject(name))
	left.Last = stream.Seq(s.seq)
	g := stream.Group{left}
	if is.names(name) {
		if over, err := pn.leaseOf(ctx, p.leases, is.worker); err != nil || over > 0 || is.worker == pn.c.Name {
			return false
		}
		g = p.freeGroup(s.at, is, true)
	}
	res := p.Commit(ctx, []stream.Group{g})
	pn.notices.freed(p.quotas, []stream.Group{g}, res, func(int) string { return lane })
	return res[0].Err == nil
}
