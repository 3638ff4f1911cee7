// Package subject puts what the benchmarks compare behind one small interface:
// the wheel, package time, other libraries, and a heap.
//
// Each subject is set up as well as its interface allows, and its Setup says how.
// Where a subject misses something, its Note says so; the harness never makes up
// for it in a way that would hide it.
package subject

import "time"

// Timers is one instance of a subject, running.
//
// Handles stay inside: they differ in type from subject to subject, and in an
// interface value some would cost an allocation that their users do not pay.
type Timers interface {
	// Add starts a timer that runs f after d, and drops its handle.
	Add(d time.Duration, f func())
	// AddCancel starts a timer and cancels it.
	AddCancel(d time.Duration, f func())
	// Around starts a timer, calls work, and cancels the timer.
	Around(d time.Duration, f, work func())

	// Keep makes room for n handles, and drops those kept before.
	Keep(n int)
	// Set starts a timer and keeps its handle as the i-th.
	Set(i int, d time.Duration, f func())
	// Cancel cancels the i-th timer.
	Cancel(i int)
	// Reset sets the i-th timer, which is pending, to run d from now.
	Reset(i int, d time.Duration)

	// CanReset reports whether the subject has a Reset.
	CanReset() bool
	// Stop ends the instance. Pending timers may be left behind.
	Stop()
}

// Options are what a workload may ask of a subject.
type Options struct {
	// Tick is the width of a tick, for subjects that have one to choose. Zero
	// means a millisecond.
	Tick time.Duration
	// Slots is the number of slots of a wheel. Zero means what suits the subject
	// best.
	Slots int
	// Shards is the number of shards of tickwheel. Zero means its own choice.
	Shards int
}

func (o Options) tick() time.Duration {
	if o.Tick == 0 {
		return time.Millisecond
	}
	return o.Tick
}

func (o Options) slots(best int) int {
	if o.Slots == 0 {
		return best
	}
	return o.Slots
}

// Subject is one row of the tables.
type Subject struct {
	Name  string
	Setup string // how it is set up, for the reader of the results
	// FinestTick is the finest tick that it can be given; zero if it has none to
	// choose.
	FinestTick time.Duration
	// Most is how many pending timers it can bear within the time that a run may
	// take, and Why says what limits it. Zero means that nothing does.
	Most int
	Why  string
	// OneByOne is set if tasks that are due together run one after the other, so
	// that one that blocks holds up the rest.
	OneByOne bool
	// Kind is what it makes. A subject is compared with those of its kind.
	Kind Kind
	// New starts an instance. That of a subject of another kind than Functions has
	// the interface that belongs to the kind, too.
	New func(Options) Timers
}

// Kind is what a subject makes, and with that which workloads it takes part in.
type Kind int

// The kinds.
const (
	Functions    Kind = iota // timers that run a function
	ContextMaker             // contexts with a timeout: the interface Contexts
	ChannelMaker             // timers with a channel: Channels
	TickerMaker              // tickers: Tickers
	JobMaker                 // recurring functions: Jobs
	KeyMaker                 // one pending function for each key: Keys
	Parker                   // operations parked under a key: Parking
)

// baselines are the subjects to which the ratios of each kind are taken.
var baselines = map[Kind]string{
	Functions:    Baseline,
	ContextMaker: contextWithTimeout.Name,
	ChannelMaker: timeNewTimer.Name,
	TickerMaker:  timeNewTicker.Name,
	JobMaker:     timeReset.Name,
	KeyMaker:     mutexMap.Name,
	Parker:       channelLists.Name,
}

// Baseline returns the name of the subject to which its ratios are taken.
func (s Subject) Baseline() string { return baselines[s.Kind] }

// Bears returns n, or the most that the subject can bear.
func (s Subject) Bears(n int) int {
	if s.Most > 0 {
		return min(n, s.Most)
	}
	return n
}

// BearsOften is Bears for workloads that fill anew for each case: a tenth of their
// most for subjects that have one.
func (s Subject) BearsOften(n int) int {
	if s.Most > 0 {
		return min(n, s.Most/10)
	}
	return n
}

// Baseline is the name of the subject to which the ratios of timers that run a
// function are taken.
const Baseline = "time.AfterFunc"

// None is the name of the subject that does nothing, whose cost is that of the
// load generator.
const None = "none"

// All returns the subjects in the order in which each round runs them.
func All() []Subject {
	return []Subject{
		none, stdtime,
		wheelSchedule, wheelScheduleInline, wheelSchedulePrecise, wheelAfterFunc, wheelAfterFuncInline,
		russellLuo, goZero, gost, heapTimer,
		contextWithTimeout, wheelWithTimeout,
		timeNewTimer, wheelNewTimer,
		timeNewTicker, wheelNewTicker,
		timeReset, wheelJobs,
		mutexMap, wheelKeyed,
		channelLists, closedChannels, wheelPurgatory,
	}
}

// Named returns the subject of that name.
func Named(name string) (Subject, bool) {
	for _, s := range All() {
		if s.Name == name {
			return s, true
		}
	}
	return Subject{}, false
}

// functions are what a subject consists of, with handles of type H. Called
// through here each of them costs a nanosecond or two more than called directly,
// which is the same for all subjects and part of what the subject None shows.
type functions[H any] struct {
	add    func(d time.Duration, f func()) H
	cancel func(H)
	reset  func(H, time.Duration) // nil if there is none
	stop   func()
}

// timers makes Timers of functions.
func timers[H any](f functions[H]) Timers { return &kept[H]{functions: f} }

type kept[H any] struct {
	functions[H]
	handles []H
}

func (k *kept[H]) Add(d time.Duration, f func())       { k.add(d, f) }
func (k *kept[H]) AddCancel(d time.Duration, f func()) { k.cancel(k.add(d, f)) }

func (k *kept[H]) Around(d time.Duration, f, work func()) {
	h := k.add(d, f)
	work()
	k.cancel(h)
}

func (k *kept[H]) Keep(n int)                           { k.handles = make([]H, n) }
func (k *kept[H]) Set(i int, d time.Duration, f func()) { k.handles[i] = k.add(d, f) }
func (k *kept[H]) Cancel(i int)                         { k.cancel(k.handles[i]) }
func (k *kept[H]) Reset(i int, d time.Duration)         { k.reset(k.handles[i], d) }
func (k *kept[H]) CanReset() bool                       { return k.reset != nil }
func (k *kept[H]) Stop()                                { k.stop() }
