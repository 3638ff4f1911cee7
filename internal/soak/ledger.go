package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// task is a function that is armed any number of times, and runs, is cancelled, handed
// back, discarded or refused exactly as often.
//
// Its mutex is held around each call that arms or disarms it, and by the function before
// it does anything else. So what that call returns decides, before the function looks,
// what it must find.
type task struct {
	life   *life
	kind   string
	stripe int // of the ledger

	mu      sync.Mutex
	dues    []time.Duration // the earliest time of each run that is to come, in the order in which they were armed
	maybe   int             // of dues, so many of the last may have been refused: nothing tells
	timer   *timingwheel.Timer
	timeout timingwheel.Timeout
}

// ledger is all tasks that are armed.
type ledger struct {
	stripes [16]struct {
		mu    sync.Mutex
		tasks map[*task]struct{}
	}
}

// The methods that follow are called with t.mu held.

// arm notes that t may run from due on. It comes before the call that arms.
func (t *task) arm(due time.Duration) {
	if len(t.dues) == 0 {
		t.life.ledger.put(t)
	}
	t.dues = append(t.dues, due)
	t.life.soak.tasks.Add(1)
}

// armed says what became of the call: accepted, unless the wheel was already ending or
// may have been full, which not every call tells.
func (t *task) armed(certain bool) {
	if !certain || t.life.ending.Load() {
		t.maybe++
	}
}

// moved says that the run that was pending is due at another time instead. It follows
// arm.
func (t *task) moved() {
	last := len(t.dues) - 1
	if last == 0 {
		t.life.violate("%s: reported as pending, but nothing was", t.kind)
		return
	}
	t.dues[last-1] = t.dues[last]
	t.dues = t.dues[:last]
	t.life.soak.tasks.Add(-1)
}

// disarm takes the newest run back, or, with first, the oldest.
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
		t.life.ledger.remove(t)
	}
	count.Add(1)
	return due, true
}

// The methods that follow take the locks themselves.

func (l *ledger) put(t *task) {
	s := &l.stripes[t.stripe]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks == nil {
		s.tasks = make(map[*task]struct{})
	}
	s.tasks[t] = struct{}{}
}

func (l *ledger) remove(t *task) {
	s := &l.stripes[t.stripe]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, t)
}

// left returns the tasks that are armed.
func (l *ledger) left() (tasks []*task) {
	for i := range l.stripes {
		s := &l.stripes[i]
		s.mu.Lock()
		for t := range s.tasks {
			tasks = append(tasks, t)
		}
		s.mu.Unlock()
	}
	return tasks
}
