// Package timingwheel schedules very many delayed functions in one process: request
// timeouts, idle connections and sessions, retries with back-off, delayed messages,
// leases. Most such timers are canceled or pushed back before they fire. Package time
// keeps its timers in heaps. A hierarchical timing wheel adds, cancels and resets them in
// constant time, however many are pending.
//
//	w := timingwheel.New()
//	defer w.Stop()
//	timer := w.AfterFunc(5*time.Second, func() { conn.Close() })
//	...
//	timer.Reset(5 * time.Second) // traffic: push it back
//
// If you know package time, you know most of this package. Three things differ. Deadlines
// round up to a tick, which is a millisecond by default. [TimingWheel.Schedule] is
// AfterFunc without an allocation; its [Timeout] can be canceled and pushed back. And a
// wheel can be stopped: [TimingWheel.Stop] hands back what has not run, and a stopped
// wheel accepts no more.
//
// Timers with a channel, tickers, Sleep and contexts with a deadline have the names that
// packages time and context give them. Write w. instead of time. or context., and stop
// each timer that you no longer need: the wheel holds it until it fires or is stopped.
// They do not go through the executor. When the wheel is stopped, channel timers and
// contexts move to package time, and tickers end. (With [WithManualClock], they all end.)
//
//	ctx, cancel := w.WithTimeout(r.Context(), 5*time.Second)
//	defer cancel()
//
// A [Job] recurs: at a fixed rate, with a fixed delay, or at the times of a [Scheduler],
// such as a cron expression. [Submit] returns a [Future] for a result. [Keyed] keeps one
// pending function for each key. A [Group] ends all timers of a connection together.
// [TimingWheel.ScheduleBatch] schedules many functions at less than half the price each.
//
// # Under pressure
//
// By default each task that blocks has a goroutine of its own, and nothing is refused.
// Where that is too much, set limits:
//
//   - pool.New limits how many tasks run at once and how many wait for a worker. Its
//     pool.WhenFull decides about the others. Several wheels may share one pool. A
//     pool.Local is a variable of which each worker has a value of its own.
//   - [WithMaxPending] limits how many functions are pending.
//   - [WithPanicHandler] sets a handler of panics: the wheel survives a task that panics.
//
// Two words end things. Stop is that of package time: for a [Timer], a [Ticker], a [Job] and a
// wheel. Cancel is for a value that names one pending function: a [Timeout], a [Future], or a
// key of [Keyed].
//
// [TimingWheel.Stop] ends a wheel at once and hands back the functions that have not run.
// [TimingWheel.Shutdown] refuses new functions, and waits for pending and running
// functions, however far off. During Shutdown a reset to a later time returns false, and
// the function runs when it was due before. A service that waits ends like this:
//
//	if err := w.Shutdown(ctx); err != nil { // waits for what is pending and what runs
//		log.Printf("%v: %d will not run", err, len(w.Stop()))
//	}
//	if err := pool.Shutdown(ctx); err != nil { // waits for the workers
//		log.Print(err)
//	}
//
// Both calls return when ctx ends, even if a task never returns. If far-off timers should
// not hold up the end, call Stop before Shutdown: then Shutdown waits only for running
// functions.
//
// [TimingWheel.Stats] returns counts, the lateness, and the present state.
// [TimingWheel.Snapshot] returns the pending entries by slot. With [WithProfileRate],
// [TimingWheel.WriteProfile] shows the lines of the program that added the pending
// functions. [WithLogger] logs late drivers and executors that block. [WithTrace] names
// the wheel in profiles and traces.
//
// # Promises
//
// Never early: a task runs at or after its deadline.
//
// Little late: a task runs at most one tick late, plus the time that the system takes to
// wake the driver, plus the time of a flush: entries that come due together, or move to a
// finer wheel together, take 25 to 50 ns each. A bucket of another level that comes due
// meanwhile is flushed in between. A bucket of the same level, and all entries that are
// due after it, wait for the end. Functions, but not channels, tickers and contexts, also
// wait for an executor that holds the driver up ([Inline], a full Pool with
// pool.CallerRuns, or one of your own).
//
// Never lost, never twice: every task that was accepted is handed to the executor once,
// or was canceled, or is handed back by Stop. (A pending Job or Future is not handed
// back: it ends with [ErrStopped].)
//
// Canceled is canceled: if a cancel returns true, the function will not run, and the
// wheel no longer holds it. A function can be canceled until it is handed to the
// executor. If a function holds the driver up, under [Inline], pool.CallerRuns or an
// executor of your own, at most 256 others have been handed over with it. All functions
// that come due later stay pending. With pool.Wait, a function stays pending until the
// pool has room for it. The default executor is handed each function when its tick comes,
// as package time starts a goroutine for each: on a machine that is overloaded, functions
// may wait for a processor, and can be canceled no more.
//
// Idle is idle: while nothing is due, no goroutine wakes up. There are two exceptions: a
// bucket whose tasks were all reset to later times before it expires, and one whose tasks
// were all canceled, where more than two buckets are canceled within 10 ms, or with
// nothing added in between. It may start the driver once for nothing.
//
// Monotonic: a step of the wall clock moves only the jobs of ScheduleFunc, which follow
// the calendar.
//
// Three clocks differ when the wall clock is set or the machine is suspended. The
// monotonic clock stands still in a suspend. The boot time goes on. The wall clock goes
// on, and can be set. The monotonic clock of Windows is its boot time.
//
//	deadline                                     follows        with WithSuspendedTime (Linux)
//	AfterFunc, Schedule, Submit, Keyed, Group    monotonic      boot time
//	NewTimer, After, Sleep, NewTicker, Tick      monotonic      boot time
//	ScheduleAt, WithTimeout, WithDeadline        monotonic (1)  boot time (1)
//	ScheduleAtFixedRate, ScheduleWithFixedDelay  monotonic      boot time
//	ScheduleFunc                                 wall (2)       wall (2)
//	all that has moved to package time           monotonic      monotonic
//	all of a wheel of WithManualClock            Advance        Advance
//
// (1) A point in time is converted once, at the call. For a deadline that follows the
// wall clock, use ScheduleFunc with a Scheduler that returns it and then the zero time.
//
// (2) Linux gives notice when the wall clock is set and when the machine resumes. So a
// job wakes up only at its time, and within milliseconds after such a notice if its time
// has passed. This takes one goroutine of the process, which waits in the network poller,
// and one file descriptor, while a job with a Scheduler is pending. On other systems, and
// where Linux refuses the descriptor, each such job reads the wall clock once a minute.
// That is an exception to "Idle is idle".
//
// Tasks of one tick and one shard are due in the order in which they were scheduled. A
// task that was reset is due anywhere among them. A task without a delay is due ahead of
// them. With [Inline] they run in that order. With the default executor, the order in
// which they begin is close to that, and not promised.
//
// Any method may be called from inside a task. Some methods wait, in a task too:
// Shutdown, Sleep, SleepContext, Drive, Advance, Job.StopWait, Group.StopWait,
// Future.Wait, Pool.Close and Pool.Shutdown. A task that runs inline must not wait for
// another function of its wheel (see [Inline]). And a task that waits for itself waits
// for ever: with Shutdown of its own wheel, Close of its own Pool, StopWait of its own
// Job or Group, or Wait of its own Future.
//
// # Testing
//
// A wheel works unchanged in a bubble of testing/synctest, where its clock is the
// bubble's. Deadlines round up to a tick there, too: a Sleep of 1s-1ns on the wheel ends at
// the moment at which a timer of 1s fires. A time.Sleep ends before. With [WithManualDrive]
// and [Inline] a test decides itself when things fire. With [WithManualClock] a wheel has a
// clock of its own, which [TimingWheel.Advance] moves: for tests that cannot live in a
// bubble, and for simulations.
//
// A profile for the compiler (PGO) is worth little here: with one, operations took 0.82 to
// 1.06 of their time without it, so none is shipped.
//
// How the wheel works, its invariants, and why it is fast: see ARCHITECTURE.md in the
// root of the repository.
package timingwheel
