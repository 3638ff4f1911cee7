package run

import "reflect"

// Inline runs tasks on the driver, one after the other.
type Inline struct{}

func (Inline) Execute(tasks []func())               { runAll(functions(tasks), new(Runner)) }
func (Inline) ExecuteTasks(tasks []Task, r *Runner) { runAll(tasks, r) }

// runAll runs tasks on the goroutine that calls it, the driver's.
func runAll(tasks []Task, r *Runner) { Each(tasks, r.runInline) }

// runInline runs a task on the driver. The rest is deferred, since the task may
// end its goroutine.
func (r *Runner) runInline(t Task) {
	r.begin(code(t))
	defer r.endInline()
	if r.guards() {
		r.guard(t)
	} else {
		t.Run()
	}
}

// endInline gives the goroutine the driver's own labels again, and then counts the task.
// One who waits for its end finds the labels in order.
func (r *Runner) endInline() {
	r.Tracer.Label()
	r.ended()
}

// code returns the address of the code of a user's function; 0 if the task is another.
func code(t Task) uintptr {
	if f, ok := t.(Function); ok {
		return reflect.ValueOf(f).Pointer()
	}
	return 0
}
