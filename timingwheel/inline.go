package timingwheel

import "reflect"

// Inline returns an Executor that runs tasks on the driver, one after the other. It is
// the cheapest, and keeps the tasks of one shard in order. It is for short functions that
// do not block: a function that takes long delays every other function of the wheel by as
// much.
//
// Channels, tickers, Sleep and contexts do not wait for a function: they fire while it
// runs. So a task may use Sleep, or wait for a context of its own wheel. A task that
// waits for another function of the wheel waits for ever: for a Future, for Shutdown or
// for StopWait. (With [WithManualDrive] or [WithManualClock], nothing fires while a task
// runs. Then a task that waits for anything of its own wheel waits for ever.)
//
// The pprof labels of the goroutine are cleared after each task. Under manual drive these
// include the labels that the caller of Drive had set.
func Inline() Executor { return inline{} }

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
