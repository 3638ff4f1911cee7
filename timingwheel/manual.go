package timingwheel

import (
	"context"
	"time"
)

// Drive drives a wheel made with [WithManualDrive]: it waits up to timeout
// for the next bucket to expire, does all that is due by then, and returns how
// many tasks it handed to the executor (so channel timers, tickers and contexts do
// not count). With a timeout that is not positive it does not wait. It returns 0 when
// nothing came due in time, when the tasks of the bucket only moved to a finer wheel or
// were canceled while it waited, and once the wheel is stopped. It moves no clock but
// the wheel's own: time itself passes as always.
//
// Tasks without delay that are added while it runs wait for the next call, but for
// those that go between the slices of a bucket of more than 256. To run all that is
// pending (where no ticker or job goes on for ever):
//
//	for w.Len() > 0 {
//		w.Drive(time.Hour)
//	}
//
// With an executor other than [Inline], the tasks may be running still, or not have
// begun, when it returns.
//
// One call drives at a time; another waits for its turn, up to its timeout. A
// call from a task that runs inline can therefore do nothing but wait its
// timeout out. Inline tasks run on the caller's goroutine: when one panics, and
// the caller recovers, those that came due together with it run in the next call
// (with an executor of your own that runs tasks inline they, up to 255, are lost). On
// a wheel that drives itself Drive panics.
func (w *TimingWheel) Drive(timeout time.Duration) int {
	if w.driving == nil {
		panic("timingwheel: Drive of a wheel without WithManualDrive")
	}
	ctx, cancel := context.WithTimeout(w.ctx, timeout)
	defer cancel()
	if !w.takeTurn(ctx) {
		return 0
	}
	defer func() { <-w.driving }()
	if t := w.runner.tracer; t != nil {
		t.label()
		defer clearLabels() // what the caller does next is not the wheel's
	}

	d := &w.driver
	handed := d.finish() // what a task has left unfinished that panicked, or ended its goroutine
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

// takeTurn prefers the turn to the end of ctx.
func (w *TimingWheel) takeTurn(ctx context.Context) bool {
	select {
	case w.driving <- struct{}{}:
		return true
	default:
	}
	select {
	case w.driving <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
