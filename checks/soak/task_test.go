package soak

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// task is a function that can be armed any number of times. Each time it must end in exactly one
// way: it runs, or it is canceled, handed back, discarded or refused.
//
// Every call that arms or disarms a task is made with its mutex held, and its function takes the
// mutex before it does anything else. So the result of the call is in the accounts before the
// function looks at them.
type task struct {
	life *life
	kind string

	mu      sync.Mutex
	dues    []time.Duration // the earliest time of each run to come, in the order of arming
	maybe   int             // how many of the last dues may have been refused
	timer   *timingwheel.Timer
	timeout timingwheel.Timeout
}

// The caller of arm, armed, moved, disarm and refused holds t.mu.

// arm notes that t may run after d, and returns when that is. It is called before the call on the
// wheel.
func (t *task) arm(d time.Duration) time.Duration {
	due := t.life.soak.now() + max(0, d)
	t.life.armed.Store(t, true)
	t.dues = append(t.dues, due)
	return due
}

// armed follows arm, after the call on the wheel. The call was accepted for certain only if the
// wheel cannot have been full, and is not ending.
func (t *task) armed(certain bool) {
	if !certain || t.life.begun.Load() {
		t.maybe++
	}
}

// moved follows arm, if the call moved the pending run to another time instead of adding one.
func (t *task) moved() {
	last := len(t.dues) - 1
	if last == 0 {
		t.life.violate("%s: reported as pending, but nothing was", t.kind)
		return
	}
	t.life.soak.count("reset").Add(1)
	t.dues[last-1] = t.dues[last]
	t.dues = t.dues[:last]
}

// disarm ends one run, the oldest if first is set and the newest otherwise. It returns when that
// was due, and false if there was none.
func (t *task) disarm(first bool, how string) (due time.Duration, ok bool) {
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
	t.life.soak.count(how).Add(1)
	return due, true
}

// refused follows arm, if the call returned an error.
func (t *task) refused(err error) {
	t.disarm(false, "refused")
	t.life.refused(t.kind, err)
}

func (t *task) cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer != nil && t.timer.Stop() || t.timer == nil && t.timeout.Cancel() {
		t.disarm(false, "canceled")
	}
}

// reset resets the Timer or the Timeout of t. A Timer that was refused never runs, and its Reset
// does not tell. So on a wheel with a limit, reset of a Timer does something only if it is called
// from inside the function, which proves that the Timer was accepted.
func (t *task) reset(d time.Duration, inside bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		due := t.life.soak.now() + max(0, d)
		if t.timeout.Reset(d) {
			t.dues = append(t.dues, due)
			t.moved()
		}
		return
	}
	if t.life.shape.limit > 0 && !inside {
		return
	}
	t.arm(d)
	if t.timer.Reset(d) {
		t.moved()
	} else {
		t.armed(true)
	}
}

// ran accounts for a call of the function. It reports whether the call is a run: whether the
// wheel made it, and not the soak to learn which functions were discarded or handed back.
func (t *task) ran() bool {
	l, mode := t.life, t.life.mode.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	now := l.soak.now()
	due, ok := t.disarm(true, [...]string{"ran", "discarded", "handed back"}[mode])
	switch {
	case !ok:
	case mode == handingBack && l.deadline < due:
		l.violate("%s: handed back with a deadline of %v, due at %v", t.kind, l.deadline, due)
	case mode != handingBack:
		l.notEarly(t.kind, now, due)
	}
	return ok && mode == running
}

// run is the function of every task.
func (t *task) run() {
	if t.ran() {
		t.life.misbehave(t)
	}
}

// schedule makes a task by Schedule, ScheduleAt, AfterFunc or that of a Pool.
func (l *life) schedule(d time.Duration) {
	t := &task{life: l, kind: "Schedule"}
	t.mu.Lock()
	defer t.mu.Unlock()
	due := t.arm(d)
	var err error
	switch n := rand.IntN(6); {
	case n < 3:
		t.kind = "AfterFunc"
		t.timer = l.w.AfterFunc(d, t.run)
		t.armed(l.shape.limit == 0)
	case n == 3 && l.pool != nil:
		t.timeout, err = l.pool.Schedule(l.w, d, func(*pool.Worker) { t.run() })
	case n <= 4:
		t.timeout, err = l.w.Schedule(d, t.run)
	default:
		t.timeout, err = l.w.ScheduleAt(l.soak.begin.Add(due), t.run)
	}
	if err != nil {
		t.refused(err)
		return
	}
	l.known[rand.IntN(len(l.known))].Store(t)
}

// key is a key of a Keyed and the task that it was last scheduled for. Its mutex is held around
// each call for the key. Lock order: key, task.
type key struct {
	mu   sync.Mutex
	task *task // guarded by mu; nil until the first use
}

// callKeyed makes one random call for a random key.
func (l *life) callKeyed() {
	n, d := rand.IntN(len(l.keys)), l.delay()
	key := &l.keys[n]
	key.mu.Lock()
	defer key.mu.Unlock()
	if key.task == nil {
		key.task = &task{life: l, kind: "Keyed"}
	}
	t := key.task
	t.mu.Lock()
	defer t.mu.Unlock()
	switch rand.IntN(6) {
	case 0:
		if l.keyed.Cancel(n) {
			t.disarm(false, "canceled")
		}
	case 1:
		due := l.soak.now() + max(0, d)
		if l.keyed.Reset(n, d) {
			t.dues = append(t.dues, due)
			t.moved()
		}
	default:
		next := &task{life: l, kind: "Keyed"}
		next.mu.Lock()
		defer next.mu.Unlock()
		next.arm(d)
		replaced, err := l.keyed.Schedule(n, d, next.run)
		if err != nil {
			next.refused(err)
			return
		}
		if key.task = next; replaced {
			t.disarm(false, "canceled")
		}
	}
}

// A task that ends twice, is lost, or is early is a violation.
func TestAccountsSeeFaults(t *testing.T) {
	arm := func(t *task, d time.Duration) { t.mu.Lock(); defer t.mu.Unlock(); t.arm(d) }
	for name, c := range map[string]struct {
		do   func(l *life, t *task)
		want int
	}{
		"ran":                 {func(_ *life, t *task) { arm(t, 0); t.ran() }, 0},
		"twice":               {func(_ *life, t *task) { arm(t, 0); t.ran(); t.ran() }, 1},
		"lost":                {func(_ *life, t *task) { arm(t, 0) }, 1},
		"early":               {func(_ *life, t *task) { arm(t, time.Hour); t.ran() }, 1},
		"handed back too old": {func(l *life, t *task) { arm(t, time.Hour); l.mode.Store(handingBack); t.ran() }, 1},
		"perhaps refused":     {func(l *life, t *task) { l.begun.Store(true); arm(t, 0); t.armed(true) }, 0},
	} {
		violations := 0
		l := &life{soak: &soak{begin: time.Now(), violated: func(string) { violations++ }}}
		c.do(l, &task{life: l, kind: "a task"})
		l.lost()
		require.Equal(t, c.want, violations, name)
	}
}
