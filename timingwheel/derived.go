package timingwheel

import "context"

// heirs is what package context has derived from a deadlineCtx. Guarded by the context's mu.
//
// It is part of the context, and the first one needs no place in the ring: most contexts have
// one at most.
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
// It calls f once the context has ended, unless stop is called first. Package context
// holds a lock that f takes when it calls AfterFunc, so f runs on another goroutine.
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
	if c.parentDone != nil {
		c.heirs.stopNotice = context.AfterFunc(c.herald(), c.cancelFunc)
	}
	c.heirs.first = f
	return c.forgetFirst
}

func (c *deadlineCtx) forgetFirst() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.heirs.first != nil
	c.heirs.first = nil
	return was
}

func (c *deadlineCtx) forget(d *derived) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heirs.takeOut(d) != nil
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

// takeOut returns nil if d has been taken out before.
func (h *heirs) takeOut(d *derived) (end func()) {
	if end = d.end; end == nil {
		return nil
	}
	if h.ring = d.next; d.next == d {
		h.ring = nil
	}
	d.prev.next, d.next.prev = d.next, d.prev
	*d = derived{}
	return end
}

// herald returns the context whose end is that of the parent. If package context has made it,
// it has a map of what depends on it already, with the inner context in it. Otherwise it is
// the inner context, rather than to ask a stranger twice.
func (c *deadlineCtx) herald() context.Context {
	parent, ok := c.above().Value(packageKey).(context.Context)
	if ok && parent.Done() == c.parentDone {
		return parent
	}
	return c.inner.(context.Context)
}

// endDerived ends all that was derived. The context must have its outcome, and the inner
// context must have ended. It holds mu meanwhile, so that whoever comes second waits, as
// with package context.
func (c *deadlineCtx) endDerived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if end := c.heirs.first; end != nil {
		c.heirs.first = nil
		end()
	}
	for c.heirs.ring != nil {
		c.heirs.takeOut(c.heirs.ring)()
	}
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
