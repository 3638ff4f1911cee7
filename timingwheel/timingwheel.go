package timingwheel

import (
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// TimingWheel schedules functions. Make one with [New] and end it with [TimingWheel.Stop]
// or [TimingWheel.Shutdown]. The zero value is not usable. All methods are safe for
// concurrent use, and may be called from inside a task.
//
// A wheel that was made in a bubble of testing/synctest belongs to it. Outside, all that sets a
// time panics. So do Stop and Shutdown of the wheel, and all that has a channel of the bubble:
// Stop of a channel timer, a ticker or a job, Wait and Cancel of a Future, and the CancelFunc
// of a context that has not ended.
//
// A wheel that was made outside can be used in a bubble, whatever the bubble's date is. A function that is scheduled there
// goes by the bubble's clock, on a small wheel of its own. It runs as with [Goroutines],
// whatever the executor is, and Len, Stats and limits of the wheel do not include it. The
// Now of a Stats or a Snapshot that is taken there is wrong, since the time outside is not
// known. A Timer, a Keyed or a Group that was made outside can be stopped in a bubble, but
// panics when it is set. The wheel itself cannot be stopped there: Stop and Shutdown panic. A wheel of
// [WithManualDrive] panics too. One of [WithManualClock] has no part in this, and no check: as with
// any channel of a bubble, a value for one that was made in a bubble must be sent there, so call
// Advance in that bubble.
type TimingWheel engine.Engine

// engine returns what the wheel is inside. TimingWheel is the same type with other methods,
// so that package purgatory and package pool can do this too, and nobody outside this module.
func (w *TimingWheel) engine() *engine.Engine { return (*engine.Engine)(w) }

// here returns the engine that is right for the caller, and the time of its clock: see
// [engine.Engine.Here].
func (w *TimingWheel) here() (*engine.Engine, time.Duration) { return w.engine().Here() }

// attachment is what the surface itself keeps of a wheel: the engine has it for us.
type attachment struct {
	wall         func() time.Time // the wall clock; tests put another in its place
	calendarJobs calendarJobs
}

func (w *TimingWheel) attachment() *attachment { return w.engine().Attached().(*attachment) }

// New returns a wheel that is running. The options change the defaults: ticks of 1ms, 512
// slots a wheel, about one shard a processor, and an executor under which a task that
// blocks delays no other. New panics on an option that is out of range.
//
// A wheel is cheap to make: some microseconds, and 4 KB on two processors. With one timer of
// an hour it takes 9 KB. A shard that is used on all levels takes 20 KB more for each level, and
// 32 KB for each 1024 timers. So a wheel for each tenant is affordable, but one that is
// shared wakes up less often.
//
// A wheel has a goroutine of its own, the driver, only while something is due. While
// something is pending, it has a timer of package time. So a wheel that is forgotten
// without Stop fires what is pending, and is then garbage like anything else, unless a job
// or a ticker goes on for ever. All wheels with [WithSuspendedTime] or a pending job of
// [TimingWheel.ScheduleFunc] share one goroutine more, on Linux. (If what was pending was canceled, the timer may keep the
// wheel until its time has come.)
func New(opts ...Option) *TimingWheel { return newWheel(newSettings(opts)) }

func newWheel(c *engine.Config) *TimingWheel {
	a := new(attachment)
	e := engine.New(c, a)
	a.wall = e.Clock().Read
	return (*TimingWheel)(e)
}

// Len returns the number of pending entries: tasks that were not handed to the executor,
// canceled or handed back. Channel timers, tickers and the deadlines of contexts count
// too. The number is exact while nothing else is under way. O(shards).
func (w *TimingWheel) Len() int { return w.engine().Len() }

// Pending is a function that was pending when the wheel was stopped: its deadline,
// rounded up to a tick and at most 292 years ahead, and the function.
type Pending struct {
	Deadline time.Time
	Func     func()
}

// Stop ends the wheel at once and returns the functions that will not run, in no order.
// These are all that were pending of [TimingWheel.AfterFunc], [TimingWheel.Schedule],
// [TimingWheel.ScheduleAt], [TimingWheel.ScheduleBatch], [Keyed], [Group] and the
// Schedule of a pool.Pool, each exactly once.
//
// Nothing else that is pending is returned. Channel timers and contexts move to package time.
// Tickers end. A [Job] or [Future] ends with [ErrStopped].
//
// A function that has been handed to the executor goes on. Stop does not wait for it: use
// [TimingWheel.Shutdown], also after Stop, or a sync.WaitGroup of your own. Nor does Stop
// wait for the driver to hand over what it has just taken. A function that is scheduled
// after Stop is refused. One that is scheduled at the same time is refused or handed back,
// or has run.
//
// Stop may be called any number of times, from anywhere, also from a task. The first call
// returns nil if nothing is pending, and later calls return nil. If several calls
// overlap, each returns a part.
//
// Stop costs a pass over what is pending, and takes the memory that it returns, 32 bytes a
// function; that of the wheel is freed on the way. After every 256 functions it gives way
// to those who wait for the lock, so it holds nobody up. Meanwhile, functions that it has
// not come to yet can be canceled. They are not returned then.
//
// The wheel of [Default] cannot be stopped: Stop panics, and so does Shutdown.
func (w *TimingWheel) Stop() []Pending {
	process.mustNotEnd(w)
	var c collector
	w.engine().Stop(&c)
	return c.all()
}

// collector gets what is handed back. It asks for the memory once, since append would take
// several times as much: for all one-shots, although Futures and the operations of package
// purgatory end instead. If there are many of these, it returns a copy.
type collector struct{ pending []Pending }

func (c *collector) Expect(n int64) {
	if n > 0 {
		c.pending = make([]Pending, 0, n)
	}
}

func (c *collector) Take(deadline time.Time, f func()) {
	c.pending = append(c.pending, Pending{deadline, f})
}

func (c *collector) all() []Pending {
	switch n := len(c.pending); {
	case n == 0:
		return nil
	case n < cap(c.pending)/2:
		return append([]Pending(nil), c.pending...)
	}
	return c.pending
}

// Shutdown ends the wheel after its pending functions. It accepts no more. It waits until
// all pending functions have been handed to the executor, however far off they are, and
// until all functions that were handed over have ended. Then it stops the wheel and
// returns nil.
//
// After the call the wheel refuses new functions, as a stopped wheel does: also a new
// function for a key of [Keyed], and a timer that is not pending. Pending functions can
// still be canceled, and reset to an earlier time. A reset to a later time is refused: it
// returns false, and the function runs when it was due before. So traffic that keeps its
// timers alive cannot prolong Shutdown: it returns, at the latest, when the last deadline
// that was pending at the call has passed and all tasks have ended.
//
// Jobs end: Shutdown drops their pending runs, and waits for a run that has begun.
// Channel timers and contexts move to package time at once, and tickers end, as with
// [TimingWheel.Stop].
//
// If ctx ends first, Shutdown returns an error that wraps ctx.Err(). All that is pending then
// stays pending, and fires when it is due, until Stop hands it back. Shutdown may be
// called again.
//
// On a wheel that is stopped, before or meanwhile, Shutdown waits only for the tasks that
// run or wait in the executor's queue. So a service whose far-off timers should not hold
// up its end calls Stop and then Shutdown.
//
// Shutdown may be called any number of times, by several goroutines at the same time. A
// task that calls it waits for itself until ctx ends, also if it runs inline. An executor
// of your own that never runs a task keeps Shutdown waiting in the same way. With
// [WithManualDrive] or [WithManualClock], somebody has to go on calling Drive or Advance.
// Shutdown costs a pass over what is pending, and gives way on it, as Stop does.
// It panics on the wheel of [Default].
func (w *TimingWheel) Shutdown(ctx context.Context) error {
	process.mustNotEnd(w)
	if err := w.engine().Drain(ctx); err != nil {
		return fmt.Errorf("timingwheel: Shutdown: %w", err)
	}
	w.Stop()
	return nil
}
