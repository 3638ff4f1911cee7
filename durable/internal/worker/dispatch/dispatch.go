// Package dispatch decides which of a worker's jobs is claimed and which begins next: by time,
// priority, the limits of kinds, stored limits, pauses and quarantine. A [Dispatcher] is a plain
// structure: it does no I/O, reads no clock, and has no goroutine and no lock. Its caller guards it,
// reports each event with its time, and carries out the [Actions] that Next returns.
//
// Read it in this order: state.go (the data), dispatch.go (the events of a job), claim.go, next.go,
// forget.go, and then the bounds of the choice: backpressure.go, priorities.go, quarantine.go,
// limits.go, flowcontrol.go, pauses.go.
package dispatch

import (
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// New returns a Dispatcher without jobs.
func New(c Config, now Moment) *Dispatcher {
	d := &Dispatcher{
		c: c, most: max(maxHeld, 2*c.Concurrency), out: &Actions{}, made: &Actions{}, jobs: map[driver.Ref]*Job{}, kinds: map[string]*kindQueue{}, lead: MinLead, since: now.Local,
		coalesced: map[time.Duration][]*Job{}, gates: map[driver.LimitKey]*limitGate{}, deferred: map[time.Duration][]*driver.Delivery{},
	}
	d.shared = &kindQueue{limit: c.Concurrency}
	d.shared.queues = d.shared
	for _, kind := range c.Kinds {
		k := &kindQueue{kind: kind, limit: c.Concurrency, queues: d.shared}
		if n := c.Limits[kind]; n > 0 {
			k.limit, k.limited, k.queues = min(n, c.Concurrency), true, k
		}
		d.kinds[kind] = k
	}
	return d
}

// Fire is called when a Timer is over.
func (d *Dispatcher) Fire(t Timer, now Moment) {
	if d.draining || t.job != nil && d.jobs[t.job.Delivery.Ref] != t.job {
		return
	}
	switch t.what {
	case reschedule:
		d.schedule(t.job, time.Duration(t.n), now)
	case due:
		d.come(t.job, now)
	case toClaim:
		d.toClaim(t.job, now)
	case proceed:
		d.proceed(t.job, now)
	case together:
		d.claimTogether(time.Duration(t.n), now)
	case reopen:
		d.reopen(t.gate, int(t.n))
	case trialOver:
		d.endTrial(t.job)
		d.recheck = true
	case giveBack:
		d.giveBack()
	case slowClaim:
		d.lookAgain, d.recheck = false, true
	case pauseEnds:
		d.lookAtPauses(int(t.n), now)
	}
}

// Has reports whether a job is held already. A newer version, of a job that was moved or
// that waits for its next attempt, is added when the held one is forgotten. A held job that waits for
// its time is forgotten at once, since the newer version may be due earlier. The same
// version is dropped: the engine hands it out again, or the end of the held one settles it.
func (d *Dispatcher) Has(h *driver.Delivery) bool {
	j := d.jobs[h.Ref]
	switch {
	case j == nil:
		return false
	case h.Record.Version <= j.Delivery.Record.Version:
	case j.phase == fetched:
		d.drop(j)
		return false
	default:
		j.newer = h
	}
	return true
}

// Add adds a job that is not held. It returns false if the worker has no handler for its kind.
func (d *Dispatcher) Add(h *driver.Delivery, now Moment) bool {
	r := &h.Record
	k := d.kinds[r.Kind]
	if k == nil {
		return false
	}
	j := &Job{Delivery: h, kind: k, priority: int(1 - r.Priority), crashes: r.Crashes}
	if d.limited {
		d.cover(j)
	}
	h.Exact = j.crashes > 0 || r.Attempt+1 >= r.MaxAttempts || j.limits != nil || r.FreeWhenBegun || r.Signals
	d.jobs[h.Ref] = j
	d.counts[fetched]++
	d.account(j, 1)
	d.schedule(j, 0, now)
	return true
}

// Forget takes a job away that has ended, and goes on to its newer version.
func (d *Dispatcher) Forget(j *Job, now Moment) {
	d.drop(j)
	switch {
	case d.draining:
		d.dropNewer(j)
	case j.newer != nil:
		d.Add(j.newer, now)
	}
}

// Done notes that a handler has returned. The job keeps its permits until it is forgotten; Done
// reports whether others wait for them.
func (d *Dispatcher) Done(j *Job, now Moment) (wanted bool) {
	d.set(j, ending)
	j.kind.queues.running--
	d.recheck, d.out.Changed = true, true
	if j.limits == nil {
		return false
	}
	j.limits.timed(now)
	return len(j.limits.gates) > 0 && j.kind.inLanes > 0
}

// Block notes that another's transaction holds up the end of a job, which takes no slot from then on:
// that transaction may stay open, and keep others from beginning.
func (d *Dispatcher) Block(j *Job) {
	d.set(j, blocked)
	d.recheck = true
}

// Requeue puts a job back whose handler has not begun after all: it is the next of its kind and
// priority.
func (d *Dispatcher) Requeue(j *Job) {
	k := j.kind.queues
	k.running--
	d.set(j, ready)
	k.ready.addFirst(j)
	d.activate(k)
	d.recheck, d.out.Changed = true, true
}

// Return takes a job away that runs, whose attempt is not to count, and hands it back.
func (d *Dispatcher) Return(j *Job) {
	j.kind.queues.running--
	d.dropBack(j)
}

// Job returns a job that is held, or nil.
func (d *Dispatcher) Job(r driver.Ref) *Job { return d.jobs[r] }

// HasClaimed reports whether a job that is held may be claimed by what was sent of it.
func (d *Dispatcher) HasClaimed(r driver.Ref) bool {
	j := d.jobs[r]
	return j != nil && j.asked
}

// LoseClaim drops a claimed job that has not begun, whose claim the store lacks. It returns false if there
// is none.
func (d *Dispatcher) LoseClaim(r driver.Ref) bool {
	j := d.End(r)
	if j != nil {
		d.dropBack(j)
	}
	return j != nil
}

// End takes a claimed job out of its queue that is to end without an attempt; nil if there is none
// that has not begun.
func (d *Dispatcher) End(r driver.Ref) *Job {
	j := d.jobs[r]
	if j == nil || j.phase != claimed && j.phase != ready {
		return nil
	}
	if j.phase == ready {
		d.unready(j)
	}
	d.vacate(j)
	d.set(j, ending)
	return j
}

// LoseLease drops all jobs that have not begun, since other workers may have taken them
// over and ended them. It hands them back, in case that no worker has. A job that is being
// claimed is dropped when the answer comes. LoseLease returns the number of dropped jobs.
func (d *Dispatcher) LoseLease() int {
	before := len(d.out.Dropped)
	for _, j := range d.jobs {
		d.dropNewer(j)
		switch {
		case j.phase == claiming:
			j.lost = true
		case j.phase < running:
			d.dropBack(j)
		}
	}
	d.clearQueues()
	return len(d.out.Dropped) - before
}

// Drain drops all that has not begun, and begins nothing from then on. As with LoseLease, a job that is
// being claimed is dropped when the answer comes.
func (d *Dispatcher) Drain() {
	d.draining = true
	for _, j := range d.jobs {
		switch {
		case j.phase == claiming:
			j.lost = true
		case j.phase < running:
			d.dropBack(j)
		}
	}
	d.clearQueues()
	d.giveBack() // its Timer may come too late
}

// Counts are the numbers of jobs that a Dispatcher holds.
type Counts struct {
	Held    int // all; the next three are part of it
	Claimed int // and not begun
	Running int
	Ending  int
}

// Counts returns the numbers of jobs.
func (d *Dispatcher) Counts() Counts {
	return Counts{len(d.jobs), d.counts[claimed] + d.counts[ready], d.counts[running], d.counts[ending] + d.counts[blocked]}
}

// Lead returns the current time from the claim of a job until it is due.
func (d *Dispatcher) Lead() time.Duration { return d.lead }
