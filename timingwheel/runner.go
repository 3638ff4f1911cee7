package timingwheel

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// task is what the driver hands to an executor: a user's function, or a run of a Job, a
// Future, a key or a function of a Group. These look at their state once more when the
// run begins.
type task interface {
	run()

	// discard is called instead of run when a full Pool discards the task. It returns
	// what FullDiscard's function is to be given, or nil if there is nothing to run any
	// more.
	discard() func()
}

// function is a task that is a user's function and nothing else. A func is a pointer,
// so that to make a task of one allocates nothing.
type function func()

func (f function) run()            { f() }
func (f function) discard() func() { return f }

// functions returns functions as tasks.
func functions(fs []func()) []task {
	tasks := make([]task, len(fs))
	for i, f := range fs {
		tasks[i] = function(f)
	}
	return tasks
}

// runner is how the tasks of a wheel are run: all that must be around a task,
// whichever executor runs it. Our own executors call run for each task, so that it
// costs no allocation; for others the driver wraps it in a closure.
type runner struct {
	panicHandler func(recovered any, stack []byte) // nil: a panic crashes the program
	tracer       *tracer
	log          *slog.Logger // nil: none

	// running counts the tasks that were handed to the executor and have not ended. It is
	// one counter for all goroutines. With eight, each on a cache line of its own, 500,000
	// tasks that were due at once and did nothing took 0.91 to 1.01 of the time.
	running atomic.Int64

	panicked   atomic.Int64
	discarded  atomic.Int64
	callerRuns atomic.Int64

	inline   atomic.Uintptr            // code of the function that last ran on the driver; 0: unknown
	detached atomic.Pointer[stopwatch] // of a call that is detached from the driver; nil: none

	ended notice // is told when nothing is running any more
}

// admit counts n tasks as running that are about to be handed to the executor. The caller
// holds the lock of their shard, and has held it since the tasks ceased to be pending. So
// at any time a task is pending, running or ended, and never in between. Shutdown relies
// on it: it looks for pending tasks first, with that lock, and then for running ones.
func (r *runner) admit(n int) { r.running.Add(int64(n)) }

// run runs a task. What comes after is deferred, since the task may end its goroutine.
func (r *runner) run(t task) {
	defer r.end()
	if r.guards() {
		r.guard(t)
	} else {
		t.run()
	}
}

// begin notes that a function begins on the driver, or on the goroutine of a call that is
// detached from it. Only in the latter its time is noted: in a call that is not detached,
// the 38 ns for a look at the clock would be more than the 15 that a function takes.
func (r *runner) begin(code uintptr) {
	s := r.detached.Load()
	if s != nil {
		s.stop() // or somebody could take the time of the one for that of the other
	}
	r.inline.Store(code)
	if s != nil {
		s.start()
	}
}

// stopwatch notes when what runs now has begun: a call of the executor, or a function of
// one that is detached. So what is told of a long call is told of one function, and not of
// many short ones together.
type stopwatch struct {
	made  time.Time
	since atomic.Int64 // in ns since made; 0: nothing runs
}

func (s *stopwatch) start() { s.since.Store(max(1, int64(time.Since(s.made)))) }
func (s *stopwatch) stop()  { s.since.Store(0) }

// elapsed returns for how long what began at since has gone on; zero if that is 0.
func (s *stopwatch) elapsed(since int64) time.Duration {
	if since == 0 {
		return 0
	}
	return max(0, time.Since(s.made)-time.Duration(since))
}

// guards reports whether the options have asked for something around a task. Otherwise
// its caller calls run itself. The stack frame of guard would be the one too many: the
// stack of the goroutine would have to grow before a small function runs inline.
func (r *runner) guards() bool { return r.tracer != nil || r.panicHandler != nil }

// guard runs a task with what the options have asked for around it.
func (r *runner) guard(t task) {
	if r.tracer != nil {
		defer r.tracer.startTask().End()
	}
	if r.panicHandler != nil {
		defer r.recover()
	}
	t.run()
}

// end counts the end of a task. If nothing runs any more, it tells those who wait for
// that.
func (r *runner) end() {
	if r.running.Add(-1) == 0 {
		r.ended.tell()
	}
}

func (r *runner) recover() {
	if p := recover(); p != nil { // nil also when the task ends the goroutine
		stack := debug.Stack()
		r.panicked.Add(1)
		if r.log != nil {
			r.log.Error("timingwheel: task panicked", "panic", p, "stack", string(stack))
		}
		r.panicHandler(p, stack)
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
			r.run(t)
		}
	}
	return wrapped
}
