package timingwheel

import (
	"log/slog"
	"sync/atomic"
)

// task is what the driver hands to an executor: a user's function, or a run of a Job,
// a Future or a key, which look once more at their state when it begins.
type task interface {
	run()

	// discard is called instead of run when a full Pool discards the task. It returns
	// what DiscardTo's function is to be given, or nil if there is nothing to run any more.
	discard() func()
}

// function is a task that is a user's function and nothing else. A func is a pointer,
// so that to make a task of one allocates nothing.
type function func()

func (f function) run()            { f() }
func (f function) discard() func() { return f }

// runner is how the tasks of a wheel are run: all that must be around a task,
// whichever executor runs it. Our own executors call run for each task, so that it
// costs no allocation; for others the driver wraps it in a closure.
type runner struct {
	panicHandler func(recovered any, stack []byte) // nil: a panic crashes the program
	tracer       *tracer
	log          *slog.Logger // nil: none

	ends  [lanes]lane
	_     [56]byte
	given atomic.Int64 // tasks handed over, see handed

	panicked   atomic.Int64
	discarded  atomic.Int64
	callerRuns atomic.Int64

	quiet quiet // is told when running becomes zero
}

// lane counts tasks that have ended, on one of the goroutines that run them. With one
// counter for all, its cache line travels between the processors with each task: 64 to 94
// ns of processor time for each of 1 M that are due at the same moment and do nothing,
// instead of 57 to 70.
type lane struct {
	_     [56]byte
	ended atomic.Int64
}

const lanes = 8 // a power of two

// handed counts tasks as running that are about to be handed to the executor. It is
// called in the same holding of their shard's lock in which they cease to be pending, so
// that at no time a task is neither: Shutdown looks at one, with that lock, and then at
// the other.
func (r *runner) handed(n int) { r.given.Add(int64(n)) }

// running returns how many tasks were handed over and have not ended. Those that have
// are counted first, so that it never is less than what it was at some time meanwhile.
func (r *runner) running() int64 {
	ended := int64(0)
	for i := range r.ends {
		ended += r.ends[i].ended.Load()
	}
	return r.given.Load() - ended
}

// run runs a task, on the lane of the goroutine. What comes after is deferred, since the
// task may end its goroutine.
func (r *runner) run(t task, lane uint32) {
	defer r.ended(lane)
	if r.tracer != nil {
		defer r.tracer.startTask().End()
	}
	if r.panicHandler != nil {
		defer r.recover()
	}
	t.run()
}

// ended tells those who wait when it was the last: whoever comes last finds that all
// others have counted.
func (r *runner) ended(lane uint32) {
	r.ends[lane%lanes].ended.Add(1)
	if r.quiet.watched.Load() && r.running() == 0 {
		r.quiet.tell()
	}
}

func (r *runner) recover() {
	if p := recovered(recover()); p != nil { // nil also when the task ends the goroutine
		r.panicked.Add(1)
		if r.log != nil {
			r.log.Error("timingwheel: task panicked", "panic", p.value, "stack", string(p.stack))
		}
		r.panicHandler(p.value, p.stack)
	}
}

// wrap returns tasks as functions, for executors that are not ours.
func (r *runner) wrap(tasks []task) []func() {
	wrapped := make([]func(), len(tasks))
	for i, t := range tasks {
		wrapped[i] = func() {
			if r.tracer != nil {
				defer clearLabels()
			}
			r.run(t, 0)
		}
	}
	return wrapped
}
