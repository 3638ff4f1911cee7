package timingwheel

import (
	"fmt"
	"time"
)

// Now returns the time of the wheel's clock. That is time.Now, or, with
// [WithManualClock], the time to which [TimingWheel.Advance] has moved it; inside a
// function that runs inline it is that function's own, its deadline. It can be called at
// any time, from anywhere.
func (w *TimingWheel) Now() time.Time { return w.clock.read() }

// Advance moves the clock of a wheel that was made with [WithManualClock] by d, and does
// all that comes due meanwhile. It returns how many tasks it handed to the executor;
// channel timers, tickers and contexts do not count.
//
// The clock goes from deadline to deadline, and stands still at each while what is due is
// handed on, so that with [Inline] each function sees its own time in [TimingWheel.Now].
// What functions schedule is done in the same call if it comes due within d, too. So a
// function that always schedules another without a delay keeps Advance for ever. With a d
// of zero, Advance does what is due now.
//
// The clock ends after 292 years, a nanosecond before the longest time.Duration from its
// start, and Advance moves it no further. What would be due later never is: it stays
// pending until it is canceled or Stop hands it back. So with a ticker, a job or a timer
// that resets itself, Advance ends too.
//
// With an executor other than Inline, the tasks may be still running, or may not have
// begun, when Advance returns; those that began may have seen a later time.
//
// One call at a time advances. Another call waits for its turn, so a function that runs
// inline must not call Advance: it would wait for itself. On a stopped wheel Advance does
// nothing and returns 0. If a function stops the wheel, the clock stays at that
// function's time. If an inline function panics and the caller recovers, or if it ends
// the goroutine (runtime.Goexit), the clock stays there too, and what came due together
// with it is done in the next call.
//
// Advance panics if d is negative, and on a wheel without WithManualClock. Between two
// deadlines it costs what a wake-up of the driver does without the sleep, whatever the
// time between them.
func (w *TimingWheel) Advance(d time.Duration) int {
	switch {
	case !w.clock.isManual():
		panic("timingwheel: Advance of a wheel without WithManualClock")
	case d < 0:
		panic(fmt.Sprintf("timingwheel: Advance(%v): negative", d))
	}
	if !w.takeTurn(w.ctx) {
		return 0
	}
	defer w.endTurn()
	end := min(later(w.clock.now(), d), endOfClock)
	handed := w.driver.finish() // what is left of a call in which a task panicked or ended the goroutine
	for w.advanceToNext(end) {
		if b, ok := w.driver.queue.PollAt(w.clock.read()); ok {
			w.driver.begin(b)
			handed += w.driver.finish()
		}
	}
	if w.ctx.Err() == nil {
		w.clock.set(end)
	}
	return handed
}

// advanceToNext sets the clock to the expiration of the next bucket, and reports false if
// there is none up to end.
func (w *TimingWheel) advanceToNext(end time.Duration) bool {
	w.driver.dropEmpty()
	_, at, ok := w.driver.queue.Peek()
	if !ok {
		return false
	}
	next := at.Sub(w.clock.start)
	if next > end {
		return false
	}
	w.clock.set(max(next, w.clock.now()))
	return true
}
