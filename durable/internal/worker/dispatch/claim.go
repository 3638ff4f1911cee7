package dispatch

import (
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/batch"
)

// Jobs that are due at nearly the same time are claimed together. A claim costs an engine
// nearly as much for one job as for twenty. So claims are coalesced: a job joins
// those of the next interval after the time from which it may be claimed. At 1,000 jobs a second
// this took 0.83 of the processor time for a whole life on JetStream, and 0.65 of the
// server's and the worker's on PostgreSQL.

const (
	maxClaims = batch.Max // in one call

	// MinLead and MaxLead bound the lead, the time from a claim until its jobs are due. A
	// coalesced claim is later by up to half of it. With a MinLead of 100 ms instead of 50 a job took 0.95
	// of the processor time on both engines, and with 150 ms 0.97 of that.
	MinLead = 150 * time.Millisecond
	MaxLead = 300 * time.Millisecond
)

// schedule makes a fetched job wait until it may be claimed, and at least for least. It
// reads the clock at least once a lease, since the clock may be set forward.
func (d *Dispatcher) schedule(j *Job, least time.Duration, now Moment) {
	left, what := now.until(j.Delivery.Record.Due), due
	if !j.Delivery.Exact {
		left, what = left-d.timing.lead, toClaim
	}
	switch {
	case max(left, least) > d.c.Lease:
		d.agenda.timer(Timer{After: d.c.Lease, what: reschedule, job: j, n: int64(max(0, least-d.c.Lease))})
	case left > 0 && left >= least && !j.Delivery.Exact:
		d.timing.coalesce(j, left, now)
	case left <= 0 && least <= 0 && !j.Delivery.Exact:
		d.toClaim(j, now) // now, so that its kind is shut before the engine hands out more
	default:
		d.agenda.timer(Timer{After: max(left, least), what: what, job: j})
	}
}

// interval returns the time between two claims. It is at most half of the lead, so that the
// other half is left for the claim itself. It is a fixed time, doubled: so it
// stays the same while the lead changes a little.
func (t *timing) interval() time.Duration {
	every := MinLead / 2
	for every <= t.lead/4 {
		every *= 2
	}
	return every
}

// coalesce adds a job to those that are claimed together next after a time.
func (t *timing) coalesce(j *Job, left time.Duration, now Moment) {
	since, every := now.Local.Sub(t.since), t.interval()
	at := (since + left + every - 1) / every * every
	jobs, ok := t.coalesced[at]
	t.coalesced[at] = append(jobs, j)
	if !ok {
		t.agenda.timer(Timer{After: at - since, what: together, n: int64(at)})
	}
}

// claimTogether takes out the jobs that share a claim. Some may be gone.
func (t *timing) claimTogether(at time.Duration) []*Job {
	jobs := t.coalesced[at]
	delete(t.coalesced, at)
	return jobs
}

// toClaim queues a job for the claim.
func (d *Dispatcher) toClaim(j *Job, now Moment) {
	if j.limits != nil { // since it was coalesced
		j.Delivery.Exact = true
		d.schedule(j, 0, now)
		return
	}
	d.held.set(j, claimable)
	k := j.kind.queues
	k.claimable.add(j)
	d.held.activate(k)
	d.agenda.Claim = true
}

// Claims returns the jobs that are to be claimed now, none if there are none: those that have a
// slot, and those that may begin soon. A kind claims no more than that: an unclaimed job can be
// canceled, or run by another worker. Answered has to be called before the next call of Claims.
func (d *Dispatcher) Claims(now Moment) []*Job {
	n := min(len(d.slots.exact), maxClaims)
	jobs := slices.Clone(d.slots.exact[:n])
	d.slots.exact = shift(d.slots.exact, n)
	for _, j := range jobs {
		d.held.set(j, claiming)
		j.asked = true
	}
	active := d.held.activeKinds()
	for priority := range (priorities{}) {
		for _, k := range active {
			// Each priority may have limit jobs that are ready, so that none holds up a
			// higher one.
			n := max(0, min(len(k.claimable[priority]), k.limit-len(k.ready[priority]), maxClaims-len(jobs)))
			for _, j := range k.claimable[priority][:n] {
				d.held.set(j, claiming)
				j.counted, j.asked = true, true
			}
			k.claims[priority] += n
			jobs = append(jobs, k.claimable[priority][:n]...)
			k.claimable[priority] = shift(k.claimable[priority], n)
			d.held.updateKind(k)
		}
	}
	if len(jobs) > 0 {
		d.timing.claimSince = now.Local
	}
	return jobs
}

// Answered sets each job of the last Claims on its way. If the lease was lost meanwhile the answer
// comes too late, and all are dropped.
func (d *Dispatcher) Answered(jobs []*Job, results []driver.ClaimResult, now Moment) {
	d.timing.adapt(now.Local.Sub(d.timing.claimSince))
	d.timing.claimSince = time.Time{}
	for i, j := range jobs {
		if j.counted {
			j.counted = false
			j.kind.queues.claims[j.priority]--
		}
		switch r := &results[i]; {
		case r.Status == driver.Gone, r.Status != driver.Granted && j.newer != nil:
			d.Forget(j, now)
		case j.lost:
			d.dropBack(j)
		case r.Status == driver.Granted:
			d.granted(j, r, now)
		case r.Status == driver.Throttled:
			d.slots.vacate(j)
			d.throttled(j, r, now)
		default:
			d.slots.vacate(j)
			d.retryLater(j, r, now)
		}
	}
	d.agenda.recheck = true // slots may be free that were reserved
}

// adapt follows what a claim takes: four times that, up at once and down by a hundredth,
// is enough that the commit is over when the job is due.
func (t *timing) adapt(took time.Duration) {
	t.lead = min(max(4*took, t.lead-t.lead/100, MinLead), MaxLead)
}

func (d *Dispatcher) granted(j *Job, r *driver.ClaimResult, now Moment) {
	j.Attempt, j.token = r.Attempt, time.Time{}
	if !r.At.IsZero() {
		j.token = now.Local.Add(min(now.until(r.At), now.Off+driver.TokenAhead)) // as near as a claim gets it, also if the clock was set
	}
	if j.limits != nil {
		d.gates.admitted(j)
	}
	d.held.set(j, claimed)
	d.proceed(j, now)
}

func (d *Dispatcher) retryLater(j *Job, r *driver.ClaimResult, now Moment) {
	if j.limits != nil {
		d.gates.leave(j)
	}
	d.held.set(j, fetched)
	if r.Status == driver.Suspect {
		j.Delivery.Exact, j.crashes, j.asked = true, max(r.Crashes, 1), false
	}
	d.schedule(j, max(r.After, time.Millisecond), now)
}

// throttled puts a job back into its lane after a limit or a pause has refused its claim.
func (d *Dispatcher) throttled(j *Job, r *driver.ClaimResult, now Moment) {
	known := false
	j.asked = false
	if j.limits != nil {
		j.missTurn()
		gates := j.limits.gates
		d.gates.leave(j)
		for _, g := range gates {
			if r.Limit != 0 && g.limit.ID == r.Limit {
				d.gates.byKey[g.key] = g // leave has forgotten it, if nothing else of its lane waits here
				d.gates.shut(g, r.After, now)
				known = true
			}
		}
	}
	if known && j.crashes == 0 {
		d.await(j, now)
		return
	}
	if j.crashes == 0 {
		d.agenda.ReadLimits = true
	}
	j.Delivery.Exact = true
	d.held.set(j, fetched)
	after := min(max(r.After, time.Millisecond), driver.RetryInterval) // the limits may change
	if d.c.Manual {
		after = time.Millisecond // as for a gate, in shut
	}
	d.schedule(j, after, now)
}
