package purgatory

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// nest calls done, and keeps such calls from nesting without bound. A done that ends
// another operation has that one's done called inside its own, and a chain of a million
// would be a stack of a million calls. From a certain depth on, what is to be called is
// put into a queue instead, and whoever began that queue, further up on the same stack,
// calls it next.
//
// It is not known which goroutine one is on. So when chains of two goroutines are that
// deep at the same time, what the one has put there may be called by the other.
type nest struct {
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
func (n *nest) run(running *atomic.Int32, done func(Outcome), o Outcome) {
	if running.Add(1) > freeCalls && (isDeep() || n.apart.Load() > manyApart) {
		running.Add(-1)
		n.put(call{done, o})
		return
	}
	defer running.Add(-1)
	done(o)
}

func isDeep() bool {
	var pc [1]uintptr
	return runtime.Callers(deepStack, pc[:]) > 0
}

func (n *nest) put(c call) {
	if n.add(c) {
		n.all(n.next)
	}
}

// add reports whether the caller has to call what waits.
func (n *nest) add(c call) (first bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(n.waiting, c)
	first = !n.calling
	n.calling = true
	return first
}

// next calls one, and reports false if none waits.
func (n *nest) next() bool {
	c, ok := n.take()
	if ok {
		c.done(c.o)
	}
	return ok
}

func (n *nest) take() (call, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.waiting) == 0 {
		n.waiting, n.calling = nil, false
		return call{}, false
	}
	c := n.waiting[0]
	n.waiting[0] = call{} // keep no closure
	n.waiting = n.waiting[1:]
	return c, true
}
