package timingwheel

import "reflect"

// inline runs tasks on the driver, one after the other.
type inline struct{}

func (inline) Execute(tasks []func())          { runAll(functions(tasks), new(runner)) }
func (inline) execute(tasks []task, r *runner) { runAll(tasks, r) }

// runAll runs tasks on the goroutine that calls it, the driver's.
func runAll(tasks []task, r *runner) { each(tasks, r.runInline) }

// runInline runs a task on the driver. What comes after is deferred, since the task may
// end its goroutine.
func (r *runner) runInline(t task) {
	r.begin(code(t))
	defer r.endInline()
	if r.guards() {
		r.guard(t)
	} else {
		t.run()
	}
}

// endInline gives the goroutine the driver's own labels again, and then counts the task.
// Whoever waits for its end finds the labels in order.
func (r *runner) endInline() {
	r.tracer.label()
	r.end()
}

// code returns the address of the code of a user's function; 0 if the task is another.
func code(t task) uintptr {
	if f, ok := t.(function); ok {
		return reflect.ValueOf(f).Pointer()
	}
	return 0
}
