package timingwheel

import (
	"fmt"
	"log/slog"
	"math/bits"
	"runtime"
	"time"

	"github.com/tickwheel/tickwheel/delayqueue"
)

const (
	minTick      = time.Microsecond
	minWheelSize = 2
	maxWheelSize = 1 << 16
	maxShards    = 1 << 16

	// maxChosenShards is where more shards stop paying by default: each one with
	// something due costs the driver a bucket of its own at every tick.
	maxChosenShards = 16
)

// Option sets up a wheel that [New] makes.
type Option func(*config)

type config struct {
	tick     time.Duration
	slots    int
	shards   int
	executor ownExecutor
	gate     gate // of the executor; nil: none
	mayBlock bool // the executor may run a user's function on the driver
	manual   bool
	precise  bool

	maxPending   int
	panicHandler func(recovered any, stack []byte)
	tracer       *tracer
	log          *slog.Logger
}

// WithTick sets the width of a tick, to which deadlines round up: the most by
// which the wheel itself makes a task late. Ticks count from the making of the
// wheel. The default is 1ms, the least 1us; New panics on less.
func WithTick(d time.Duration) Option {
	return func(c *config) {
		if d < minTick {
			panic(fmt.Sprintf("timingwheel: WithTick(%v): less than %v", d, minTick))
		}
		c.tick = d
	}
}

// WithWheelSize sets the number of slots of each wheel, from 2 to 65536 and
// rounded up to a power of two; New panics on any other. The default is 512. With
// more slots an entry cascades less often, and a level takes more memory: 24
// bytes a slot.
func WithWheelSize(slots int) Option {
	return func(c *config) {
		if slots < minWheelSize || slots > maxWheelSize {
			panic(fmt.Sprintf("timingwheel: WithWheelSize(%d): not from %d to %d", slots, minWheelSize, maxWheelSize))
		}
		c.slots = slots
	}
}

// WithShards sets the number of shards, from 1 to 65536 and rounded up to a power
// of two; New panics on a negative or a larger number. Each shard is a hierarchy of
// wheels with a lock of its own. The default, 0, chooses a power of two near
// GOMAXPROCS, at most 16.
//
// With one shard and [Inline] tasks run in the order of their deadlines and, within
// a tick, of their scheduling. The exception is a bucket of more than 256 entries
// that is flushed late, or is coarse: what else comes due meanwhile goes between,
// ahead of what is still in it.
func WithShards(n int) Option {
	return func(c *config) {
		if n < 0 || n > maxShards {
			panic(fmt.Sprintf("timingwheel: WithShards(%d): not from 0 to %d", n, maxShards))
		}
		c.shards = n
	}
}

// WithExecutor sets what runs the tasks: [Goroutines], the default, [Inline], a [Pool], or
// one of your own, which may embed a [Pool]: it is then its Execute that is called, as with
// any other. New panics on nil, and on a nil [ExecutorFunc] or *Pool.
func WithExecutor(e Executor) Option {
	return func(c *config) {
		if isNil(e) {
			panic("timingwheel: WithExecutor(nil)")
		}
		c.resolve(e)
	}
}

// isNil reports whether e would panic only on the driver, with the first task.
func isNil(e Executor) bool {
	switch e := e.(type) {
	case nil:
		return true
	case ExecutorFunc:
		return e == nil
	case *Pool:
		return e == nil
	}
	return false
}

// resolve finds out how the wheel uses an executor. The type decides, not a method: a user's
// type that embeds a Pool has the methods too, and its own Execute, which may count or wrap
// the tasks, would never be called.
func (c *config) resolve(e Executor) {
	c.gate, c.mayBlock = nil, true
	switch e := e.(type) {
	case inline:
		c.executor = e
	case *runQueue:
		c.executor, c.mayBlock = e, false
	case *Pool:
		c.executor = e
		if e.full.policy == waits {
			c.gate, c.mayBlock = e, false
		}
	default:
		c.executor = foreign{e}
	}
}

// WithMaxPending limits how many functions of AfterFunc, Schedule, ScheduleAt,
// ScheduleBatch, Submit and Keyed may be pending. While so many are, Schedule, ScheduleAt,
// Submit and Keyed.Schedule (but for a key that is pending, whose function is replaced)
// return [ErrTooManyPending], and AfterFunc returns a Timer that never runs: its Stop and
// Reset return false. So does ScheduleBatch, of which all or none are accepted. Each
// refusal is counted in [Stats].
//
// A place is free again as soon as the function is handed to the executor, canceled or
// handed back. The count is exact at any time.
//
// Reset is never refused, not even of a Timer that has fired or was stopped, or of a key
// whose function waits in the executor's queue. It takes a place all the same, so there may
// be more pending than n by as many. Timers with a channel, tickers, Sleep, contexts and
// jobs are neither refused nor counted.
//
// The default, 0, is no limit; New panics on a negative number. A limit costs each
// change of what is pending an atomic operation that all processors share.
func WithMaxPending(n int) Option {
	return func(c *config) {
		if n < 0 {
			panic(fmt.Sprintf("timingwheel: WithMaxPending(%d): negative", n))
		}
		c.maxPending = n
	}
}

// WithPanicHandler sets a function that is called for each panic in a task, with its value
// and its stack, in the goroutine of that task. The wheel and its other tasks go on. Without
// a handler, a panic crashes the program, as with time.AfterFunc. A panic in the handler
// itself crashes the program. New panics on nil.
func WithPanicHandler(h func(recovered any, stack []byte)) Option {
	return func(c *config) {
		if h == nil {
			panic("timingwheel: WithPanicHandler(nil)")
		}
		c.panicHandler = h
	}
}

// WithLogger has the wheel log the few things that its user may want to know, and that
// nobody is told otherwise. Each message begins with "timingwheel: ".
//
//   - Warn "driver is late", with the attribute late, a duration: something fired more than a
//     second after its time, because the process was suspended or got no processor. It is
//     logged once, until the driver has caught up.
//   - Warn "the executor holds the driver up", with the attributes for, a duration, and by, the
//     function or the executor as far as known: no function has fired since. It is logged
//     after 1, 10 and 60 seconds of one call. Not under [WithManualDrive].
//   - Error "task panicked", with the attributes panic and stack, if there is a
//     [WithPanicHandler] (without one the program crashes).
//   - Warn "precise wake-ups are not available", see [WithPreciseWakeups].
//
// The wheel calls the logger without a lock, on a goroutine where it delays nothing else: that
// of the task that panicked, that of New's caller, or one of the wheel's own. By default
// nothing is logged. New panics on nil.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l == nil {
			panic("timingwheel: WithLogger(nil)")
		}
		c.log = l
	}
}

// WithTrace names the wheel in profiles and traces, where by default nothing tells the
// tasks of one wheel from those of another. Its driver and its tasks have the pprof label
// "timingwheel" with this name, which CPU and goroutine profiles show and filter by; and in
// a trace (runtime/trace) each flush of a bucket is a region "name: flush", and each task
// "name: task". Channel timers and contexts, which are no tasks, are part of the flush.
//
// The labels are set before a task and cleared after it. Under manual drive it is
// Drive that has them, and its caller has none when it returns. Without a trace
// under way this costs some nanoseconds a task, and no allocation with the executors of
// this package.
func WithTrace(name string) Option {
	return func(c *config) {
		c.tracer = newTracer(name)
	}
}

// WithPreciseWakeups makes the driver wake up on time, on Linux, for one file
// descriptor, a timerfd.
//
// An idle Go process waits for its timers in whole milliseconds, so that what waits
// on one, time.AfterFunc included, is late by up to a millisecond, and after a long
// sleep by up to 0.1 % of it. With this option the driver is late by some
// microseconds, and what is left is the wheel's own rounding up to a tick: choose a
// finer one with [WithTick], or there is little to gain.
//
// A wake-up takes the processor time that it takes without the option, 10 to 18 us, but
// there are more of them: one for each tick in which something is due, where otherwise
// those of the same millisecond share one. Below are lateness at the median and at the
// 99th percentile, in ms, and the share of one processor that firing takes
// (BenchmarkPrecise, five runs on a machine of two processors with other things to do:
// medians of the runs, and for the 99th percentile the least of them too, which is
// nearest to what an idle machine shows). Medians for time.AfterFunc: 0.53 ms, and 0.5,
// 1.3 and 7 to 11 % at the three rates.
//
//	                     default                       precise
//	timers/s   tick      p50    p99, least, CPU        p50    p99, least, CPU
//	      0    any         -      -     -    0.0 %       -      -     -    0.0 %
//	  1,000    10us     0.54   1.06  1.05    1.0 %   0.016   0.04  0.04    1.6 %
//	           100us    0.60   1.12  1.11    1.0 %   0.063   0.11  0.11    1.5 %
//	           1ms      1.05   1.93  1.88    1.0 %   0.52    1.00  1.00    1.0 %
//	 10,000    10us     0.54   1.06  1.05    1.7 %   0.016   0.92  0.03   10.8 %
//	           100us    0.58   1.13  1.12    1.7 %   0.061   0.12  0.11    7.1 %
//	           1ms      1.04   1.93  1.91    1.3 %   0.51    1.01  1.00    1.4 %
//	100,000    10us     0.56   1.16  1.12    8.4 %   0.017   0.12  0.10   75   %
//	           100us    0.61   1.83  1.15    6.8 %   0.066   1.20  0.13   14.7 %
//	           1ms      1.11   7.21  2.03    6.7 %   0.61    4.52  1.04    7.1 %
//
// Ticks of 100us suit most. Finer ones pay where few timers are due, and their 99th
// percentile has been unsteady at 10,000 a second.
//
// Stop gives the descriptor back, and so does the garbage collector once a wheel is
// forgotten. On other systems, and where the descriptor cannot be had, the wheel is
// as it would be without the option, and its Stats say so. Children of the process do
// not inherit it. In a bubble of testing/synctest the option changes nothing: time is
// exact there anyway.
func WithPreciseWakeups() Option {
	return func(c *config) { c.precise = true }
}

// WithManualDrive makes a wheel without a driver goroutine: nothing fires but in
// [TimingWheel.Drive]. With [Inline] tasks have run when that returns; with
// [Goroutines] they may be running still, or not have begun.
func WithManualDrive() Option {
	return func(c *config) { c.manual = true }
}

func newConfig(opts []Option) *config {
	c := &config{tick: time.Millisecond, slots: 512}
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: New: nil Option")
		}
		opt(c)
	}
	if c.executor == nil {
		c.resolve(Goroutines())
	}
	if c.shards == 0 {
		c.shards = min(runtime.GOMAXPROCS(0), maxChosenShards)
	}
	c.shards = 1 << log2(c.shards)
	return c
}

// log2 returns the logarithm of n, rounded up.
func log2(n int) uint { return uint(bits.Len(uint(n - 1))) }

func (c *config) newQueue() *delayqueue.DelayQueue[*slot] {
	if !c.precise {
		return delayqueue.New[*slot]()
	}
	queue := delayqueue.NewPrecise[*slot]()
	if c.log != nil && !queue.Precise() {
		c.log.Warn("timingwheel: precise wake-ups are not available")
	}
	return queue
}

// MissedPolicy says what becomes of the runs of a job whose planned times have
// passed when the run before has ended, because that took long or the process was
// paused. The policies are named after those of the Interval of Rust's tokio.
type MissedPolicy int

const (
	// MissedBurst catches up: the missed runs follow one another at once, one for each
	// planned time. The default of a fixed rate.
	MissedBurst MissedPolicy = iota

	// MissedSkip forgets the missed runs. The next is that of the first planned time
	// still to come, on the same grid. The default of ScheduleFunc.
	MissedSkip

	// MissedDelay forgets the missed runs and starts the grid anew: the next is a
	// period from now, or what the Scheduler has after now.
	MissedDelay
)

// JobOption sets up a [Job].
type JobOption func(*jobConfig)

type jobConfig struct {
	missed    MissedPolicy
	missedSet bool
	survives  bool
}

// SurvivePanics lets a job go on after a run that panics. The panic goes the way of any
// task's: with [WithPanicHandler] the handler is called and Stats counts it; without a
// handler the program crashes, with this option too. The next run comes as if the run had
// returned; it may begin while the handler is still busy with the panic. A [Scheduler] that
// panics ends the job all the same, since then there is no next time; if the run before it
// has panicked too, the handler gets the panic of the run, and Job.Err that of the Scheduler.
func SurvivePanics() JobOption {
	return func(c *jobConfig) { c.survives = true }
}

// OnMissed sets what becomes of missed runs. It panics on an unknown policy, and
// ScheduleWithFixedDelay panics on OnMissed, since there no run can be missed.
func OnMissed(p MissedPolicy) JobOption {
	if p < MissedBurst || p > MissedDelay {
		panic(fmt.Sprintf("timingwheel: OnMissed(%d): no such policy", int(p)))
	}
	return func(c *jobConfig) { c.missed, c.missedSet = p, true }
}
