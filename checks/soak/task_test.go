package soak

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// task is a function that can be armed any number of times. Each time it must end in exactly one
// way: it runs, or it is canceled, handed back or discarded.
//
// Every call on the wheel for a task is made with its mutex held, and its function takes the
// mutex before it does anything else. So the result of the call is in the accounts before the
// function looks at them.
type task struct {
	life   *life
	kind   string
	silent bool   // its calls do not report that they were refused
	calls  []call // that may be made at any time; the first cancels

	mu     sync.Mutex
	dues   []time.Time // guarded by mu; the earliest time of each run to come, in the order of arming
	unsure bool        // guarded by mu; whether a run may have been refused
}

// call is a call on the wheel for a task with a delay of d. It reports whether a pending run was
// removed, and whether one was added; a reset does both. The caller holds the task's mutex.
type call func(d time.Duration) (removed, added bool, err error)

// do makes a call and accounts for it.
func (t *task) do(call call, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.life
	due := time.Now().Add(max(0, d))
	removed, added, err := call(d)
	if removed && added {
		t.end(len(t.dues)-1, "reset")
	} else if removed {
		t.end(len(t.dues)-1, "canceled")
	}
	if added {
		t.dues = append(t.dues, due)
		l.armed.Store(t, true)
		t.unsure = t.unsure || t.silent && l.begun.Load()
	}
	if err != nil {
		l.refused(t.kind, err)
	}
}

// change makes a random call for t.
func (t *task) change() { t.do(pick(t.calls...), t.life.delay()) }

// end ends the run dues[i], and returns when it was due. It returns false if none was to come. The
// caller holds t.mu.
func (t *task) end(i int, how string) (due time.Time, ok bool) {
	if len(t.dues) == 0 {
		t.life.violate("%s: %s, but it had ended before", t.kind, how)
		return due, false
	}
	due = t.dues[i]
	if t.dues = slices.Delete(t.dues, i, i+1); len(t.dues) == 0 {
		t.life.armed.Delete(t)
	}
	t.life.soak.count(how)
	return due, true
}

// called accounts for a call of the function. It reports whether the call is a run: whether the
// wheel made it, and not the soak to learn which functions were discarded or handed back.
func (t *task) called() bool {
	l, mode := t.life, t.life.mode.Load().(mode)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	due, ok := t.end(0, string(mode))
	switch {
	case !ok:
	case mode != handedBack:
		l.notEarly(t.kind, now, due)
	case l.deadline.Before(due):
		l.violate("%s: handed back with a deadline of %v, due at %v", t.kind, l.deadline, due)
	}
	return ok && mode == ran
}

// run is the function of every task.
func (t *task) run() {
	if t.called() {
		t.life.misbehave(t)
	}
}

// add makes a task and arms it. On a wheel with a limit that is a Timeout: a Timer does not report
// that it was refused.
func (l *life) add() {
	d := l.delay()
	var t *task
	if l.shape.limit == 0 && rand.IntN(2) == 0 {
		t = l.newTimer(d)
	} else {
		t = l.newTimeout(d)
	}
	if old := l.known[rand.IntN(len(l.known))].Swap(t); old != nil {
		old.do(old.calls[0], 0)
	}
}

func (l *life) newTimer(d time.Duration) *task {
	t := &task{life: l, kind: "Timer", silent: true}
	var timer *timingwheel.Timer
	t.calls = []call{
		func(time.Duration) (bool, bool, error) { return timer.Stop(), false, nil },
		func(d time.Duration) (bool, bool, error) { return timer.Reset(d), true, nil },
	}
	t.do(func(d time.Duration) (bool, bool, error) {
		timer = l.w.AfterFunc(d, t.run)
		return false, true, nil
	}, d)
	return t
}

// newTimeout uses Schedule, ScheduleAt, or Schedule of a Pool.
func (l *life) newTimeout(d time.Duration) *task {
	t := &task{life: l, kind: "Timeout"}
	var timeout timingwheel.Timeout
	t.calls = []call{
		func(time.Duration) (bool, bool, error) { return timeout.Cancel(), false, nil },
		func(d time.Duration) (bool, bool, error) { moved := timeout.Reset(d); return moved, moved, nil },
	}
	t.do(func(d time.Duration) (_, added bool, err error) {
		switch n := rand.IntN(3); {
		case n == 0 && l.pool != nil:
			timeout, err = l.pool.Schedule(l.w, d, func(*pool.Worker) { t.run() })
		case n == 1:
			timeout, err = l.w.ScheduleAt(time.Now().Add(d), t.run)
		default:
			timeout, err = l.w.Schedule(d, t.run)
		}
		return false, err == nil, err
	}, d)
	return t
}

// newKey returns the task of a key. It is armed by its calls, any number of times.
func (l *life) newKey(n int) *task {
	t := &task{life: l, kind: "Keyed"}
	schedule := func(d time.Duration) (bool, bool, error) {
		replaced, err := l.keyed.Schedule(n, d, t.run)
		return replaced, err == nil, err
	}
	t.calls = []call{
		func(time.Duration) (bool, bool, error) { return l.keyed.Cancel(n), false, nil },
		func(d time.Duration) (bool, bool, error) { moved := l.keyed.Reset(n, d); return moved, moved, nil },
		schedule, schedule, schedule, schedule,
	}
	return t
}

// A task that ends twice, is lost, or is early is a violation.
func TestAccountsSeeFaults(t *testing.T) {
	var (
		add    call = func(time.Duration) (bool, bool, error) { return false, true, nil }
		remove call = func(time.Duration) (bool, bool, error) { return true, false, nil }
		move   call = func(time.Duration) (bool, bool, error) { return true, true, nil }
	)
	for name, c := range map[string]struct {
		do   func(l *life, t *task)
		want int64
	}{
		"ran":                 {func(_ *life, t *task) { t.do(add, 0); t.called() }, 0},
		"twice":               {func(_ *life, t *task) { t.do(add, 0); t.called(); t.called() }, 1},
		"lost":                {func(_ *life, t *task) { t.do(add, 0) }, 1},
		"early":               {func(_ *life, t *task) { t.do(add, time.Hour); t.called() }, 1},
		"canceled":            {func(_ *life, t *task) { t.do(add, 0); t.do(remove, 0) }, 0},
		"ran canceled":        {func(_ *life, t *task) { t.do(add, 0); t.do(remove, 0); t.called() }, 1},
		"canceled twice":      {func(_ *life, t *task) { t.do(add, 0); t.do(remove, 0); t.do(remove, 0) }, 1},
		"early after a reset": {func(_ *life, t *task) { t.do(add, 0); t.do(move, time.Hour); t.called() }, 1},
		"handed back too old": {func(l *life, t *task) { t.do(add, time.Hour); l.mode.Store(handedBack); t.called() }, 1},
		"perhaps refused":     {func(l *life, t *task) { l.begun.Store(true); t.silent = true; t.do(add, 0) }, 0},
	} {
		l := &life{soak: newSoak(t.Log)}
		l.mode.Store(ran)
		c.do(l, &task{life: l, kind: name})
		l.lost()
		require.Equal(t, c.want, l.soak.violations.Load(), name)
	}
}
