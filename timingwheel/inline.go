package timingwheel

// Inline returns an Executor that runs tasks on the driver, one after the other.
// It is the cheapest, and keeps tasks of one shard in order. A task that takes
// long delays every other one by as much, and a task that waits for another
// waits for ever: it is for short functions that do not block. The pprof labels of
// the goroutine are cleared after each task (under manual drive, those that the
// caller of Drive had set, too).
func Inline() Executor { return inline{} }

type inline struct{}

func (inline) Execute(tasks []func())          { runAll(functions(tasks), new(runner)) }
func (inline) execute(tasks []task, r *runner) { runAll(tasks, r) }

// runAll runs tasks on the goroutine that calls it.
func runAll(tasks []task, r *runner) {
	each(tasks, func(t task) {
		defer r.tracer.label() // the driver's own; also when the task ends the goroutine
		r.run(t, 0)
	})
}
