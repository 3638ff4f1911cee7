package timingwheel

import (
	"fmt"
	"time"
)

// Now returns the time of the wheel's clock. That is time.Now, or, with
// [WithManualClock], the time to which [TimingWheel.Advance] has moved it; inside a
// function that runs inline it is that function's own, its deadline. It can be called at
// any time, from anywhere.
func (w *TimingWheel) Now() time.Time { return w.engine().Clock().Read() }

// Drive drives a wheel that was made with [WithManualDrive]. It waits up to timeout for
// the next bucket to expire, and does all that is due by then. It returns how many tasks
// it handed to the executor; channel timers, tickers and contexts do not count. If
// timeout is not positive, it does not wait. It moves no clock but the wheel's own: time
// itself passes as always.
//
// Drive returns 0 if nothing came due in time, if the tasks of the bucket only moved to a
// finer wheel, if they were canceled while it waited, and on a stopped wheel.
//
// A task without delay that is added while Drive runs waits for the next call. There are
// three exceptions. Where another such task was pending before, it may run together with
// that one. One that is added while a bucket of more than 256 is flushed may go between
// its slices. And in a bubble of testing/synctest, whose clock stands still, the same
// call runs it: a function that always schedules another without a delay keeps Drive for
// ever there. With [Inline] this runs all that is pending, where no ticker or job goes on
// for ever:
//
//	for w.Len() > 0 {
//		w.Drive(time.Hour)
//	}
//
// With an executor other than [Inline], the tasks may be still running, or may not have
// begun, when Drive returns: unlike Advance it does not wait for them, since real time goes
// on anyway.
//
// One call drives at a time. Another call waits for its turn, up to its timeout. So a
// call from a task that runs inline only waits until its timeout ends.
//
// Inline tasks run on the caller's goroutine. If one panics and the caller recovers, the
// tasks that came due together with it run in the next call. (If an executor of your own
// gets several tasks in one call and panics, those that have not begun run on goroutines
// of the wheel.)
//
// Drive panics on a wheel that drives itself.
func (w *TimingWheel) Drive(timeout time.Duration) int {
	e := w.engine()
	if !e.IsManual() || e.Clock().IsManual() {
		panic("timingwheel: Drive: the wheel was made without WithManualDrive")
	}
	return e.Drive(timeout)
}

// Advance moves the clock of a wheel that was made with [WithManualClock] by d, and does
// all that comes due meanwhile. It returns how many tasks it handed to the executor;
// channel timers, tickers and contexts do not count.
//
// The clock goes from deadline to deadline. At each it stands still until the functions
// that are due have returned, so that each sees its own time in [TimingWheel.Now]. When
// Advance returns, they have returned, and contexts whose deadline has come are done. The
// caller sees all that the functions have written.
//
// If a function schedules another that comes due within d, the same call runs it. So a
// function that always schedules another without a delay keeps Advance for ever. With a d
// of zero, Advance does what is due now.
//
// The clock ends after 292 years, a nanosecond before the longest time.Duration from its
// start, and Advance moves it no further. A task that would be due later never is: it stays
// pending until it is canceled or Stop hands it back. So with a ticker, a job or a timer
// that resets itself, Advance ends too.
//
// A function may block: because it takes long, waits for the caller of Advance, or waits
// for a later time of this clock. Advance cannot tell these apart. It waits for a function
// for at most a second of real time, and for half as long each time that one has blocked,
// but at least 10ms. Then it goes on without the function, and gives it a millisecond at
// each later deadline. In a bubble of testing/synctest such waits take no time. This holds
// also for a task that an [Executor] keeps without running it. Under Inline, a function
// that waits for the wheel or for the caller of Advance waits for ever.
//
// One call at a time advances. Another call waits for its turn, so a function must not call
// Advance: it would wait for itself, for a second or, under Inline, for ever. On a stopped
// wheel Advance does nothing and returns 0. If a function stops the wheel, the clock stays
// at that function's time. If an inline function panics and the caller recovers, or if it ends
// the goroutine (runtime.Goexit), the clock stays there too, and what came due together
// with it is done in the next call.
//
// Advance panics if d is negative, and on a wheel without WithManualClock. Between two
// deadlines it costs what a wake-up of the driver does without the sleep, whatever the
// time between them: 1 us with one function under Inline, and 5 us under Goroutines.
func (w *TimingWheel) Advance(d time.Duration) int {
	e := w.engine()
	switch {
	case !e.Clock().IsManual():
		panic("timingwheel: Advance: the wheel was made without WithManualClock")
	case d < 0:
		panic(fmt.Sprintf("timingwheel: Advance(%v): negative", d))
	}
	return e.Advance(d)
}
