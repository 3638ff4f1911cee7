package timingwheel

import (
	"context"
	"fmt"
)

// Shutdown ends the wheel in peace: it accepts no more, waits until all functions that
// are pending have been handed to the executor, however far off they are, and until
// those that were handed over have ended, and then stops the wheel and returns nil.
//
// From the moment of the call the wheel refuses what is new, as a stopped one does,
// timers that are not pending included; what is pending can still be canceled and
// reset. Jobs end: their pending runs are dropped, a run that has begun is waited for.
// What belongs to time's and context's surface moves to package time at once, and
// tickers end, as with [TimingWheel.Stop].
//
// When ctx ends first, Shutdown returns an error that wraps ctx.Err(). What is pending
// then stays pending, and fires when it is due, until Stop hands it back; Shutdown may
// be called again. When the wheel is stopped, before or meanwhile, Shutdown waits only
// for the tasks that run or wait in the executor's queue.
//
// It may be called any number of times, by several goroutines at the same time. A task
// that calls it waits for itself, until ctx ends, and so does one that runs inline. An
// executor of your own that never runs a task keeps Shutdown waiting likewise. With
// [WithManualDrive] somebody has to go on calling Drive. It costs a pass over
// what is pending, as Stop does.
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

// isQuiet reports whether no task is pending or running, on a wheel that accepts no
// more. First pending, then running, since that is the way that a task goes.
func (w *TimingWheel) isQuiet() bool {
	for i := range w.shards {
		if w.shards[i].hasTasks() {
			return false
		}
	}
	return w.runner.running.count() == 0
}
