package run

// Admission is what a wheel asks of an executor that has room for so many tasks only. The
// room of a task is taken before the task leaves its wheel, so that the bound holds
// exactly. Several wheels may call all methods at the same time. None of them blocks.
type Admission interface {
	// TryAcquire takes room for one task, and reports whether there was some. There is
	// none while a wheel waits: a task that comes when others wait goes behind them.
	TryAcquire() bool

	// Release gives back the room of a task that turned out to be none. Serve must follow.
	Release()

	// Pass gets tasks for which room was taken. The caller holds the lock of their shard.
	// Otherwise a worker could first let in an entry that came due later.
	Pass(tasks []Task, r *Runner)

	// Join is called when something waits on w. Serve must follow.
	Join(w Waiter)

	// Leave is called when w has stopped.
	Leave(w Waiter)

	// Serve lets in those that wait, as long as there is room. No lock is held.
	Serve()
}

// Waiter is a wheel on which something may wait for an admission.
type Waiter interface {
	// Waits returns how much waits.
	Waits() int64

	// LetIn has the wheel pass on one task, for which room was taken. It reports false if
	// the room was not needed.
	LetIn() bool
}
