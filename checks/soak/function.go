package main

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// functions are those of AfterFunc and Schedule.
type functions struct {
	life *life

	mu    sync.Mutex
	known []*task // guarded by mu; at most mostKnown, to be canceled and reset
}

const mostKnown = 1000

func (f *functions) schedule(d time.Duration) {
	l := f.life
	t := newTask(l, "Schedule")
	t.mu.Lock()
	defer t.mu.Unlock()
	due := l.soak.now() + max(0, d)
	t.arm(due)
	var err error
	switch n := rand.IntN(3); {
	case n == 0 && l.pool != nil:
		t.timeout, err = l.pool.Schedule(l.w, d, func(*pool.Worker) { t.run() })
	case n <= 1:
		t.timeout, err = l.w.Schedule(d, t.run)
	default:
		t.timeout, err = l.w.ScheduleAt(l.soak.begin.Add(due), t.run)
	}
	if err != nil {
		t.refused(err)
		return
	}
	f.keep(t)
}

func (f *functions) afterFunc(d time.Duration) {
	l := f.life
	t := newTask(l, "AfterFunc")
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arm(l.soak.now() + max(0, d))
	t.timer = l.w.AfterFunc(d, t.run)
	t.armed(l.shape.limit == 0)
	f.keep(t)
}

func (f *functions) cancelSome() {
	if t := f.some(); t != nil {
		t.cancel()
	}
}

func (f *functions) resetSome(d time.Duration) {
	if t := f.some(); t != nil {
		t.reset(d, false)
	}
}

// some returns one of the known tasks, or nil if there is none yet.
func (f *functions) some() *task {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) == 0 {
		return nil
	}
	return f.known[rand.IntN(len(f.known))]
}

// keep adds t to the known tasks, in the place of another if there are enough. It is
// called with t.mu held: lock order is task, functions.
func (f *functions) keep(t *task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) < mostKnown {
		f.known = append(f.known, t)
	} else {
		f.known[rand.IntN(len(f.known))] = t
	}
}
