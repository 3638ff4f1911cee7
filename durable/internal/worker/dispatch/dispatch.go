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
	d := &Dispatcher{c: c, agenda: agenda{Actions: &Actions{}, made: &Actions{}}}
	a, held, t, gates := &d.agenda, &d.held, &d.timing, &d.gates
	*held = inventory{agenda: a, most: max(maxHeld, 2*c.Concurrency), jobs: map[driver.Ref]*Job{}, kinds: map[string]*kindQueue{}}
	*t = timing{agenda: a, lead: MinLead, since: now.Local, coalesced: map[time.Duration][]*Job{}}
	*gates = gateSet{agenda: a, held: held, timing: t, manual: c.Manual, byKey: map[driver.LimitKey]*limitGate{}}
	d.slots = slots{c: &d.c, agenda: a, held: held, timing: t, gates: gates}
	d.deferred = deferrals{agenda: a, byTime: map[time.Duration][]*driver.Delivery{}}
	shared := &kindQueue{limit: c.Concurrency}
	shared.queues, held.shared = shared, shared
	for _, kind := range c.Kinds {
		k := &kindQueue{kind: kind, limit: c.Concurrency, queues: shared}
		if n := c.Limits[kind]; n > 0 {
			k.limit, k.limited, k.queues = min(n, c.Concurrency), true, k
		}
		held.kinds[kind] = k
	}
	return d
}

// Fire is called when a Timer is over.
func (d *Dispatcher) Fire(t Timer, now Moment) {
	if d.draining || t.job != nil && d.held.jobs[t.job.Delivery.Ref] != t.job {
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
		for _, j := range d.timing.claimTogether(time.Duration(t.n)) {
			if d.held.jobs[j.Delivery.Ref] == j {
				d.toClaim(j, now)
			}
		}
	case reopen:
		d.gates.reopen(t.gate, int(t.n))
	case trialOver:
		d.slots.endTrial(t.job)
		d.agenda.recheck = true
	case giveBack:
		d.deferred.giveBack()
	case slowClaim:
		d.timing.lookAgain, d.agenda.recheck = false, true
	case pauseEnds:
		d.lookAtPauses(int(t.n), now)
	}
}

// Has reports whether a job is held already. A newer version, of a job that was moved or
// that waits for its next attempt, is added when the held one is forgotten. A held job that waits for
// its time is forgotten at once, since the newer version may be due earlier, and so is one in a
// queue that the newer version does not belong to: that queue may be paused. The same
// version is dropped: the engine hands it out again, or the end of the held one settles it.
func (d *Dispatcher) Has(h *driver.Delivery) bool {
	j := d.held.jobs[h.Ref]
	switch {
	case j == nil:
		return false
	case h.Record.Version <= j.Delivery.Record.Version:
	case j.phase < claiming && !j.reserved && (j.phase == fetched || !j.sharesQueue(&h.Record)):
		d.takeOut(j)
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
	k := d.held.kinds[r.Kind]
	if k == nil {
		return false
	}
	j := &Job{Delivery: h, kind: k, priority: int(1 - r.Priority), crashes: r.Crashes}
	if d.gates.limited {
		d.gates.cover(j)
	}
	h.Exact = j.crashes > 0 || r.Attempt+1 >= r.MaxAttempts || j.limits != nil || r.FreeWhenBegun || r.Signals
	d.held.jobs[h.Ref] = j
	d.held.counts[fetched]++
	d.held.account(j, 1)
	d.schedule(j, 0, now)
	return true
}

// Forget takes a job away that has ended, and goes on to its newer version.
func (d *Dispatcher) Forget(j *Job, now Moment) {
	d.drop(j)
	switch {
	case d.draining:
		d.agenda.dropNewer(j)
	case j.newer != nil:
		d.Add(j.newer, now)
	}
}

// Done notes that a handler has returned. The job keeps its permits until it is forgotten; Done
// reports whether others wait for them.
func (d *Dispatcher) Done(j *Job, now Moment) (wanted bool) {
	d.held.set(j, ending)
	j.kind.queues.running--
	d.agenda.recheck, d.agenda.Changed = true, true
	if j.limits == nil {
		return false
	}
	j.limits.timed(now)
	return len(j.limits.gates) > 0 && j.kind.inLanes > 0
}

// Block notes that another's transaction holds up the end of a job, which takes no slot from then on:
// that transaction may stay open, and keep others from beginning.
func (d *Dispatcher) Block(j *Job) {
	d.held.set(j, blocked)
	d.agenda.recheck = true
}

// Requeue puts a job back whose handler has not begun after all: it is the next of its kind and
// priority.
func (d *Dispatcher) Requeue(j *Job) {
	k := j.kind.queues
	k.running--
	d.held.set(j, ready)
	k.ready.addFirst(j)
	d.held.activate(k)
	d.agenda.recheck, d.agenda.Changed = true, true
}

// Return takes a job away that runs, whose attempt is not to count, and hands it back.
func (d *Dispatcher) Return(j *Job) {
	j.kind.queues.running--
	d.dropBack(j)
}

// Job returns a job that is held, or nil.
func (d *Dispatcher) Job(r driver.Ref) *Job { return d.held.jobs[r] }

// HasClaimed reports whether a job that is held may be claimed by what was sent of it.
func (d *Dispatcher) HasClaimed(r driver.Ref) bool {
	j := d.held.jobs[r]
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
	j := d.held.jobs[r]
	if j == nil || j.phase != claimed && j.phase != ready {
		return nil
	}
	if j.phase == ready {
		d.held.unready(j)
	}
	d.slots.vacate(j)
	d.held.set(j, ending)
	return j
}

// LoseLease drops all jobs that have not begun, since other workers may have taken them
// over and ended them. It hands them back, in case that no worker has. A job that is being
// claimed is dropped when the answer comes. LoseLease returns the number of dropped jobs.
func (d *Dispatcher) LoseLease() int {
	before := len(d.agenda.Dropped)
	for _, j := range d.held.jobs {
		d.agenda.dropNewer(j)
	}
	d.dropWaiting()
	return len(d.agenda.Dropped) - before
}

// Drain drops all that has not begun, and begins nothing from then on. As with LoseLease, a job that is
// being claimed is dropped when the answer comes.
func (d *Dispatcher) Drain() {
	d.draining = true
	d.dropWaiting()
	d.deferred.giveBack() // its Timer may come too late
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
	return Counts{len(d.held.jobs), d.held.counts[claimed] + d.held.counts[ready], d.held.counts[running], d.held.counts[ending] + d.held.counts[blocked]}
}

// Lead returns the current time from the claim of a job until it is due.
func (d *Dispatcher) Lead() time.Duration { return d.timing.lead }
