package timingwheel

// Executor runs tasks whose time has come.
//
// The driver calls Execute with one or more tasks, in the order in which they are to
// begin. It makes one call at a time, unless several wheels share the executor. It holds
// no lock, so that a task may call any method of the wheel. Execute may change the slice,
// but must not keep it: the driver uses it again.
//
// While Execute blocks, no other function of the wheel is handed on. What comes due
// meanwhile waits, pending. Channels, tickers and contexts fire all the same, but not
// under manual drive, where they wait for the caller of Drive or Advance. Adding,
// canceling and Stop go on.
//
// Execute must see to it that each task is run in the end. A task that it drops is lost,
// and Shutdown waits for it. If it is the task of a [Job], a [Future], a key of [Keyed]
// or a [Group], these wait for it too, until they are stopped or canceled. (A [Pool] with
// [FullDiscard] tells them.)
//
// Each task costs an allocation, which it does not with the executors of this package.
// The driver may be in Execute, or about to call it, when Stop returns.
type Executor interface {
	Execute(tasks []func())
}

// ExecutorFunc makes an Executor of a function that is called on the driver with one task
// after the other, such as the submit method of a goroutine pool. It may run the task
// itself, under the conditions of [Inline]. It may block, as the submit method of a full
// pool may; [Executor] says what waits then.
type ExecutorFunc func(task func())

// Execute calls f(task) for each task.
func (f ExecutorFunc) Execute(tasks []func()) { each(tasks, f) }

// ownExecutor is what the executors of this package are besides. They run each task
// through the wheel's runner, which costs no allocation.
type ownExecutor interface {
	Executor
	execute(tasks []task, r *runner) // sets to nil what it takes, and must not keep the slice
}

// foreign is an executor of a user's own.
type foreign struct{ Executor }

func (f foreign) execute(tasks []task, r *runner) {
	wrapped := r.wrap(tasks)
	clear(tasks) // what becomes of them is the executor's business
	if submit, ok := f.Executor.(ExecutorFunc); ok {
		each(wrapped, func(task func()) {
			r.begin(0) // each call of its own, see handoff.began
			submit(task)
		})
		return
	}
	f.Execute(wrapped)
}

// each calls run for every task. When a task ends the goroutine (runtime.Goexit), the
// rest run in its deferred calls. When one panics, they do not run.
func each[T any](tasks []T, run func(task T)) { all(tasks, run, false) }

// all is each. With anyway, the rest also run after a panic, while it goes on.
func all[T any](tasks []T, run func(task T), anyway bool) {
	next := 0
	defer func() {
		if next == len(tasks) {
			return
		}
		if !anyway {
			if r := recover(); r != nil {
				panic(r)
			}
		}
		all(tasks[next:], run, anyway)
	}()
	for next < len(tasks) {
		var none T
		task := tasks[next]
		tasks[next] = none // keep no closure while the others run
		next++
		run(task)
	}
}
