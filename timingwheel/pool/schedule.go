package pool

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Schedule arranges for f to run once, d from now, as [timingwheel.TimingWheel.Schedule]
// does, and gives it the [Worker] on which it runs, with the values that the worker has
// of each [Local]. w must be a wheel whose executor is the Pool itself.
//
// A function that does not run on a worker of the Pool gets a Worker of its own, whose ID
// is -1. It has no values at first, and those that are made are removed when the function
// returns. This is so if the Pool is full and the driver runs the function
// ([CallerRuns]), and for the function that [Discard] gets or the wheel's Stop
// hands back. These may be called more than once, and on any goroutine.
//
// Schedule panics on a nil w, on a nil f and if the wheel has another executor, also one
// that embeds the Pool. It returns [timingwheel.ErrStopped] on a stopped wheel, and
// [timingwheel.ErrTooManyPending] where [timingwheel.WithMaxPending] permits no more; f
// will not run then.
//
// O(1). It allocates twice. When f runs, it takes the Pool's lock twice for some
// nanoseconds, and the functions of [timingwheel.TimingWheel.Schedule] do not.
func (p *Pool) Schedule(w *timingwheel.TimingWheel, d time.Duration, f func(*Worker)) (timingwheel.Timeout, error) {
	switch {
	case w == nil:
		panic("pool: Pool.Schedule: nil wheel")
	case f == nil:
		panic("pool: Pool.Schedule: nil function")
	case !(*engine.Engine)(w).RunsOn(p.bounded):
		panic("pool: Pool.Schedule: the wheel has another executor: make the wheel with WithExecutor(pool)")
	}
	e, now := (*engine.Engine)(w).Here()
	after := engine.Delay{Now: now, D: d}
	t := &pooledTask{workers: &p.workers, f: f}
	t.entry.Join(e)
	defer t.entry.UnlockShard()
	if err := t.entry.Accept(after, t.due, engine.Internal|engine.OneShot); err != nil {
		return timingwheel.Timeout{}, err
	}
	return timingwheel.Timeout(t.entry), nil
}

// pooledTask is a function that gets a Worker.
type pooledTask struct {
	workers *workers
	f       func(*Worker)
	entry   engine.Handle
	pooled  bool // it runs on a goroutine of the Pool, and so on one of its Workers
}

// due is the wheel's own task: it hands the function to the executor, or back if the
// wheel was stopped first. The caller holds the shard's lock.
func (t *pooledTask) due() {
	switch {
	case t.entry.Canceled():
	case t.entry.Stopped():
		t.entry.HandBack(t.entry.Deadline(), t.runElsewhere)
	default:
		t.entry.Execute(t)
	}
}

// EnterPool implements poolTask.
func (t *pooledTask) EnterPool() { t.pooled = true }

// Run is the task that the executor runs.
func (t *pooledTask) Run() { t.run(t.pooled) }

// runElsewhere runs the function with a Worker of its own.
func (t *pooledTask) runElsewhere() { t.run(false) }

func (t *pooledTask) run(pooled bool) {
	k := t.workers.enter(pooled)
	defer t.workers.leave(k) // deferred, in case f ends its goroutine
	t.f(k)
}

// Discard returns the function with a Worker of its own.
func (t *pooledTask) Discard() func() { return t.runElsewhere }
