// Package dispatch decides which of a worker's jobs is claimed and which begins next: by time,
// priority, the limits of kinds, stored limits, pauses and quarantine. A [Dispatcher] is a plain
// structure: it does no I/O, reads no clock, and has no goroutine and no lock. Its caller guards it,
// reports each event with its time, and carries out the [Actions] that Next returns.
package dispatch

import (
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Moment is a time by the clocks that a Dispatcher goes by.
type Moment struct {
	Local  time.Time     // by this process, compared monotonically
	Engine time.Time     // by the engine's clock, as well as it is known
	Off    time.Duration // by how much Engine may be off
}

// until returns how long it takes until the engine's clock surely shows t.
func (m Moment) until(t time.Time) time.Duration { return t.Sub(m.Engine) + m.Off }

// phase is how far a job has come. It only grows, except for a claim that is deferred.
type phase int

const (
	fetched   phase = iota // waits for a Timer: for its time to be claimed
	waiting                // is due, and waits in a queue for a slot, to be claimed exactly
	claimable              // in a queue for Claims
	claiming               // the engine is queried
	claimed                // waits for a Timer: for its time to begin
	ready                  // in the queue of its kind for a free slot
	running
	ending // its end is being written down
)

// Job is a job that a worker holds, from when the engine hands it out until its end is written down.
type Job struct {
	Delivery *driver.Delivery
	Attempt  int // its number, from 1, once its claim was granted

	kind     *kindQueue
	priority int // its index in priorities
	phase    phase
	crashes  int  // more than 0: it is in quarantine
	reserved bool // it has a slot, and does not run yet
	counted  bool // in claiming of its kind
	lost     bool // the lease was lost while it was being claimed

	token  time.Time        // before which it must not begin; zero: it needs none
	limits *limited         // nil: no limit and no pause covers it
	newer  *driver.Delivery // a newer version, to be added when this one is forgotten
}

// Config describes a worker to its Dispatcher.
type Config struct {
	Kinds       []string       // that the worker has handlers for
	Limits      map[string]int // of kinds: how many handlers may run at once; without one: Concurrency
	Concurrency int
	Lease       time.Duration
	Manual      bool // the engine's clock is set by hand: jobs that wait for it are checked each millisecond
}

// Dispatcher holds the jobs of a worker. Calls must not overlap.
type Dispatcher struct {
	c    Config
	out  *Actions // of the next call of Next
	made *Actions // of the last one

	jobs     map[driver.Ref]*Job
	most     int // jobs that are held at most
	bytes    int // of payloads
	counts   [ending + 1]int
	kinds    map[string]*kindQueue
	shared   *kindQueue   // the queues of all kinds without a limit of their own
	active   []*kindQueue // those that have something in a queue, and maybe others
	crowded  bool         // backpressure.go
	draining bool

	recheck  bool   // something may begin since the last call of Next
	reserved int    // slots of jobs that do not run yet
	exact    []*Job // which these are; for Claims
	poison   []*Job // in quarantine, and on trial: quarantine.go
	begun    int    // how often one was chosen to begin; for priorityOrder

	lead       time.Duration // of the claim
	since      time.Time     // rounds are counted from it
	rounds     map[time.Duration][]*Job
	claimSince time.Time // when the claim was asked that is under way; zero: none
	lookAgain  bool      // a Timer for a claim that takes long is set

	flow     *driver.FlowControl // limits.go
	limited  bool                // it has limits or pauses
	gates    map[driver.LimitKey]*gate
	deferred map[time.Duration][]*driver.Delivery // to be handed back soon, by for how long
}

// New returns a Dispatcher without jobs.
func New(c Config, now Moment) *Dispatcher {
	d := &Dispatcher{
		c: c, most: max(maxHeld, 2*c.Concurrency), out: &Actions{}, made: &Actions{}, jobs: map[driver.Ref]*Job{}, kinds: map[string]*kindQueue{}, lead: MinLead, since: now.Local,
		rounds: map[time.Duration][]*Job{}, gates: map[driver.LimitKey]*gate{}, deferred: map[time.Duration][]*driver.Delivery{},
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

// Actions are the next tasks of a worker. They are valid until the next call of Next.
type Actions struct {
	Begin    []*Job             // their handlers are to begin
	Bury     []*Job             // they have no attempt left, and are to end
	Timers   []Timer            // to be passed to Fire when they are over
	Dropped  []*driver.Delivery // to be handed back, until the engine has taken them; the caller keeps the slice
	Deferred []Deferred         // to be handed back for a while
	Gates    []Gate             // kinds to open and to shut

	Room       bool // a job is gone, or its handler has returned
	Claim      bool // Claims may have something
	Renew      bool // a job could begin, and the lease is not sound
	ReadLimits bool // the engine has other limits and pauses than those that are known here
}

// Deferred are jobs that are to be handed back for a while.
type Deferred struct {
	Jobs  []*driver.Delivery
	After time.Duration
}

// Gate is a kind that the engine is to hand out, or not.
type Gate struct {
	Kind string
	Open bool
}

// Timer asks for a call of Fire when After has passed.
type Timer struct {
	After time.Duration
	what  what
	job   *Job  // unless it is gone
	gate  *gate // for reopen
	n     int64 // what is said of each
}

// what a Timer is for.
type what int

const (
	reschedule what = iota // a look at the clock once more; n: for how long to wait at least, from now on
	due                    // a job that is to be claimed exactly
	toClaim                // a job that is to be claimed
	proceed                // a claimed job
	round                  // n: its time
	reopen                 // n: the gate's refusals
	trialOver              // of a job in quarantine
	giveBack               // deferred jobs
	slowClaim              // a claim that takes long
)

func (d *Dispatcher) timer(t Timer) { d.out.Timers = append(d.out.Timers, t) }

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
	case round:
		d.beginRound(time.Duration(t.n), now)
	case reopen:
		d.reopen(t.gate, int(t.n))
	case trialOver:
		d.endTrial(t.job)
		d.recheck = true
	case giveBack:
		d.giveBack()
	case slowClaim:
		d.lookAgain, d.recheck = false, true
	}
}

// set moves a job to a phase.
func (d *Dispatcher) set(j *Job, p phase) {
	d.counts[j.phase]--
	d.counts[p]++
	j.phase = p
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

// drop takes a job away, but not out of the queue that it may be in.
func (d *Dispatcher) drop(j *Job) {
	if j.reserved || j.crashes > 0 {
		d.vacate(j)
	}
	if j.limits != nil {
		d.leave(j)
	}
	d.counts[j.phase]--
	delete(d.jobs, j.Delivery.Ref)
	d.account(j, -1)
	d.recheck, d.out.Room = true, true
}

// dropBack takes a job away that is to be handed back.
func (d *Dispatcher) dropBack(j *Job) {
	d.drop(j)
	d.out.Dropped = append(d.out.Dropped, j.Delivery)
	d.dropNewer(j)
}

// dropNewer hands back the newer version of a job.
func (d *Dispatcher) dropNewer(j *Job) {
	if j.newer != nil {
		d.out.Dropped = append(d.out.Dropped, j.newer)
		j.newer = nil
	}
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
	d.recheck, d.out.Room = true, true
	if j.limits == nil {
		return false
	}
	j.limits.timed(now)
	return len(j.limits.gates) > 0 && j.kind.lined > 0
}

// Requeue puts a job back whose handler has not begun after all: it is the next of its kind and
// priority.
func (d *Dispatcher) Requeue(j *Job) {
	k := j.kind.queues
	k.running--
	d.set(j, ready)
	k.ready.addFirst(j)
	d.activate(k)
	d.recheck, d.out.Room = true, true
}

// Return takes a job away that runs, whose attempt is not to count, and hands it back.
func (d *Dispatcher) Return(j *Job) {
	j.kind.queues.running--
	d.dropBack(j)
}

// Job returns a job that is held, or nil.
func (d *Dispatcher) Job(r driver.Ref) *Job { return d.jobs[r] }

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

// unready takes a job out of the queue of jobs that wait for a slot, which then has room for the
// claim of another.
func (d *Dispatcher) unready(j *Job) {
	j.kind.queues.ready.remove(j)
	d.out.Claim = true
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

// Drain drops all that has not begun, and begins nothing from then on. No claim may be under way.
func (d *Dispatcher) Drain() {
	d.draining = true
	for _, j := range d.jobs {
		if j.phase < running {
			d.dropBack(j)
		}
	}
	d.clearQueues()
	d.giveBack() // its Timer may come too late
}

// clearQueues empties the queues of jobs that have not begun.
func (d *Dispatcher) clearQueues() {
	d.exact = nil
	for _, k := range d.kinds {
		k.queues.claimable, k.queues.ready, k.queues.last, k.queues.poison = priorities{}, priorities{}, priorities{}, nil
		k.lines, k.turns, k.lined = nil, nil, 0
		d.updateGate(k)
	}
	for _, g := range d.gates {
		g.parked = nil
	}
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
	return Counts{len(d.jobs), d.counts[claimed] + d.counts[ready], d.counts[running], d.counts[ending]}
}

// Lead returns the current time from the claim of a job until it is due.
func (d *Dispatcher) Lead() time.Duration { return d.lead }
