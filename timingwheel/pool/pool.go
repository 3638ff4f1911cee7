// Package pool is an executor for package timingwheel that limits how many functions run at
// once, and how many wait for a worker. Each worker may have values of its own ([Local]).
//
//	p := pool.New(16, 1000, pool.Wait)
//	w := timingwheel.New(timingwheel.WithExecutor(p))
package pool

import (
	"context"
	"fmt"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Pool is a [timingwheel.Executor] that limits how many tasks run at once. Make one with
// [New], and give it to one wheel or to several with [timingwheel.WithExecutor]. End it
// with [Pool.Shutdown] or [Pool.Close] once these wheels are stopped. Wheels in a
// synctest bubble can share a Pool only within their bubble. All methods are safe for
// concurrent use.
//
// A Pool is a run queue like that of [timingwheel.Goroutines], with a bound. It has no
// goroutine while it has no task. Goroutine-local state is as with Goroutines.
type Pool struct {
	door    // by which a wheel finds bounded
	bounded *run.Bounded
	workers workers // what Pool.Schedule's functions get
}

// New returns a Pool with the given number of workers. Each worker runs one task at a
// time. The parameter queue says how many more tasks may wait in the Pool for a worker.
// With a queue of 0, the Pool is full once every worker has a task. The parameter full
// says what happens to a task that finds the Pool full. New panics if workers is less
// than one, if queue is negative, and on the zero WhenFull.
//
// Tasks begin nearly in the order of their deadlines. With one worker, a wheel of one
// shard and [Wait], they run in the order of [timingwheel.Inline]. Tasks that wait for one
// another need a worker each. A task may end its goroutine (runtime.Goexit).
func New(workers, queue int, full WhenFull) *Pool {
	switch {
	case workers < 1:
		panic(fmt.Sprintf("pool: New: %d workers, must be at least 1", workers))
	case queue < 0:
		panic(fmt.Sprintf("pool: New: negative queue %d", queue))
	case full.policy == run.Unset:
		panic("pool: New: WhenFull is zero: use Wait, CallerRuns or Discard")
	}
	p := &Pool{bounded: run.NewBounded(workers, queue, full.policy, full.discard)}
	p.door = p.bounded.DoorOf(p)
	return p
}

// door has another name so that it is not a part of Pool's documentation.
type door = run.Door

// Shutdown makes the Pool accept no more tasks. It waits until the tasks that the Pool
// has accepted have ended and its goroutines are gone. Then it removes the values that
// the workers have of each [Local], and returns nil. If ctx ends first, it returns an
// error that wraps ctx.Err(): the tasks go on, and Shutdown may be called again. A task
// of the Pool that calls it waits for itself.
//
// A closed Pool stays full. Its [WhenFull] decides about tasks that come due on its
// wheels later. The driver runs them, or they are discarded, or they stay pending until
// the wheel's Stop hands them back. So shut down the wheels first, and then the Pool.
//
// Shutdown and Close may be called any number of times, at the same time too. Then one of
// them removes the values, and another may return while it does.
func (p *Pool) Shutdown(ctx context.Context) error {
	if err := p.bounded.Close(ctx); err != nil {
		return fmt.Errorf("pool: Pool.Shutdown: %w", err)
	}
	p.workers.clear()
	return nil
}

// Close is [Pool.Shutdown] without a context: it waits as long as it takes.
func (p *Pool) Close() { p.Shutdown(context.Background()) }

// Stats has the figures of a Pool, as [Pool.Stats] returns them. It encodes to JSON as it
// is.
type Stats struct {
	Workers int   // The number of workers, as given to New.
	Queue   int   // Room for tasks that wait in the Pool, as given to New.
	Running int64 // Tasks that a worker runs.
	Queued  int64 // Tasks that wait in the Pool.
	Waiting int64 // Tasks that wait on their wheels for room in the Pool, see [Wait].
	Closed  bool  // Close or Shutdown was called
}

// Stats returns what the Pool does at this moment. The figures are read one after the
// other. So they may not fit together while tasks come and go. Stats costs a pass over
// the wheels that wait.
func (p *Pool) Stats() Stats { return Stats(p.bounded.Stats()) }

// Execute runs the tasks. When the Pool is full, its [WhenFull] decides. Under
// [Wait], Execute waits for room; on a closed Pool it runs the tasks itself. So an
// Executor of your own that calls Execute of a Pool holds up its driver while the Pool is
// full.
func (p *Pool) Execute(tasks []func()) { p.bounded.Execute(tasks) }

// WhenFull says what happens to a task that comes due when a [Pool] is full: [Wait],
// [CallerRuns], or what [Discard] returns.
type WhenFull struct {
	policy  run.Policy
	discard func(task func())
}

var (
	// Wait makes the task wait on its wheel until there is room. It stays pending
	// meanwhile: Len counts it, it can be canceled and reset, Stop hands it back, and
	// Shutdown waits for it. Tasks of a wheel go in the order in which they came due;
	// wheels that share the Pool take turns, a task each. The driver never waits, so
	// nothing else is late.
	//
	// A closed Pool never has room: functions that come due stay pending until Stop. A
	// wheel that is driven by hand cannot have such a Pool: see
	// [timingwheel.WithManualDrive].
	Wait = WhenFull{policy: run.Waits}

	// CallerRuns runs the task on the driver. No task is lost, and the wheel fires
	// functions no faster than they run. But while the driver runs one, no other function
	// of the wheel is handed on, whatever its shard. Functions that come due meanwhile
	// stay pending. A function that blocks for ever stops the others for ever. Channels,
	// tickers and contexts do not wait. The conditions of [timingwheel.Inline] hold for
	// every task of the Pool. CallerRuns of timingwheel.Stats counts the tasks that the
	// driver has run.
	CallerRuns = WhenFull{policy: run.CallerRuns}
)

// Discard calls f with the task instead of running it. f may run the function that it
// gets, keep it for later, or drop it; usually it counts or logs. f runs on the driver,
// under the conditions of [timingwheel.Inline]. A panic in f counts as a panic of the
// task. Discard panics on nil.
//
// f gets the function that was scheduled. A [timingwheel.Job] leaves this run out and
// goes on to its next time; if f calls the function, that is no run of the Job. A key of
// a [timingwheel.Keyed] is no longer scheduled. A function of a [timingwheel.Group] has
// left its group. A [timingwheel.Future] has ended with [timingwheel.ErrDiscarded], and
// the function that f gets does nothing. An operation of package purgatory has expired,
// and its done is called only if f calls it. Stats counts what was discarded.
func Discard(f func(task func())) WhenFull {
	if f == nil {
		panic("pool: Discard(nil)")
	}
	return WhenFull{policy: run.Discards, discard: f}
}
