package timingwheel

import (
	"context"
	"runtime/pprof"
)

// Executor runs tasks whose time has come.
//
// The driver calls Execute with one or more tasks, in the order in which they are to
// begin; one call at a time, unless several wheels share the executor. It holds no lock,
// so that a task may call any method of the wheel. Execute may change the slice, but must
// not keep it: the driver uses it again. While Execute blocks, nothing else on the wheel
// fires (adding, cancelling and Stop go on). It must see to it that each task is run in
// the end: one that it drops is lost, and if it is that of a [Job], a [Future] or a key
// of [Keyed], these wait for it until they are stopped or cancelled, and Shutdown waits
// for it, too. (A [Pool] with [DiscardTo] tells them.) Each task costs an allocation,
// which it does not with the executors of this package. The driver may be in Execute, or
// about to call it, when Stop returns.
type Executor interface {
	Execute(tasks []func())
}

// ExecutorFunc makes an Executor of a function that is called on the driver with
// one task after the other, such as the submit method of a goroutine pool. It
// may run the task itself, under the conditions of [Inline]. While it blocks, as the
// submit method of a pool that is full may, nothing else on the wheel fires.
type ExecutorFunc func(task func())

// Execute calls f(task) for each task.
func (f ExecutorFunc) Execute(tasks []func()) { each(tasks, f) }

// ownExecutor is what the executors of this package are besides. They run each task
// through the wheel's runner, which costs no allocation.
type ownExecutor interface {
	Executor
	execute(tasks []task, r *runner) // sets to nil what it takes, and must not keep the slice
}

// asOwn returns e if it is one of this package itself. Not by asking whether it has the
// method: a user's type that embeds a Pool has that as well, and its own Execute, which
// may count or wrap the tasks, would never be called.
func asOwn(e Executor) ownExecutor {
	switch e := e.(type) {
	case inline:
		return e
	case *runQueue:
		return e
	case *Pool:
		return e
	}
	return nil
}

// functions returns functions as tasks.
func functions(fs []func()) []task {
	tasks := make([]task, len(fs))
	for i, f := range fs {
		tasks[i] = function(f)
	}
	return tasks
}

// Inline returns an Executor that runs tasks on the driver, one after the other.
// It is the cheapest, and keeps tasks of one shard in order. A task that takes
// long delays every other one by as much, and a task that waits for another
// waits for ever: it is for short functions that do not block. The pprof labels of
// the goroutine are cleared after each task (under manual drive, those that the
// caller of AdvanceClock had set, too).
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

// each calls run for every task. When a task ends the goroutine (runtime.Goexit),
// the rest run in its deferred calls; when one panics, they do not run.
func each[T any](tasks []T, run func(task T)) {
	next := 0
	defer func() {
		if next == len(tasks) {
			return
		}
		if r := recover(); r != nil {
			panic(r)
		}
		each(tasks[next:], run)
	}()
	for next < len(tasks) {
		var none T
		task := tasks[next]
		tasks[next] = none // keep no closure while the others run
		next++
		run(task)
	}
}

func clearLabels() { pprof.SetGoroutineLabels(context.Background()) }
