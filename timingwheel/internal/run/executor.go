package run

import "fmt"

// Executor is what the wheel hands tasks to. The executors of this package run each through
// the wheel's runner, which costs no allocation.
type Executor interface {
	ExecuteTasks(tasks []Task, r *Runner) // sets to nil what it takes, and must not keep the slice
}

// NameOf names an executor for a warning, as its user knows it. It does not refer to the types,
// so that only those that a program uses are linked into it.
func NameOf(x Executor) string {
	if x, ok := x.(interface{ name() string }); ok {
		return x.name()
	}
	return fmt.Sprintf("%T", x)
}

func (f Foreign) name() string { return fmt.Sprintf("%T", f.UserExecutor) }
func (Submitter) name() string { return "timingwheel.ExecutorFunc" }
func (Refuser) name() string   { return "timingwheel.SubmitFunc" }
func (Inline) name() string    { return "timingwheel.Inline" }
func (*Bounded) name() string  { return "*pool.Pool" }

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
