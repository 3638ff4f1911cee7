package timingwheel

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"reflect"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

const (
	minTick      = time.Microsecond
	minWheelSize = 2
	maxWheelSize = 1 << 16
	maxShards    = 1 << 16
)

// Option sets up a wheel that [New] makes.
type Option func(*config)

type config struct{ engine.Config }

// WithTick sets the width of a tick. Deadlines round up to a tick, so this is the most by
// which the wheel itself makes a task late. Ticks count from the moment when the wheel is
// made. The default is 1ms and the minimum 1us. New panics on less.
//
// Each tick in which something is due costs a bucket and a wake-up. So the cost follows
// the ticks that are in use, not the timers alone. This is the processor time of a whole
// process, as a ratio to that of the same process with time.AfterFunc, on two processors.
// In the mix, 90 % are canceled and 10 % fire. (BenchmarkAlone and BenchmarkMix.)
//
//	tick                         1ms         4ms         16ms        64ms
//	1,000 a second, each alone   1.1 to 1.6  1.0 to 1.3  0.4 to 0.6  0.15 to 0.2
//	a mix of 50,000 a second     1.0 to 1.3  0.9 to 1.1  0.7 to 1.0  0.7 to 0.85
//
// At 10,000 timers a second, each took 2.3 us of processor time with ticks of 100us, 1.8 us
// with 1ms and 1.2 us with 10ms (1.6 to 2.0 us with time.AfterFunc). The fewer timers share
// a tick, the more a coarse tick saves. Sessions of up to half an hour, some 55 that end in
// a second, took 1.25 us each with ticks of 1ms, 0.9 us with 10ms, 0.43 us with 100ms and
// 0.25 us with 1s (BenchmarkTick; in virtual time, so the sleeps of a driver come on top).
// If a timeout may be a second late, say so with a tick of 1s.
func WithTick(d time.Duration) Option {
	return func(c *config) {
		if d < minTick {
			panic(fmt.Sprintf("timingwheel: WithTick(%v): less than %v", d, minTick))
		}
		c.Tick = d
	}
}

// WithWheelSize sets the number of slots of each wheel: 2 to 65536, rounded up to a power
// of two. New panics on any other number. The default is 512. With more slots, an entry
// cascades less often, and a level takes more memory: 40 bytes a slot.
func WithWheelSize(slots int) Option {
	return func(c *config) {
		if slots < minWheelSize || slots > maxWheelSize {
			panic(fmt.Sprintf("timingwheel: WithWheelSize(%d): not from %d to %d", slots, minWheelSize, maxWheelSize))
		}
		c.Slots = slots
	}
}

// WithShards sets the number of shards: 1 to 65536, rounded up to a power of two. New
// panics on a negative or a larger number. Each shard is a hierarchy of wheels with a
// lock of its own. The default is 0: there is one for each processor that the process may
// have, at most 64.
//
// An add goes to the shard of the processor that it runs on. So about as many shards are in use as
// GOMAXPROCS says, also when it changes later. More shards are never used, and each of them takes
// 0.9 KB: WithShards(64) on two processors uses two. With fewer, processors share a shard.
//
// With one shard and [Inline], tasks run in the order of their deadlines, and tasks of
// one tick in the order in which they were scheduled; one that was reset runs anywhere
// among those of its tick. There is one exception. A bucket of more than 256 entries may
// be flushed late, or may be coarse. Other tasks that come due during that flush go between
// its slices, ahead of the entries that are still in it.
func WithShards(n int) Option {
	return func(c *config) {
		if n < 0 || n > maxShards {
			panic(fmt.Sprintf("timingwheel: WithShards(%d): not from 0 to %d", n, maxShards))
		}
		c.Shards = n
	}
}

// WithExecutor sets the executor, which runs the tasks: [Goroutines] (the default),
// [Inline], a pool.Pool, the submit method of another pool ([SubmitFunc]), or one of your
// own. Your own may embed a pool.Pool: the wheel then calls the Execute of your type. New
// panics on nil, and on a nil [ExecutorFunc], [SubmitFunc] or *Pool.
func WithExecutor(e Executor) Option {
	return func(c *config) {
		if isNil(e) {
			panic("timingwheel: WithExecutor(nil)")
		}
		c.resolve(e)
	}
}

// isNil reports whether e is nil in a way that would panic only with the first task, on
// the driver.
func isNil(e Executor) bool {
	switch e := e.(type) {
	case nil:
		return true
	case ExecutorFunc:
		return e == nil
	case SubmitFunc:
		return e == nil
	case door:
		v := reflect.ValueOf(e)
		return v.Kind() == reflect.Pointer && v.IsNil()
	}
	return false // a nil pointer of a user's type may have a good Execute
}

// door is what a pool.Pool has, and a user's type that embeds one.
type door interface{ Open(owner any) *run.Bounded }

// resolve finds out how the wheel uses an executor.
func (c *config) resolve(e Executor) {
	c.Admission, c.MayBlock = nil, true
	switch e := e.(type) {
	case run.Inline:
		c.Executor = e
	case *run.Queue:
		c.Executor, c.MayBlock = e, false
	case ExecutorFunc:
		c.Executor = run.Submitter{Submit: e}
	case SubmitFunc:
		c.Executor = run.Refuser{Submit: e}
	case door:
		b := e.Open(e)
		if b == nil {
			c.Executor = run.Foreign{UserExecutor: e.(Executor)}
			return
		}
		c.Executor = b
		if b.Full == run.Waits {
			c.Admission, c.MayBlock = b, false
		}
	default:
		c.Executor = run.Foreign{UserExecutor: e}
	}
}

// WithMaxPending limits how many functions may be pending. The limit covers AfterFunc,
// Schedule, ScheduleAt, ScheduleBatch, Submit, Keyed and Group. At the limit, Schedule,
// ScheduleAt, Submit and Keyed.Schedule return [ErrTooManyPending]. (Keyed.Schedule does
// not for a key that is pending: it replaces that key's function.) ScheduleBatch does so
// if there is no room for all of the batch. AfterFunc then returns a Timer that never
// runs, and whose Stop and Reset return false. [Stats] counts each refusal.
//
// A place is free again as soon as its function is handed to the executor, canceled or
// handed back. The limit is exact: there are never more than n, and while nobody else
// schedules and nothing fires or is canceled, exactly n are accepted. A call at the limit may
// miss a place that becomes free during the call.
//
// Reset is never refused: not for a Timer that has fired or was stopped, and not for a
// key whose function waits in the executor's queue. It takes a place all the same, so the
// number pending may exceed n by that many. Timers with a channel, tickers, Sleep,
// contexts and jobs are neither refused nor counted.
//
// The default is 0: no limit. New panics on a negative number. A limit costs 5 to 15 ns a
// function while more places are free than 64 for each shard. With fewer, all processors
// share a counter: then it costs 20 to 40 with two of them, and more with many.
func WithMaxPending(n int) Option {
	return func(c *config) {
		if n < 0 {
			panic(fmt.Sprintf("timingwheel: WithMaxPending(%d): negative", n))
		}
		c.MaxPending = n
	}
}

// WithPanicHandler sets a function that is called for each panic in a task, with the
// value and the stack of the panic. It is called in the goroutine of the task. The wheel
// and its other tasks go on. Without a handler, a panic crashes the program, as with
// time.AfterFunc. A panic in the handler itself crashes the program. New panics on nil.
func WithPanicHandler(h func(recovered any, stack []byte)) Option {
	return func(c *config) {
		if h == nil {
			panic("timingwheel: WithPanicHandler(nil)")
		}
		c.PanicHandler = h
	}
}

// WithLogger sets the logger for the few events that a program would not learn otherwise.
// Each message begins with "timingwheel: ".
//
//   - Warn "the driver is late", with the attribute late, a duration: something fired more
//     than a second after its time. The process was suspended or got no processor. It is
//     logged once, and again only after the driver has caught up. The attribute p99 is
//     the 99th percentile of the lateness of the last minute in which something fired,
//     and p99_since_start is that since the wheel was made.
//   - Warn "the executor holds the driver up", with the attributes for, a duration, and
//     by, the function or the executor as far as known: no function has fired since. It
//     is logged after 1, 10 and 60 seconds of one call. Not under [WithManualDrive].
//   - Warn "the executor has refused a function", with the attributes error, and refused,
//     the number of functions that it has refused so far: see [SubmitFunc]. It is logged at
//     most once a minute.
//   - Warn "precise wake-ups are not available": see [WithPreciseWakeups].
//   - Warn "suspended time is not counted", with the attribute error: see
//     [WithSuspendedTime].
//
// A panic in a task is not among them: it goes to the handler of [WithPanicHandler] alone,
// or crashes the program.
//
// The wheel calls the logger without a lock, on a goroutine where it delays nothing else:
// that of New's caller, or one of the wheel's own. By default nothing is logged. New
// panics on nil.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l == nil {
			panic("timingwheel: WithLogger(nil)")
		}
		c.Log = l
	}
}

// WithTrace gives the wheel a name in profiles and traces. By default nothing there tells
// the tasks of one wheel from those of another.
//
// The driver and the tasks get the pprof label "timingwheel" with this name. CPU and
// goroutine profiles show it and filter by it. A trace (runtime/trace) shows each flush
// of a bucket as a region "name: flush", and each task as a region "name: task". Channel
// timers and contexts are not tasks; they are part of the flush.
//
// The labels are set before a task and cleared after it. Under manual drive, Drive has
// the labels, and its caller has none when Drive returns. While no trace is running, this
// costs some nanoseconds a task. With the executors of this package it costs no
// allocation.
func WithTrace(name string) Option {
	return func(c *config) {
		c.Tracer = run.NewTracer(name)
	}
}

// WithPreciseWakeups makes the driver wake up on time, on Linux. It takes one file
// descriptor, a timerfd.
//
// An idle Go process waits for its timers in whole milliseconds. So every timer,
// time.AfterFunc included, is late by up to a millisecond, and after a long sleep by up
// to 0.1 % of it. With this option the driver is late by the time that the system takes
// to wake a thread, plus some 10 us. The wheel still rounds up to a tick: choose a finer
// tick with [WithTick], or there is little to gain.
//
// A wake-up takes the same processor time with the option and without it, 10 to 18 us.
// But there are more wake-ups: one for each tick in which something is due. Without the
// option, the ticks of one millisecond share a wake-up.
//
// With ticks of 100us and 1,000 timers a second, half are late by 0.06 ms instead of 0.6, and
// firing takes 1.5 % of a processor instead of 1.0. Section "Precise wake-ups" of
// benchmarks/SCALING.md has the table.
//
// A tick of 100us suits most uses. A finer tick pays where few timers are due. At 10,000
// timers a second its 99th percentile was unsteady.
//
// Stop gives the descriptor back. So does the garbage collector when it collects a wheel
// that was forgotten. Children of the process do not inherit the descriptor. On other
// systems, and where the system refuses the descriptor, the wheel works as it would
// without the option, and its Stats say so. In a bubble of testing/synctest the option
// changes nothing: time is exact there.
func WithPreciseWakeups() Option {
	return func(c *config) { c.Precise = true }
}

// WithSuspendedTime makes deadlines count the time for which the machine was suspended. By
// default they do not, as with package time: a timer of an hour that has run for a minute
// when a laptop is closed for the night has 59 minutes to run in the morning. With this
// option it fires when the laptop is opened. The table in the package documentation says
// what each kind of deadline follows.
//
// A timer that came due during the suspend fires when the machine resumes, and is late by
// up to the length of the suspend. Stats count that as lateness. A job at a fixed rate
// catches up on its missed runs, unless [OnMissed] says otherwise. A Deadline that was
// read before the suspend is wrong by that length; one that is read later is right, but
// that of a context does not change. A context whose parent is one of package context with
// an earlier deadline has none of its own: it ends with the parent, by the monotonic clock.
//
// The option needs Linux. It takes what a calendar job of [TimingWheel.ScheduleFunc] takes: a
// goroutine that waits in the network poller and a file descriptor, one of each for the whole
// process, until the last such wheel is stopped or garbage. On Windows the option changes
// nothing, since all deadlines there count that time. On macOS and other systems, and where
// the system refuses the descriptor, the wheel works as it would without the option,
// and its Stats say so. In a bubble of testing/synctest and with [WithManualClock] it changes nothing.
//
// With the option each reading of the clock compares two clocks, so that an add right
// after a suspend is exact. An add and cancel takes 1.4 of the time.
func WithSuspendedTime() Option {
	return func(c *config) { c.CountSuspends = (*engine.Engine).CountSuspends }
}

// WithManualDrive makes a wheel without a driver goroutine: things fire only during a
// call of [TimingWheel.Drive]. With [Inline], the tasks have run when Drive returns. With
// [Goroutines], they may be still running, or may not have begun. New panics if the executor
// is a pool.Pool of pool.Wait: a task that waits for room would run between two calls.
func WithManualDrive() Option {
	return func(c *config) { c.Manual = true }
}

// WithManualClock makes a wheel in virtual time. Its clock stands at start until
// [TimingWheel.Advance] moves it, and nothing fires but in Advance. It is for tests and
// simulations that cannot live in a bubble of testing/synctest, because other processes
// or real connections take part, and for going through a long time in a short one.
//
// All of the wheel follows its clock: delays, the times that channels send, the deadlines
// of contexts, the calendar of ScheduleFunc, and all times that methods return.
// [TimingWheel.Now] returns its time. The start may be any time. The clock ends 292 years
// later, and moves no more then.
//
// Functions run on the executor, as in real time. Before the clock moves on, Advance waits
// until they have returned: so each function sees its own time in Now, and a job runs as
// often as in real time. Functions of one deadline run at the same time, in any order. For
// a simulation, take [Inline] and one shard ([WithShards]): then functions run one after
// the other, in the same order in each run.
//
// Advance waits for functions, and not for goroutines that wait for a channel or a context
// of the wheel, or that a function has started. It does not wait for ever for a function
// that blocks: [TimingWheel.Advance] says what happens then. A test with many such
// functions or goroutines is better off in a bubble of testing/synctest.
//
// A stopped wheel's clock stands still for ever, so Stop and [TimingWheel.Shutdown] end
// all waits on it at once. Later waits end at once, too. Channels and Sleep get the time
// of the stopped clock, and contexts end with context.Canceled and the cause
// [ErrStopped]. (Package time cannot take them over: its clock is another.)
//
// A context of the wheel has its deadline in virtual time. Code that compares it with
// real time, as a net.Dialer does, gets a wrong result. A parent may have a deadline in
// real time.
//
// New panics if [WithManualDrive] is given too, and if the executor is a pool.Pool of
// pool.Wait. [WithPreciseWakeups] does nothing.
func WithManualClock(start time.Time) Option {
	start = start.Round(0) // times with a monotonic reading are compared by that, which is real time's
	return func(c *config) { c.Virtual, c.Start = true, start }
}

func newSettings(opts []Option) *engine.Config {
	c := &config{engine.Config{Tick: engine.DefaultTick, Slots: 512, Executor: run.NewQueue(nil)}}
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: New: nil Option")
		}
		opt(c)
	}
	switch {
	case c.Virtual && c.Manual:
		panic("timingwheel: New: WithManualDrive excludes WithManualClock")
	case c.Admission != nil && c.Manual:
		panic("timingwheel: New: WithManualDrive excludes a Pool with pool.Wait: use pool.CallerRuns or pool.Discard")
	case c.Admission != nil && c.Virtual:
		panic("timingwheel: New: WithManualClock excludes a Pool with pool.Wait: use pool.CallerRuns or pool.Discard")
	}
	c.Manual = c.Manual || c.Virtual
	return &c.Config
}

// MissedPolicy decides about the missed runs of a job. A run is missed if its planned
// time has passed when the run before it ends: because that run took long, or because the
// process was paused. The policies are named after those of the Interval of Rust's tokio.
type MissedPolicy int

const (
	// MissedBurst catches up: the missed runs follow one another at once, one for each
	// planned time. It is the default of a fixed rate. A [Scheduler] is called once for
	// each run. There is no other bound: if the clock is set forward by a year, a job of
	// each second runs 31.5 million times, unless it is stopped or the clock is put right.
	MissedBurst MissedPolicy = iota

	// MissedSkip forgets the missed runs. The next run is at the first planned time that
	// is still to come, on the same grid. It is the default of ScheduleFunc, where a
	// Scheduler is called at most six times for it.
	MissedSkip

	// MissedDelay forgets the missed runs and starts the grid anew. The next run is one
	// period from now, or at the time that the Scheduler returns for now. A Scheduler is
	// called twice for it.
	MissedDelay
)

// JobOption sets up a [Job].
type JobOption func(*jobConfig)

type jobConfig struct {
	missed    MissedPolicy
	missedSet bool
	survives  bool
	jitter    time.Duration // by which all runs are later
}

// SurvivePanics lets a job go on after a run that panics. The panic is handled as that of
// any task: with [WithPanicHandler] the handler is called and Stats counts it; without a
// handler the program crashes, even with this option. The next run comes as if the run
// had returned; it may begin while the handler is still busy with the panic. A
// [Scheduler] that panics ends the job all the same, since then there is no next time; if
// the run before it has panicked too, the handler gets the panic of the run, and Job.Err
// that of the Scheduler.
func SurvivePanics() JobOption {
	return func(c *jobConfig) { c.survives = true }
}

// OnMissed sets the policy for missed runs. It panics on an unknown policy.
// ScheduleWithFixedDelay panics on OnMissed, since no run can be missed there.
func OnMissed(p MissedPolicy) JobOption {
	if p < MissedBurst || p > MissedDelay {
		panic(fmt.Sprintf("timingwheel: OnMissed(%d): no such policy", int(p)))
	}
	return func(c *jobConfig) { c.missed, c.missedSet = p, true }
}

// Jitter delays the runs of a job by a part of d, so that many jobs of one time do not begin
// at once. The part is at least zero and less than d. It is the same for all runs, and follows
// from the name alone: the parts of many names are evenly spread, and a job has the same part
// after a restart. So the names of jobs should differ, also between processes: the name of the
// host can be a part of it.
//
// All planned times of a [Scheduler] are later by that part, and so is [Job.Next]. The first
// run of a fixed rate or a fixed delay is later, and the others follow from there, until
// [Job.Reset] plans anew, without the part. No run is lost, and runs do not overlap, even if d
// is more than the time between two. [OnMissed] goes by the delayed times. The Scheduler's Next
// gets times that are earlier by the part: so a run whose delay has not passed when the job
// starts is still to come.
//
// A d of zero delays nothing. Jitter panics on a negative d. A later Jitter replaces an earlier one.
func Jitter(d time.Duration, name string) JobOption {
	if d < 0 {
		panic(fmt.Sprintf("timingwheel: Jitter: negative d: %v", d))
	}
	var part time.Duration
	if d > 0 {
		part = time.Duration(spread(name) % uint64(d))
	}
	return func(c *jobConfig) { c.jitter = part }
}

// spread returns a number that differs in all its bits for names that differ in one letter: FNV alone leaves the high
// bits alike, so the last step of MurmurHash3 mixes them. SHA-256 would make programs 200 KB larger.
func spread(name string) uint64 {
	sum := fnv.New64a()
	sum.Write([]byte(name))
	h := sum.Sum64()
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
