package timingwheel

import (
	"context"
	"sync"
	"unsafe"
)

// heirs is what package context has derived from a deadlineCtx. Guarded by the context's
// mu.
//
// It is part of the context, and the first one needs no place in the ring: most contexts
// have one at most.
type heirs struct {
	first      func()      // ends the first one; nil: there is none, or it was taken out
	ring       *derived    // the others, in no order; nil: there are none
	stopNotice func() bool // of the parent's end; nil: nobody waits for it
}

// derived is a place in the ring.
type derived struct {
	end        func() // ends it; nil once it has been taken out
	prev, next *derived
}

// AfterFunc is the method that package context looks for in a parent that is not its own.
// It calls f once the context has ended, unless stop is called first. A caller other than
// package context gets what context.AfterFunc promises: f runs in a goroutine of its own,
// and delays nobody.
//
// The function of package context ends what it derives. It runs before the CancelFunc
// returns. If the context has ended already, it also gets a goroutine, since package
// context holds a lock that it takes.
func (c *deadlineCtx) AfterFunc(f func()) (stop func() bool) {
	c.Done() // makes the inner context
	c.mu.Lock()
	defer c.mu.Unlock()
	derivesFirst := c.state.Or(derives)&derives == 0
	if c.outcome.Load().isFinal() { // after the Or: whoever sets it looks at the state next
		go f()
		return func() bool { return false }
	}
	if !derivesFirst {
		d := &derived{end: f}
		c.heirs.putIn(d)
		return func() bool { return c.forget(d) }
	}
	if c.source != nil {
		c.heirs.stopNotice = context.AfterFunc(c.herald(), c.cancelFunc)
	}
	c.heirs.first = f
	return c.forgetFirst
}

func (c *deadlineCtx) forgetFirst() bool { return c.forget(nil) }

// forget takes a place out of the ring, or the first one for nil. It reports whether it
// was there.
func (c *deadlineCtx) forget(d *derived) (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d != nil {
		return c.heirs.takeOut(d)
	}
	was = c.heirs.first != nil
	c.heirs.first = nil
	return was
}

func (h *heirs) putIn(d *derived) {
	if first := h.ring; first == nil {
		d.prev, d.next = d, d
	} else {
		d.prev, d.next = first.prev, first
		d.prev.next, first.prev = d, d
	}
	h.ring = d
}

// takeOut reports false if d has been taken out before.
func (h *heirs) takeOut(d *derived) bool {
	if d.end == nil {
		return false
	}
	if h.ring = d.next; d.next == d {
		h.ring = nil
	}
	d.prev.next, d.next.prev = d.next, d.prev
	*d = derived{}
	return true
}

// herald returns the context whose end is that of the parent. If package context has made
// it, it has a map of what depends on it already, with the inner context in it. Otherwise
// it is the inner context.
func (c *deadlineCtx) herald() context.Context {
	switch above := c.above().(type) {
	case *deadlineCtx, doneOnly:
		return c.inner.(context.Context)
	default:
		return above
	}
}

// endDerived ends all that was derived. The context must have its outcome, and the inner
// context must have ended.
//
// Whoever comes second returns no sooner than all that package context has derived has
// ended, as with package context, and yet neither waits for the other with a lock held.
// For a function of package context stays in its place until it has returned, and may be
// called twice: the second call waits for the first, by the lock of the derived context.
// A function of somebody else is called by whoever takes it out of its place.
func (c *deadlineCtx) endDerived() {
	all := false
	defer func() {
		if !all { // a method of a context in between has panicked, or ended the goroutine
			go c.endDerived()
		}
	}()
	for end, d := c.anyDerived(); end != nil; end, d = c.anyDerived() {
		if isOfPackageContext(end) {
			c.endAndForget(end, d)
		} else if c.forget(d) {
			go end()
		}
	}
	all = true
}

func (c *deadlineCtx) anyDerived() (end func(), place *derived) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if first := c.heirs.first; first != nil {
		return first, nil
	}
	if place = c.heirs.ring; place != nil {
		end = place.end
	}
	return end, place
}

func (c *deadlineCtx) endAndForget(end func(), d *derived) {
	defer c.forget(d)
	end()
}

// callOff takes the notice of the parent's end back: finish needs it no more.
func (c *deadlineCtx) callOff() {
	c.mu.Lock()
	stop := c.heirs.stopNotice
	c.heirs.stopNotice = nil
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// isOfPackageContext reports whether package context has passed f to AfterFunc, to end what
// it derives. All functions that it passes have the same code. That code is found on first
// use, so that programs without contexts do not link it.
func isOfPackageContext(f func()) bool {
	passed.once.Do(func() {
		asked := &funcCatcher{Context: context.Background()}
		_, cancel := context.WithCancel(asked)
		cancel()
		passed.code = asked.code
	})
	return codeOf(f) == passed.code
}

var passed struct {
	once sync.Once
	code uintptr
}

// codeOf is reflect.Value.Pointer, which would make programs larger: a function is a pointer
// to a closure, which begins with a pointer to the code.
func codeOf(f func()) uintptr { return **(**uintptr)(unsafe.Pointer(&f)) }

// funcCatcher is a parent that package context passes a function to.
type funcCatcher struct {
	context.Context
	code uintptr
}

func (c *funcCatcher) Done() <-chan struct{} { return make(chan struct{}) }

func (c *funcCatcher) AfterFunc(f func()) (stop func() bool) {
	c.code = codeOf(f)
	return func() bool { return true }
}
