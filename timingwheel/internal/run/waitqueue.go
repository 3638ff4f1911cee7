package run

import (
	"container/list"
	"sync"
	"sync/atomic"
)

// waitQueue is the queue of the wheels whose tasks wait for room in a Pool. Each wheel has one
// place, however many of its tasks wait. The wheel at the front gets the next room, for
// one task, and goes to the end. So a wheel with a burst does not keep the room from the
// others.
//
// The invariant: a wheel with an entry that waits is in the line, or is about to join it.
// A wheel whose entries were all canceled may be in it too, until its turn comes.
type waitQueue struct {
	mu     sync.Mutex               // lock order: shard, mu
	wheels list.List                // of waiter, the next first; guarded by mu
	places map[Waiter]*list.Element // guarded by mu
	length atomic.Int32
}

// isEmpty needs no lock.
func (l *waitQueue) isEmpty() bool { return l.length.Load() == 0 }

// join puts a wheel at the end of the line, unless it is in it.
func (l *waitQueue) join(w Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.places[w] != nil {
		return
	}
	if l.places == nil {
		l.places = map[Waiter]*list.Element{}
	}
	l.places[w] = l.wheels.PushBack(w)
	l.length.Add(1)
}

// next returns the wheel at the front, and moves it to the end. It returns nil if there
// is none.
func (l *waitQueue) next() Waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	front := l.wheels.Front()
	if front == nil {
		return nil
	}
	l.wheels.MoveToBack(front)
	return front.Value.(Waiter)
}

// leave takes a wheel out of the line, unless one of its entries waits. An entry counts
// as waiting before its wheel joins. So no entry is left behind.
func (l *waitQueue) leave(w Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if place := l.places[w]; place != nil && w.Waits() == 0 {
		l.wheels.Remove(place)
		delete(l.places, w)
		l.length.Add(-1)
	}
}

// waiting returns how many tasks wait on the wheels of the line.
func (l *waitQueue) waiting() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.places {
		n += w.Waits()
	}
	return n
}
