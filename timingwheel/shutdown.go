package timingwheel

import (
	"context"
	"fmt"
)

// Shutdown ends the wheel in peace. It accepts no more. It waits until all pending
// functions have been handed to the executor, however far off they are, and until all
// functions that were handed over have ended. Then it stops the wheel and returns nil.
//
// From the moment of the call the wheel refuses what is new, as a stopped one does: also
// a new function for a key of [Keyed], and a timer that is not pending. What is pending
// can still be canceled, and reset to an earlier time. A reset to a later time is
// refused: it returns false, and the function runs when it was due before. So traffic
// that keeps its timers alive cannot prolong Shutdown: it returns, at the latest, when
// the last deadline that was pending at the call has passed and all tasks have ended.
//
// Jobs end: their pending runs are dropped, and a run that has begun is waited for. What
// belongs to time's and context's surface moves to package time at once, and tickers end,
// as with [TimingWheel.Stop].
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
// [WithManualDrive] or [WithManualClock], somebody has to go on calling Drive or Advance.
// Shutdown costs a pass over what is pending, and gives way on it, as Stop does.
func (w *TimingWheel) Shutdown(ctx context.Context) error {
	// A closed shard refuses a reset to a later time. The alternatives are worse. If the
	// reset were done, one connection that is never idle would keep Shutdown waiting for
	// ever. If it were ignored and returned true, the function would run before the time
	// that its caller was promised. A caller that gets false knows that the function
	// comes sooner, and can stop it: what callers do anyway with a connection that
	// closes.
	w.closeShards(ctx)
	if !w.runner.ended.until(ctx.Done(), w.isQuiet) {
		return fmt.Errorf("timingwheel: Shutdown: %w", ctx.Err())
	}
	w.Stop()
	return nil
}

// closeShards makes the shards refuse what comes later, all at once. Then it takes off
// them what nobody has to wait for. That may take long, with many channel timers and
// contexts. If ctx ends in the middle of many, another goroutine does the rest.
func (w *TimingWheel) closeShards(ctx context.Context) {
	w.markClosed()
	for i := range w.shards {
		chunk, more := 0, true
		for more {
			chunk, more = w.shards[i].closeSlice(chunk)
			if more && ctx.Err() != nil {
				go func() {
					for ; i < len(w.shards); i, chunk, more = i+1, 0, true {
						for more {
							chunk, more = w.shards[i].closeSlice(chunk)
						}
					}
				}()
				return
			}
		}
	}
}

func (w *TimingWheel) markClosed() {
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
	return w.runner.running.Load() == 0
}
