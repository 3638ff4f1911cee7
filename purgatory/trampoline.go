package purgatory

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// trampoline calls done, and keeps such calls from nesting without bound. A done that ends
// another operation has that one's done called inside its own, and a chain of a million
// would be a stack of a million calls. From a certain depth on, what is to be called is
// put into a queue instead, and whoever began that queue, further up on the same stack,
// calls it next.
//
// It is not known which goroutine one is on. So when chains of two goroutines are that
// deep at the same time, what the one has put there may be called by the other.
type trampoline struct {
	mu      sync.Mutex
	waiting []call
	calling bool // somebody calls what waits, until nothing does

	apart atomic.Int32 // calls of rest under way
}

type call struct {
	done func(Outcome)
	o    Outcome
}

const (
	// To look how deep a stack is takes microseconds. Below so many calls that are under
	// way at a time nobody looks: no stack can have more.
	freeCalls = 16

	// deepStack is how many frames make a stack deep. The handler of an HTTP request has
	// about 15 above it. With 128 a look takes twice as long.
	deepStack = 64

	// manyApart is how many calls of rest make any stack a deep one. Each begins another
	// stack, which does not show how deep the one is that waits for it.
	manyApart = 64
)

// run calls done(o). Running counts the calls under way.
func (t *trampoline) run(running *atomic.Int32, done func(Outcome), o Outcome) {
	if running.Add(1) > freeCalls && (isDeep() || t.apart.Load() > manyApart) {
		running.Add(-1)
		t.put(call{done, o})
		return
	}
	defer running.Add(-1)
	done(o)
}

func isDeep() bool {
	var pc [1]uintptr
	return runtime.Callers(deepStack, pc[:]) > 0
}

func (t *trampoline) put(c call) {
	if t.add(c) {
		t.all(t.next)
	}
}

// add reports whether the caller has to call what waits.
func (t *trampoline) add(c call) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = append(t.waiting, c)
	first = !t.calling
	t.calling = true
	return first
}

// next calls one, and reports false if none waits.
func (t *trampoline) next() bool {
	c, ok := t.take()
	if ok {
		c.done(c.o)
	}
	return ok
}

func (t *trampoline) take() (call, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 {
		t.waiting, t.calling = nil, false
		return call{}, false
	}
	c := t.waiting[0]
	t.waiting[0] = call{} // keep no closure
	t.waiting = t.waiting[1:]
	return c, true
}
