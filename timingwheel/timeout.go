package timingwheel

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Timeout names a function that [TimingWheel.Schedule] or [TimingWheel.ScheduleAt] has
// scheduled. It is a small value: copy and keep it at will. Cancel and Reset do not write
// it, so several goroutines may call them on one variable, unless one of them assigns it.
// Once the function was handed to the executor or canceled, the Timeout names nothing, and
// it keeps no function alive. The zero Timeout names nothing.
type Timeout engine.Handle

// Schedule arranges for f to run once, d from now, and returns a [Timeout] that can
// cancel it. It allocates nothing, except when the arena or the levels grow.
//
// f never runs before d has passed. It runs at most one tick later, plus the time that
// the system takes to wake the driver (on Linux up to a millisecond without
// [WithPreciseWakeups]), plus the time of a cascade under way, plus the time for which
// the executor holds the driver up. If d is not positive, f is due now; it still runs on
// the executor, never on the caller's goroutine. The largest d is 292 years.
//
// A nil f panics. Schedule returns [ErrStopped] on a stopped wheel, and
// [ErrTooManyPending] where [WithMaxPending] permits no more; f will not run then.
//
// O(1), whatever is pending. While the driver is late, because no processor is free, one
// call in some thousands lets other goroutines run first (runtime.Gosched). So does all that
// puts something on a wheel: Keyed, Group, Submit, timers, contexts and Pool.Schedule, too.
func (w *TimingWheel) Schedule(d time.Duration, f func()) (Timeout, error) {
	if f == nil {
		panic("timingwheel: Schedule: nil function")
	}
	e, now := w.here()
	h, err := e.Schedule(engine.Delay{Now: now, D: d}, f, engine.OneShot)
	return Timeout(h), err
}

// ScheduleAt is [TimingWheel.Schedule] for a point in time. It converts the time to a
// delay once, as time.Until does: a later step of the wall clock does not change the
// delay. (Nor does a suspend, without [WithSuspendedTime]. With it, a time that has a monotonic
// reading counts the suspends from the call on.) A time in the past means now, and one more
// than 292 years ahead means in 292 years.
func (w *TimingWheel) ScheduleAt(at time.Time, f func()) (Timeout, error) {
	if f == nil {
		panic("timingwheel: ScheduleAt: nil function")
	}
	// One reading of the clock: with two, a time on a tick would be a tick late.
	e := w.engine()
	now := e.Clock().Read()
	e, since := e.HereAt(e.Clock().Since(now))
	h, err := e.Schedule(engine.Delay{Now: since, D: at.Sub(now)}, f, engine.OneShot)
	return Timeout(h), err
}

// Cancel takes the function off the wheel. It returns true if the call did so: then the
// function will not run, and the wheel holds nothing of it. It returns false if the
// function was handed to the executor, was handed back by [TimingWheel.Stop] or was
// canceled before, and for the zero Timeout; so false does not mean that the function has
// run. If several calls overlap, one of them returns true. O(1).
func (t Timeout) Cancel() bool {
	h := engine.Handle(t)
	if !h.Joined() {
		return false
	}
	h.LockShard() // without a defer, which costs 2 ns: nothing here can panic
	canceled := h.Cancel()
	h.UnlockShard()
	return canceled
}

// Reset moves the function to d from now, if it is still pending, and reports whether it
// was. If Reset returns false, it has changed nothing: the function was handed to the
// executor, was handed back by [TimingWheel.Stop] or was canceled before, or the Timeout
// is the zero Timeout. During [TimingWheel.Shutdown], Reset also returns false for a
// later time: the function runs when it was due before, unless Cancel prevents it.
//
// So to push back the end of an idle connection, call Reset when there is traffic; false
// says that the connection is being closed. (Reset of a [Timer] that has fired arms it
// again, and the second run may overlap the first.)
//
// The delay is that of [TimingWheel.Schedule]: a d that is not positive makes the
// function due now. The Timeout stays valid. O(1), without an allocation.
//
// Each Reset takes the lock of the shard that the function is on. Functions that were
// scheduled on one processor share a shard. If one goroutine schedules and many others push
// back, use [TimingWheel.AfterFunc]: Reset of a [Timer] mostly takes no lock. With 16
// others it took a third of the time.
func (t Timeout) Reset(d time.Duration) bool {
	h := engine.Handle(t)
	if !h.Joined() {
		return false
	}
	after := h.After(d)
	h.LockShard()
	defer h.UnlockShard()
	return h.Reset(after)
}

// Deadline returns the time at which the function is due, rounded up to a tick, and false
// if it is not pending any more. The time is no more than 292 years after the wheel was
// made. O(1).
func (t Timeout) Deadline() (time.Time, bool) {
	h := engine.Handle(t)
	if !h.Joined() {
		return time.Time{}, false
	}
	h.LockShard()
	defer h.UnlockShard()
	return h.Due()
}
