package timingwheel

import (
	"context"
	"time"
)

// Drive drives a wheel that was made with [WithManualDrive]. It waits up to timeout for
// the next bucket to expire, and does all that is due by then. It returns how many tasks
// it handed to the executor; channel timers, tickers and contexts do not count. If
// timeout is not positive, it does not wait. It moves no clock but the wheel's own: time
// itself passes as always.
//
// Drive returns 0 if nothing came due in time, if the tasks of the bucket only moved to a
// finer wheel, if they were canceled while it waited, and on a stopped wheel.
//
// A task without delay that is added while Drive runs waits for the next call. The
// exception: one that is added while a bucket of more than 256 is flushed may go between
// its slices. To run all that is pending, where no ticker or job goes on for ever:
//
//	for w.Len() > 0 {
//		w.Drive(time.Hour)
//	}
//
// With an executor other than [Inline], the tasks may be still running, or may not have
// begun, when Drive returns.
//
// One call drives at a time. Another call waits for its turn, up to its timeout. So a
// call from a task that runs inline only waits until its timeout ends.
//
// Inline tasks run on the caller's goroutine. If one panics and the caller recovers, the
// tasks that came due together with it run in the next call. (If an executor of your own
// runs tasks inline, these tasks are lost, up to 255.)
//
// Drive panics on a wheel that drives itself.
func (w *TimingWheel) Drive(timeout time.Duration) int {
	if w.driving == nil || w.clock.isManual() {
		panic("timingwheel: Drive of a wheel without WithManualDrive")
	}
	ctx, cancel := context.WithTimeout(w.ctx, timeout)
	defer cancel()
	if !w.takeTurn(ctx) {
		return 0
	}
	defer w.endTurn()

	d := &w.driver
	handed := d.finish() // what is left of a call in which a task panicked or ended the goroutine
	d.dropEmpty()
	b, ok := d.queue.Poll()
	if !ok {
		var err error
		if b, err = d.queue.Take(ctx); err != nil {
			return handed
		}
	}
	return handed + d.flushAll(b, time.Now())
}

// takeTurn waits for the turn to drive, and reports whether it has it. If the turn is
// free and ctx has ended, it takes the turn. The goroutine gets the wheel's labels.
func (w *TimingWheel) takeTurn(ctx context.Context) bool {
	select {
	case w.driving <- struct{}{}:
	default:
		select {
		case w.driving <- struct{}{}:
		case <-ctx.Done():
			return false
		}
	}
	if t := w.runner.tracer; t != nil {
		t.label()
	}
	return true
}

// endTurn gives up the turn. What the caller does next is not the wheel's work.
func (w *TimingWheel) endTurn() {
	if w.runner.tracer != nil {
		clearLabels()
	}
	<-w.driving
}
