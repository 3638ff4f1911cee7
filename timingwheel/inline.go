package timingwheel

// Inline returns an Executor that runs tasks on the driver, one after the other. It is
// the cheapest, and keeps the tasks of one shard in order. It is for short functions that
// do not block: a task that takes long delays every other task by as much, and a task
// that waits for another task waits for ever.
//
// The pprof labels of the goroutine are cleared after each task. Under manual drive these
// include the labels that the caller of Drive had set.
func Inline() Executor { return inline{} }

type inline struct{}

func (inline) Execute(tasks []func())          { runAll(functions(tasks), new(runner)) }
func (inline) execute(tasks []task, r *runner) { runAll(tasks, r) }

// runAll runs the tasks on the goroutine that calls it.
func runAll(tasks []task, r *runner) {
	each(tasks, func(t task) {
		defer r.tracer.label() // the driver's own; also when the task ends the goroutine
		r.run(t, 0)
	})
}
