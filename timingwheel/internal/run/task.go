// Package run is how and where the tasks of wheels run: what is around each task, the
// queue that goroutines pull tasks from, and what limits it. It knows no wheel.
//
// Read task.go first, then runqueue.go (the default executor), and bounded.go with
// admission.go (the same with a bound).
package run

import (
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Task is what the driver hands to an executor: a user's function, or a run of a Job, a
// Future, a key or a function of a Group. These look at their state once more when the
// run begins.
type Task interface {
	Run()

	// Discard is called instead of Run when a full Pool discards the task. It returns
	// what the function of pool.Discard is to be given, or nil if there is nothing to run any
	// more.
	Discard() func()
}

// Function is a task that is a user's function and nothing else. A func is a pointer,
// so that to make a task of one allocates nothing.
type Function func()

func (f Function) Run()            { f() }
func (f Function) Discard() func() { return f }

// functions returns functions as tasks.
func functions(fs []func()) []Task {
	tasks := make([]Task, len(fs))
	for i, f := range fs {
		tasks[i] = Function(f)
	}
	return tasks
}

// Runner is how the tasks of a wheel are run: all that must be around a task,
// whichever executor runs it. Our own executors call Run for each task, so that it
// costs no allocation; others get a closure: see handed.
type Runner struct {
	PanicHandler func(recovered any, stack []byte) // nil: a panic crashes the program
	Tracer       *Tracer
	Log          *slog.Logger // nil: none

	// Running counts the tasks that were handed to the executor and have not ended. It is
	// one counter for all goroutines. With eight, each on a cache line of its own, 500,000
	// tasks that were due at once and did nothing took 0.91 to 1.01 of the time, and without
	// any 0.96. SCALING.md of the benchmarks has more.
	Running atomic.Int64

	Panicked   atomic.Int64
	Discarded  atomic.Int64
	CallerRuns atomic.Int64
	Refused    atomic.Int64
	refuge     refuge // of those that were refused

	Code     atomic.Uintptr            // code of the function that last ran on the driver; 0: unknown
	Detached atomic.Pointer[Stopwatch] // of a call that is detached from the driver; nil: none

	Ended notice // is told when nothing is running any more
}

// Admit counts n tasks as running that are about to be handed to the executor. If they come
// from a shard, the caller has held its lock since they ceased to be pending. So
// at any time a task is pending, running or ended, and never in between. Shutdown relies
// on it: it looks for pending tasks first, with that lock, and then for running ones.
func (r *Runner) Admit(n int) { r.Running.Add(int64(n)) }

// WaitUntilRunning waits until no more than n tasks run, and reports whether that is so. It waits for
// the given time at most, in whole milliseconds. Each of them is a sleep of its own: a
// machine that is busy, or was suspended, makes them longer, instead of using up the time.
func (r *Runner) WaitUntilRunning(n int64, most time.Duration) bool {
	told := r.Ended.watch()
	defer r.Ended.forget(told)
	for ; r.Running.Load() > n; most -= time.Millisecond {
		if most <= 0 {
			return false
		}
		select {
		case <-told:
		case <-time.After(time.Millisecond):
		}
	}
	return true
}

// Run runs a task. The rest is deferred, since the task may end its goroutine.
func (r *Runner) Run(t Task) {
	defer r.ended()
	if r.guards() {
		r.guard(t)
	} else {
		t.Run()
	}
}

// begin notes that a function begins on the driver, or on the goroutine of a call that is
// detached from it. Only in the latter its time is noted: in a call that is not detached,
// the 38 ns for a look at the clock would be more than the 15 that a function takes.
func (r *Runner) begin(code uintptr) {
	s := r.Detached.Load()
	if s != nil {
		s.Stop() // or somebody could take the time of the one for that of the other
	}
	r.Code.Store(code)
	if s != nil {
		s.Start()
	}
}

// Stopwatch notes when what runs now has begun: a call of the executor, or a function of
// one that is detached. So what is told of a long call is told of one function, and not of
// many short ones together.
type Stopwatch struct {
	Made  time.Time
	Since atomic.Int64 // in ns since made; 0: nothing runs
}

func (s *Stopwatch) Start() { s.Since.Store(max(1, int64(time.Since(s.Made)))) }
func (s *Stopwatch) Stop()  { s.Since.Store(0) }

// Elapsed returns for how long what began at since has gone on; zero if that is 0.
func (s *Stopwatch) Elapsed(since int64) time.Duration {
	if since == 0 {
		return 0
	}
	return max(0, time.Since(s.Made)-time.Duration(since))
}

// guards reports whether the options have asked for something around a task. Otherwise
// its caller calls Run itself. The stack frame of guard would be the one too many: the
// stack of the goroutine would have to grow before a small function runs inline.
func (r *Runner) guards() bool { return r.Tracer != nil || r.PanicHandler != nil }

// guard runs a task with what the options have asked for around it.
func (r *Runner) guard(t Task) {
	if r.Tracer != nil {
		defer r.Tracer.startTask().End()
	}
	if r.PanicHandler != nil {
		defer r.recover()
	}
	t.Run()
}

// ended counts the end of a task. If nothing runs any more, it tells those who wait for
// that.
func (r *Runner) ended() {
	if r.Running.Add(-1) == 0 {
		r.Ended.Tell()
	}
}

func (r *Runner) recover() {
	if p := recover(); p != nil { // nil also when the task ends the goroutine
		stack := debug.Stack()
		r.Panicked.Add(1)
		r.PanicHandler(p, stack)
	}
}
