// Package timingwheel schedules very many delayed functions in one process:
// request timeouts, idle connections and sessions, retries with back-off,
// delayed messages, leases. Most such timers are canceled or pushed back before
// they fire. Package time keeps its timers in heaps; a hierarchical timing wheel
// adds, cancels and resets them in constant time, however many are pending.
//
//	w := timingwheel.New()
//	defer w.Stop()
//	timer := w.AfterFunc(5*time.Second, func() { conn.Close() })
//	...
//	timer.Reset(5 * time.Second) // traffic: push it back
//
// Who knows package time knows most of this one. What differs: deadlines round up
// to a tick, a millisecond unless chosen otherwise; Schedule is AfterFunc without
// an allocation; Stop of a wheel hands back what has not run, and a stopped wheel
// accepts no more.
//
// Timers with a channel, tickers, Sleep and contexts with a deadline are there too,
// under the names that packages time and context give them: write w. for time. or
// context., and mind that the wheel holds what nobody stops. They do not depend on
// the executor, and when the wheel is stopped, package time takes over what somebody
// may be waiting for.
//
//	ctx, cancel := w.WithTimeout(r.Context(), 5*time.Second)
//	defer cancel()
//
// What recurs is a [Job]: at a fixed rate, with a fixed delay, or at the times of a
// [Scheduler], such as a cron expression. [Submit] returns a [Future] for a result.
// [Keyed] keeps one pending function for each key.
//
// # Under pressure
//
// By default each task that blocks has a goroutine of its own, and nothing is refused.
// Where that is too much, [NewPool] limits how many tasks run at once and how many wait
// for it, and says what becomes of the others; [WithMaxPending] limits how many are
// pending; [WithPanicHandler] has the wheel survive a task that panics.
// [TimingWheel.Stop] ends a wheel at once and hands back what has not run,
// [TimingWheel.Shutdown] waits for it.
//
// [TimingWheel.Stats] tells what the wheel has done and holds, and how late it was,
// [TimingWheel.Snapshot] what is pending and where. [WithLogger] logs what nobody is told
// otherwise, [WithTrace] names the wheel in profiles and traces.
//
// # Promises
//
// A task never runs early. It runs a tick late at the most, plus the time that the
// system takes to wake the driver, plus, for the entries of a bucket that is
// cascading at that moment, the time of that cascade (and, with an executor that
// blocks the driver, that of the blocking). Every task that was accepted
// is handed to the executor once, or was canceled, or is handed back by Stop (a Job
// or Future instead ends with ErrStopped). A cancel that returns true means that the
// function will not run, and that the wheel holds nothing of it any more. With nothing
// due, no goroutine wakes up (but once for a bucket that was emptied by cancels while
// the driver slept toward it). A step of the wall clock moves nothing. (The jobs of
// ScheduleFunc are the exception to both: they follow the calendar, and look at the
// wall clock once a minute.)
//
// Any method may be called from inside a task. Those that wait (Shutdown, Sleep,
// Job.StopWait, Future.Wait, Pool.Close) wait from there, too, and must not be called
// from a task that runs inline. A task that waits for itself waits in vain: with
// Shutdown of its own wheel, Close of its own Pool, StopWait of its own Job or Wait of
// its own Future.
//
// # Testing
//
// A wheel works unchanged in a bubble of testing/synctest, where its clock is the
// bubble's. With [WithManualDrive] and [Inline] a test decides itself when things
// fire.
//
// # How it works
//
// A wheel is a ring of slots, and a slot is a bucket of entries that are due
// within the same span, the wheel's tick. Entries beyond the wheel's interval go
// to the overflow wheel, whose tick is that whole interval. Overflow wheels are
// created lazily and share one min-heap DelayQueue of buckets. The driver goroutine
// blocks until the earliest bucket expires, advances each wheel's currentTime
// recursively, and flushes the bucket back through add, so that tasks cascade down
// to the finest wheel and fire.
//
// Read it in this order: wheel.go (one level), shard.go (a hierarchy and its lock),
// driver.go (the loop), turns.go (how the two share the lock), runner.go and runqueue.go
// (how and where tasks run), channel.go and context.go (what never gets there), job.go
// (what comes back).
//
// Most tasks are a user's functions, and go to the executor. The rest are the wheel's
// own tasks, tagged as such in the arena, and called under the shard's lock when
// they are due, or when the wheel is stopped first. So their state is guarded by
// that lock: a channel timer either is pending or has sent its value, and Stop can
// take that back. A context is then ended on a run queue that is the wheel's own,
// since that may take long, and calls its parent; a job, a future and a key hand a
// task to the executor, which looks once more at their state when it starts, so that
// until then Stop and Cancel win.
//
// A coarse bucket may hold millions of entries. Its cascade is flushed in slices
// of 256, between which a caller who waits for the lock gets it, and a finer bucket
// that has come due goes first. The driver does not yield the processor after a
// slice, which on a busy machine would put it at the end of the scheduler's queue
// each time (turns.go says what it does instead).
//
// The wheels are those of Varghese and Lauck, "Hashed and Hierarchical Timing
// Wheels" (SOSP 1987); the queue of buckets instead of a tick that always runs is
// that of Apache Kafka's purgatory timer.
//
// # Invariants
//
//   - An entry waits only in a bucket that expires at or before its own tick.
//   - A bucket that is open is in the queue exactly once; one that is closed is not
//     in it. (Between the taking of a bucket and its flush, the driver has it.)
//   - A wheel's clock passes no bucket that has not been flushed. (The exception:
//     an adder that is held up between its reading of the clock and the lock, for
//     so long that its deadline comes, while the driver has the next bucket taken.
//     Its own entry is then late by that much; no other is touched.)
//   - Entries due on one tick of one shard fire in the order in which they were
//     added, a reset counting as an add. (The exception: an entry that is added
//     while an older one of its tick is in a cascade longer than a slice.)
//   - Nothing is added to a cascade that is under way, and it gets a slice for each
//     bucket that goes first. So every cascade ends. (Should it take longer than a
//     tick of its level, the next bucket of that level waits for its end, and what
//     expires later behind it.)
//
// # Why it is fast
//
// Entries live in an arena of their own, 32 bytes each, which the garbage
// collector sees as a few large objects, and which are given back when a burst is
// over (package bucket). There is one lock around
// a hierarchy, and under it a handful of plain instructions; to keep it free there
// are several shards, and each processor adds to its own. Tasks are pulled from a
// queue by as many goroutines as block, not by one each.
package timingwheel
