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

// runAll runs tasks on the goroutine that calls it, the driver's. When a task ends the
// goroutine (runtime.Goexit), the rest run in its deferred calls; when one panics, they do
// not run.
func runAll(tasks []task, r *runner) {
	l := inlineRun{tasks: tasks, runner: r}
	l.all()
}

// inlineRun is a call of runAll. It does what each does. But what has to follow a task is
// deferred once for all. With a defer for each, a task that did nothing took 21 ns instead
// of 15.
type inlineRun struct {
	tasks   []task // that are still to begin
	runner  *runner
	running bool // a task has begun, and was not counted as ended
}

func (l *inlineRun) all() {
	defer l.interrupted()
	for len(l.tasks) > 0 {
		t := l.tasks[0]
		l.tasks[0] = nil // keep no closure while the others run
		l.tasks = l.tasks[1:]
		l.running = true
		l.runner.begin(code(t))
		if l.runner.guards() {
			l.runner.guard(t)
		} else {
			t.run()
		}
		l.ended()
	}
}

// ended gives the goroutine the driver's own labels again, and then counts the task.
// Whoever waits for its end finds the labels in order.
func (l *inlineRun) ended() {
	l.running = false
	l.runner.tracer.label()
	l.runner.end()
}

// interrupted does what is left to do if a task has ended the goroutine or panicked.
func (l *inlineRun) interrupted() {
	if !l.running {
		return
	}
	l.ended()
	if p := recover(); p != nil {
		panic(p)
	}
	l.all()
}

// code returns the address of the code of a user's function; 0 if the task is another.
func code(t task) uintptr {
	if f, ok := t.(function); ok {
		return reflect.ValueOf(f).Pointer()
	}
	return 0
}
