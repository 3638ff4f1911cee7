package timingwheel

import (
	"context"
	"fmt"
)

// Shutdown ends the wheel in peace. It accepts no more. It waits until all pending
// functions have been handed to the executor, however far off they are, and until all
// functions that were handed over have ended. Then it stops the wheel and returns nil.
//
// From the moment of the call the wheel refuses what is new, as a stopped one does,
// timers that are not pending included; what is pending can still be canceled and
// reset. Jobs end: their pending runs are dropped, a run that has begun is waited for.
// What belongs to time's and context's surface moves to package time at once, and
// tickers end, as with [TimingWheel.Stop].
//
// If ctx ends first, Shutdown returns an error that wraps ctx.Err(). What is pending then
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
// [WithManualDrive], somebody has to go on calling Drive. Shutdown costs a pass over what
// is pending, as Stop does.
func (w *TimingWheel) Shutdown(ctx context.Context) error {
	w.closeShards()
	if !w.runner.ended.until(ctx.Done(), w.isQuiet) {
		return fmt.Errorf("timingwheel: Shutdown: %w", ctx.Err())
	}
	w.Stop()
	return nil
}

func (w *TimingWheel) closeShards() {
	w.batches.Lock()
	defer w.batches.Unlock()
	for i := range w.shards {
		w.shards[i].close()
	}
}

// isQuiet reports whether no task is pending or running, on a wheel that accepts no more.
// It looks at the pending tasks first and at the running ones next, because a task goes
// that way.
func (w *TimingWheel) isQuiet() bool {
	for i := range w.shards {
		if w.shards[i].hasTasks() {
			return false
		}
	}
	return w.runner.running.count() == 0
}
