package main

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// group makes a Group, as a connection does, uses it for a moment, and stops it. What Stop
// says must be as many functions as have not ended in another way.
func (l waiter) group() {
	if l.shape.executor == poolDiscard {
		return // what was discarded is known only at the end of the wheel
	}
	g := timingwheel.NewGroup(l.w)
	var tasks []*task
	for range 1 + rand.IntN(10) {
		tasks = append(tasks, l.addTo(g))
	}
	for range rand.IntN(10) {
		t := tasks[rand.IntN(len(tasks))]
		if rand.IntN(4) == 0 {
			t.cancel()
		} else {
			t.reset(l.delay(), false)
		}
	}
	time.Sleep(short())
	canceled := g.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := g.StopWait(ctx); err != nil {
		l.violate("Group: StopWait: %v\n%s", err, stacks())
	}
	if left := l.left(tasks); left != canceled && !l.ending.begun.Load() {
		l.violate("Group: Stop has canceled %d, but %d have not ended in another way", canceled, left)
	}
}

// addTo adds a function to a group.
func (l waiter) addTo(g *timingwheel.Group) *task {
	t, d := newTask(l.life, "Group"), l.delay()
	t.grouped = true
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arm(l.soak.now() + max(0, d))
	if rand.IntN(2) == 0 && l.shape.limit == 0 { // with a limit, AfterFunc does not tell
		t.timer = g.AfterFunc(d, t.run)
		t.armed(true)
		return t
	}
	var err error
	if t.timeout, err = g.Schedule(d, t.run); err != nil {
		t.refused(err)
	}
	return t
}

// left accounts for the functions of a group that was stopped, and returns how many it has
// canceled. While the wheel is ending, they may have been handed back instead.
func (l waiter) left(tasks []*task) (n int) {
	for _, t := range tasks {
		t.mu.Lock()
		n += len(t.dues) // two, if a Timer has been reset while its function was in the queue
		if l.ending.begun.Load() {
			t.maybe = len(t.dues)
		}
		for t.maybe < len(t.dues) {
			t.disarm(false, "canceled by its group", &l.soak.total.canceled)
		}
		t.mu.Unlock()
	}
	return n
}
