package main

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func (l *life) newTask(kind string) *task {
	return &task{life: l, kind: kind, stripe: rand.IntN(len(l.ledger.stripes))}
}

func (l *life) schedule(d time.Duration) {
	t := l.newTask("Schedule")
	t.mu.Lock()
	defer t.mu.Unlock()
	due := l.soak.now() + max(0, d)
	t.arm(due)
	var err error
	if rand.IntN(2) == 0 {
		t.timeout, err = l.w.Schedule(d, t.run)
	} else {
		t.timeout, err = l.w.ScheduleAt(l.soak.begin.Add(due), t.run)
	}
	if err == nil {
		l.keep(t)
	} else {
		t.refused(err)
	}
}

// refused is called with t.mu held.
func (t *task) refused(err error) {
	l := t.life
	t.disarm(false, "refused", &l.soak.refused)
	switch {
	case errors.Is(err, timingwheel.ErrTooManyPending) && l.shape.limit > 0:
		l.refused.Add(1)
	case errors.Is(err, timingwheel.ErrStopped) && l.ending.Load():
	default:
		l.violate("%s: refused without reason: %v", t.kind, err)
	}
}

func (l *life) afterFunc(d time.Duration) {
	t := l.newTask("AfterFunc")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arm(l.soak.now() + max(0, d))
	t.timer = l.w.AfterFunc(d, t.run)
	t.armed(l.shape.limit == 0)
	l.keep(t)
}

func (t *task) cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil && t.timer.Stop() || t.timer == nil && t.timeout.Cancel() {
		t.disarm(false, "cancelled", &t.life.soak.cancelled)
	}
}

// reset resets a Timer. Where there is a limit, the Timer may be one that was refused and
// never runs, and its Reset does not tell: unless the call comes from inside its function.
func (t *task) reset(d time.Duration, inside bool) {
	l := t.life
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil || l.shape.limit > 0 && !inside {
		return
	}
	t.arm(l.soak.now() + max(0, d))
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

// ran accounts for a call, and reports whether it is a run.
func (t *task) ran() bool {
	l, mode := t.life, t.life.mode.Load()
	how, count := "ran", &l.soak.ran
	switch mode {
	case discarding:
		how, count = "discarded", &l.soak.discarded
	case handingBack:
		how, count = "handed back", &l.soak.handedBack
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := l.soak.now()
	due, ok := t.disarm(true, how, count)
	switch {
	case !ok:
	case mode == handingBack:
		if l.deadline < due {
			l.violate("%s: handed back with a deadline of %v, due at %v", t.kind, l.deadline, due)
		}
	case now < due:
		l.violate("%s: %v early", t.kind, due-now)
	case l.shape.executor == "" && mode == running:
		l.soak.late.add(now - due)
	}
	return ok && mode == running
}

// misbehave does what a task may do. T may be nil.
func (l *life) misbehave(t *task) {
	if l.stopper.Load() && l.stopper.CompareAndSwap(true, false) {
		l.stop()
		return
	}
	switch n := rand.IntN(32); n {
	case 0, 1:
		l.call()
	case 2:
		l.schedule(l.delay())
	case 3, 4, 5:
		if t != nil {
			t.reset(l.delay(), true)
		}
	case 6:
		if l.shape.mayBlock() {
			time.Sleep(time.Duration(rand.IntN(3_000_000)))
		}
	case 7:
		runtime.Goexit()
	case 8:
		if l.shape.handler {
			l.panicked.Add(1)
			l.soak.panics.Add(1)
			panic(errOnPurpose)
		}
	case 9:
		if t := l.some(); t != nil {
			t.cancel()
		}
	}
}

// key is a key of the Keyed, and what it is scheduled for. Its mutex is held around each
// call for the key. Lock order: key, task.
type key struct {
	mu  sync.Mutex
	cur *task
}

func (l *life) key() {
	n := rand.IntN(len(l.keys))
	k := &l.keys[n]
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cur == nil {
		k.cur = l.newTask("Keyed")
	}
	old := k.cur
	old.mu.Lock()
	defer old.mu.Unlock()
	switch d := l.delay(); rand.IntN(6) {
	case 0:
		if l.keyed.Cancel(n) {
			old.disarm(false, "cancelled", &l.soak.cancelled)
		}
	case 1:
		due := l.soak.now() + max(0, d)
		if l.keyed.Reset(n, d) {
			old.arm(due)
			old.moved()
		}
	case 2:
		if at, ok := l.keyed.Deadline(n); ok && (len(old.dues) == 0 || at.Before(l.soak.begin.Add(old.dues[0]))) {
			l.violate("Keyed: a deadline of %v, due at %v", at.Sub(l.soak.begin), old.dues)
		}
	default:
		k.cur = l.newTask("Keyed")
		k.cur.scheduleKey(n, d, old)
	}
}

// scheduleKey puts t in the place of old, whose lock is held.
func (t *task) scheduleKey(n int, d time.Duration, old *task) {
	l := t.life
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arm(l.soak.now() + max(0, d))
	replaced, err := l.keyed.Schedule(n, d, t.run)
	if err != nil {
		t.refused(err)
		l.keys[n].cur = old
		return
	}
	if replaced {
		old.disarm(false, "replaced", &l.soak.cancelled)
	}
}
