package run

import "fmt"

// Executor is what the wheel hands tasks to. The executors of this package run each through
// the wheel's runner, which costs no allocation.
type Executor interface {
	ExecuteTasks(tasks []Task, r *Runner) // sets to nil what it takes, and must not keep the slice
}

// NameOf names an executor for a warning, as its user knows it.
func NameOf(x Executor) string {
	switch x := x.(type) {
	case Foreign:
		return fmt.Sprintf("%T", x.UserExecutor)
	case Submitter:
		return "timingwheel.ExecutorFunc"
	case Refuser:
		return "timingwheel.SubmitFunc"
	case Inline:
		return "timingwheel.Inline"
	case *Bounded:
		return "*pool.Pool"
	default:
		return fmt.Sprintf("%T", x)
	}
}

// Each calls Run for every task. When a task ends the goroutine (runtime.Goexit), the
// rest run in its deferred calls. When one panics, they do not run.
func Each[T any](tasks []T, run func(task T)) { All(tasks, run, false) }

// All is like Each. With anyway, the rest also run after a panic, while it goes on.
func All[T any](tasks []T, run func(task T), anyway bool) {
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
		All(tasks[next:], run, anyway)
	}()
	for next < len(tasks) {
		var none T
		task := tasks[next]
		tasks[next] = none // keep no closure while the others run
		next++
		run(task)
	}
}
