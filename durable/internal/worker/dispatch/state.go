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

// phase is how far a job has come. It only grows, except in retryLater, throttled and Requeue.
type phase int

const (
	fetched   phase = iota // waits for a Timer: for its time to be claimed
	queued                 // is due, in a queue for a slot, to be claimed exactly
	claimable              // in a queue for Claims
	claiming               // the engine is queried
	claimed                // waits for a Timer: for its time to begin
	ready                  // in the queue of its kind for a free slot
	running
	ending  // its end is being written down
	blocked // the same, and another's transaction holds it up
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
	counted  bool // in claims of its kind
	lost     bool // the lease was lost while it was being claimed
	asked    bool // a claim was sent, and may be stored

	token  time.Time        // before which it must not begin, by the local clock; zero: it needs none
	limits *limited         // nil: no limit and no pause covers it
	newer  *driver.Delivery // a newer version, to be added when this one is forgotten
}

// kindQueue is what a kind has for itself: its limit, and its queues. Kinds without a limit of
// their own share queues, so that the choice of the next job does not grow with the number of kinds.
type kindQueue struct {
	kind      string
	queues    *kindQueue // the kindQueue whose queues this kind uses: its own, or the shared
	held      int        // jobs
	bytes     int        // of their payloads
	shut      bool       // the engine is to hand out no more
	active    bool       // it is in inventory.active
	limit     int
	limited   bool // by Config.Limits
	running   int  // running jobs, and slots that are reserved
	claimable priorities
	ready     priorities
	claims    [3]int     // claims that are under way, except those of jobs with a slot; by priority
	last      priorities // jobs that wait and are claimed exactly, but for suspects
	suspects  []*Job     // those that wait, in the order of byCrashes

	gates   []*limitGate          // of the limits for all of the kind, not PerLane
	paused  bool                  // all of it
	lanes   map[string]*laneQueue // by Job.Lane; of those in which something waits
	turns   []*laneQueue          // those of them that are not parked, in the order of their turns
	inLanes int                   // jobs in lanes
	served  map[string]int        // the last turns of lanes: see laneQueue.served
}

// laneQueue holds the waiting jobs of one kind and lane.
type laneQueue struct {
	kind   *kindQueue
	name   string
	jobs   priorities   // of each priority the longest due first
	gates  []*limitGate // of limits PerLane; those of the kind are in kindQueue
	paused bool
	parked bool      // it waits for a gate, and not for its turn
	served int       // the value of slots.begun at its last turn; 0: not lately
	backAt time.Time // the time at which the last deferred job comes back
}

// limited is the state of a job that a limit or a pause covers.
type limited struct {
	lane       *laneQueue   // where it waits
	gates      []*limitGate // those that it has passed for its claim
	served     int          // the served of its lane before this turn
	unanswered bool         // it is counted in claims of the gates
	began      time.Time    // its handler
}

// limitGate is what a worker knows of a LimitKey.
type limitGate struct {
	limit       *driver.StoredLimit
	key         driver.LimitKey
	taken       int // by jobs of this worker that are claimed or being claimed
	claims      int // under way
	window      int // the largest claims
	full        bool
	outOfTokens bool
	next        time.Time // when the token comes, by the engine's clock
	refusals    int
	took        time.Duration // the mean time of a handler
	parked      []*laneQueue
}

// priorities are jobs in the order in which they came due, apart by their priority.
type priorities [3][]*Job // High, Normal, Low

// Config describes a worker to its Dispatcher.
type Config struct {
	Kinds       []string       // that the worker has handlers for
	Limits      map[string]int // of kinds: how many handlers may run at once; without one: Concurrency
	Concurrency int
	Lease       time.Duration
	Manual      bool // the engine's clock is set by hand: jobs that wait for it are checked each millisecond
}

// Dispatcher holds the jobs of a worker. Calls must not overlap. Its parts, from the lowest to the highest: each
// points to those before it that it needs, and calls no later one.
type Dispatcher struct {
	c        Config
	draining bool

	agenda   agenda
	held     inventory
	timing   timing
	deferred deferrals
	gates    gateSet
	slots    slots
}

// agenda is the list of tasks that the next call of Next hands out. A task is added by whoever changes a
// state, at once; nothing is taken back.
type agenda struct {
	*Actions          // of the next call of Next
	made     *Actions // of the last one
	recheck  bool     // something may begin since the last call of Next
}

// inventory is the list of jobs that are held, by their reference, phase and kind: each job of jobs is counted
// once in counts, in bytes and in its kind. It never chooses a job: it shuts and opens kinds (backpressure.go).
type inventory struct {
	agenda  *agenda
	jobs    map[driver.Ref]*Job
	most    int // jobs that are held at most
	bytes   int // of payloads
	counts  [blocked + 1]int
	kinds   map[string]*kindQueue
	shared  *kindQueue   // the queues of all kinds without a limit of their own
	active  []*kindQueue // those that have something in a queue, and maybe others
	crowded bool
}

// timing knows when claims are sent: how long before a job is due, which jobs share a claim, and how long the
// claim that is under way has taken. It never changes a job.
type timing struct {
	agenda     *agenda
	lead       time.Duration            // of the claim
	since      time.Time                // the beginning of the times in coalesced
	coalesced  map[time.Duration][]*Job // the jobs of each shared claim, by its time, counted from since
	claimSince time.Time                // when the claim was asked that is under way; zero: none
	lookAgain  bool                     // a Timer for a claim that takes long is set
}

// deferrals are jobs that are to be handed back soon, by for how long. None of them is held any more.
type deferrals struct {
	agenda *agenda
	byTime map[time.Duration][]*driver.Delivery
}

// gateSet has the stored limits and pauses, and the gate of each limit and lane that a job here waits for or has
// passed: a job counts in each gate that it has passed, from its claim until leave. A lane is in the turns of its kind
// or parked, never both. It gives no slot: flowcontrol.go, limits.go.
type gateSet struct {
	agenda   *agenda
	held     *inventory
	timing   *timing
	manual   bool
	flow     *driver.FlowControl
	limited  bool           // flow has limits, or pauses that are in force
	pauses   []driver.Pause // those that are in force at pausesAt: pauses.go
	pausesAt time.Time      // by the engine's clock
	looks    int            // the number of the next look at them
	byKey    map[driver.LimitKey]*limitGate
}

// slots chooses the job that begins next: a job that runs has a slot, and so has one that is claimed exactly. There are
// never more than Concurrency, nor more of a kind than its limit: next.go, priorities.go, quarantine.go.
type slots struct {
	c        *Config
	agenda   *agenda
	held     *inventory
	timing   *timing
	gates    *gateSet
	reserved int    // slots of jobs that do not run yet
	exact    []*Job // the jobs with reserved slots that Claims returns next
	onTrial  []*Job // suspects that run: quarantine.go
	begun    int    // the number of jobs chosen so far; for priorityOrder and the turns of lanes
}

// Actions are the next tasks of a worker. They are valid until the next call of Next.
type Actions struct {
	Begin    []*Job             // their handlers are to begin
	Bury     []*Job             // they have no attempt left, and are to end
	Timers   []Timer            // to be passed to Fire when they are over
	Dropped  []*driver.Delivery // to be handed back, until the engine has taken them; the caller keeps the slice
	Deferred []Deferred         // to be handed back for a while
	Kinds    []KindChange       // kinds to open and to shut

	Changed    bool // a job is gone, or its handler has returned
	Claim      bool // Claims may have something
	Renew      bool // a job could begin, and the lease is not sound
	ReadLimits bool // the engine has other limits and pauses than those that are known here
}

// Deferred are jobs that are to be handed back for a while.
type Deferred struct {
	Jobs  []*driver.Delivery
	After time.Duration
}

// KindChange opens a kind, so that the engine hands it out, or shuts it.
type KindChange struct {
	Kind string
	Open bool
}

// Timer asks for a call of Fire when After has passed.
type Timer struct {
	After time.Duration
	what  purpose
	job   *Job       // unless it is gone
	gate  *limitGate // for reopen
	n     int64      // its meaning depends on the purpose
}

// purpose is the purpose of a Timer.
type purpose int

const (
	reschedule purpose = iota // the clock is read once more; n: the least time to wait from now on
	due                       // a job that is to be claimed exactly
	toClaim                   // a job that is to be claimed
	proceed                   // a claimed job
	together                  // the jobs that are claimed together; n: their time
	reopen                    // n: the gate's refusals
	trialOver                 // of a job in quarantine
	giveBack                  // deferred jobs
	slowClaim                 // a claim that takes long
	pauseEnds                 // a pause may have ended; n: gateSet.looks
)

func (a *agenda) timer(t Timer) { a.Timers = append(a.Timers, t) }

// set moves a job to a phase.
func (v *inventory) set(j *Job, p phase) {
	v.counts[j.phase]--
	v.counts[p]++
	j.phase = p
}
