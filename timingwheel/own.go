package timingwheel

import "fmt"

// ownExecutor is what the executors of this package are besides. They run each task
// through the wheel's runner, which costs no allocation.
type ownExecutor interface {
	userExecutor
	execute(tasks []task, r *runner) // sets to nil what it takes, and must not keep the slice
}

// userExecutor is timingwheel.Executor.
type userExecutor interface{ Execute(tasks []func()) }

// foreign is an executor of a user's own.
type foreign struct{ userExecutor }

func (f foreign) execute(tasks []task, r *runner) {
	wrapped := r.wrap(tasks)
	clear(tasks) // what becomes of them is the executor's business
	f.Execute(wrapped)
}

// submitter is a function of a user's own that gets one task after the other.
type submitter struct{ submit func(task func()) }

func (s submitter) Execute(tasks []func()) { each(tasks, s.submit) }

func (s submitter) execute(tasks []task, r *runner) {
	wrapped := r.wrap(tasks)
	clear(tasks)
	each(wrapped, func(task func()) {
		r.begin(0) // each call of its own, see handoff.began
		s.submit(task)
	})
}

// nameOf names an executor for a warning, as its user knows it.
func nameOf(x ownExecutor) string {
	switch x := x.(type) {
	case foreign:
		return fmt.Sprintf("%T", x.userExecutor)
	case submitter:
		return "timingwheel.ExecutorFunc"
	case inline:
		return "timingwheel.Inline"
	case *bounded:
		return "*pool.Pool"
	default:
		return fmt.Sprintf("%T", x)
	}
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
