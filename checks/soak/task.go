package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// task is a function that can be armed any number of times. Each time it must end in
// exactly one way: it runs, or it is canceled, handed back, discarded or refused.
//
// Every call that arms or disarms a task is made with its mutex held, and its function
// takes the mutex before it does anything else. So the result of the call is in the
// accounts before the function looks at them.
type task struct {
	life *life
	kind string

	mu      sync.Mutex
	dues    []time.Duration // the earliest time of each run to come, in the order of arming
	maybe   int             // how many of the last dues may have been refused
	timer   *timingwheel.Timer
	timeout timingwheel.Timeout
}

func newTask(l *life, kind string) *task {
	return &task{life: l, kind: kind}
}

// The caller of arm, armed, moved, disarm and refused holds t.mu.

// arm notes that t may run at or after due. It is called before the call on the wheel.
func (t *task) arm(due time.Duration) {
	if len(t.dues) == 0 {
		t.life.armed.Store(t, true)
	}
	t.dues = append(t.dues, due)
	t.life.soak.total.tasks.Add(1)
}

// armed follows arm, after the call on the wheel. The call was accepted for certain only
// if the wheel cannot have been full, and is not ending.
func (t *task) armed(certain bool) {
	if !certain || t.life.ending.begun.Load() {
		t.maybe++
	}
}

// moved follows arm, if the call moved the pending run to another time instead of adding
// one.
func (t *task) moved() {
	last := len(t.dues) - 1
	if last == 0 {
		t.life.violate("%s: reported as pending, but nothing was", t.kind)
		return
	}
	t.life.soak.total.reset.Add(1)
	t.dues[last-1] = t.dues[last]
	t.dues = t.dues[:last]
	t.life.soak.total.tasks.Add(-1)
}

// disarm ends one run, the oldest if first is set and the newest otherwise. It adds to
// count. It returns when that run was due, and false if there was none.
func (t *task) disarm(first bool, how string, count *atomic.Int64) (due time.Duration, ok bool) {
	last := len(t.dues) - 1
	if last < 0 {
		t.life.violate("%s: %s, but it had ended before", t.kind, how)
		return 0, false
	}
	due = t.dues[last]
	if first {
		due = t.dues[0]
		copy(t.dues, t.dues[1:])
	}
	if t.dues = t.dues[:last]; last == 0 {
		t.maybe = 0
		t.life.armed.Delete(t)
	}
	count.Add(1)
	return due, true
}

// refused follows arm, if the call returned an error.
func (t *task) refused(err error) {
	t.disarm(false, "refused", &t.life.soak.total.refused)
	t.life.refused(t.kind, err)
}

func (t *task) cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil && t.timer.Stop() || t.timer == nil && t.timeout.Cancel() {
		t.disarm(false, "canceled", &t.life.soak.total.canceled)
	}
}

// reset resets the Timer or the Timeout of t. A Timer that was refused never runs, and its
// Reset does not tell. So on a wheel with a limit, reset of a Timer does something only if it
// is called from inside the function, which proves that the Timer was accepted.
func (t *task) reset(d time.Duration, inside bool) {
	l := t.life
	t.mu.Lock()
	defer t.mu.Unlock()
	due := l.soak.now() + max(0, d)
	switch {
	case t.timer == nil:
		if t.timeout.Reset(d) {
			t.arm(due)
			t.moved()
		}
		return
	case l.shape.limit > 0 && !inside:
		return
	}
	t.arm(due)
	if t.timer.Reset(d) {
		t.moved()
	} else {
		t.armed(true)
	}
}

// run is the function of every task.
func (t *task) run() {
	if t.ran() {
		t.life.misbehave(t)
	}
}

// ran accounts for a call of the function. It reports whether the call is a run: whether
// the wheel made it, and not the soak to learn what was discarded or handed back.
func (t *task) ran() bool {
	l, mode := t.life, t.life.mode.Load()
	how, count := "ran", &l.soak.total.ran
	switch mode {
	case discarding:
		how, count = "discarded", &l.soak.total.discarded
	case handingBack:
		how, count = "handed back", &l.soak.total.handedBack
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := l.soak.now()
	due, ok := t.disarm(true, how, count)
	switch {
	case !ok:
	case mode == handingBack:
		if deadline := l.ending.deadline; deadline < due {
			l.violate("%s: handed back with a deadline of %v, due at %v", t.kind, deadline, due)
		}
	case now < due:
		l.violate("%s: %v early", t.kind, due-now)
	}
	return ok && mode == running
}
