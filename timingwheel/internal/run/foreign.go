package run

import (
	"errors"
	"sync/atomic"
	"time"
)

// Executors of a user's own.
//
// The invariant: a task that such an executor has been given runs at most once. It runs exactly
// once unless the executor keeps it, reports success and never calls it. So a task that the
// executor has refused goes to goroutines of the wheel. So does a task that was left over when
// the executor has panicked or has ended its goroutine (runtime.Goexit).
//
// Rejected for refused tasks: to run them on the driver, where they would hold up the others; to
// try again later, since a closed pool refuses for ever and Shutdown would wait for ever; and to
// discard them, since an accepted task is never lost.

// UserExecutor is timingwheel.Executor.
type UserExecutor interface{ Execute(tasks []func()) }

// Foreign is an executor that gets all tasks of a slice in one call.
type Foreign struct{ UserExecutor }

func (f Foreign) ExecuteTasks(tasks []Task, r *Runner) {
	all := make([]handed, len(tasks))
	functions := make([]func(), len(tasks))
	for i, t := range tasks {
		all[i] = handed{task: t, runner: r}
		functions[i] = all[i].run
	}
	clear(tasks) // the executor has them now, and no wheel is to keep them
	returned := false
	defer func() {
		for i := range all {
			if returned {
				return
			}
			all[i].refused(errNoReturn)
		}
	}()
	f.Execute(functions)
	returned = true
}

// Submitter is a function that gets one task after the other.
type Submitter struct{ Submit func(task func()) }

func (s Submitter) ExecuteTasks(tasks []Task, r *Runner) {
	submit(tasks, r, func(task func()) error {
		s.Submit(task)
		return nil
	})
}

// Refuser is a Submitter that returns an error if it does not take the task.
type Refuser struct{ Submit func(task func()) error }

func (s Refuser) ExecuteTasks(tasks []Task, r *Runner) { submit(tasks, r, s.Submit) }

// Execute is for tasks that belong to no wheel.
func (s Refuser) Execute(tasks []func()) {
	r := new(Runner)
	r.Admit(len(tasks))
	s.ExecuteTasks(functions(tasks), r)
}

// submit calls try for each task. After a panic the rest stay in tasks.
func submit(tasks []Task, r *Runner, try func(task func()) error) {
	Each(tasks, func(t Task) {
		r.begin(0) // each call of its own, see handoff.began
		h := &handed{task: t, runner: r}
		err := errNoReturn
		defer func() {
			if err != nil {
				h.refused(err)
			}
		}()
		err = try(h.run)
	})
}

// errNoReturn is the error of a call that has not returned.
var errNoReturn = errors.New("timingwheel: the executor has panicked or ended its goroutine")

// handed is a task in the hands of an executor that is not ours.
type handed struct {
	task   Task
	runner *Runner
	taken  atomic.Bool
}

// Wrap returns a task as a function, for an executor that is not ours.
func (r *Runner) Wrap(t Task) func() { return (&handed{task: t, runner: r}).run }

// take returns the task to the first who calls it, and nil to the others.
func (h *handed) take() (t Task) {
	if !h.taken.Swap(true) {
		t, h.task = h.task, nil // keep no closure
	}
	return t
}

// run is the function that the executor gets.
func (h *handed) run() {
	t := h.take()
	if t == nil {
		return
	}
	if h.runner.Tracer != nil {
		defer ClearLabels()
	}
	h.runner.Run(t)
}

// refused runs the task on a goroutine of the wheel, unless the executor has begun it.
func (h *handed) refused(err error) {
	if t := h.take(); t != nil {
		h.runner.Refused.Add(1)
		h.runner.refuge.run(t, h.runner, err)
	}
}

// refuge runs what an executor has refused. The goroutine that is in the executor uses it alone.
type refuge struct {
	queue  *Queue // nil until first needed
	logged time.Time
}

// refusalsEvery is the least time between two log messages about refused tasks.
const refusalsEvery = time.Minute

func (f *refuge) run(t Task, r *Runner, err error) {
	if f.queue == nil {
		f.queue = NewQueue(nil)
	}
	f.queue.push(NewBatch(t), r)
	if r.Log == nil || !f.logged.IsZero() && time.Since(f.logged) < refusalsEvery {
		return
	}
	f.logged = time.Now()
	refused := r.Refused.Load()
	f.queue.Execute([]func(){func() { // a logger is a user's function, which may block
		r.Log.Warn("timingwheel: the executor has refused a function", "error", err, "refused", refused)
	}})
}
