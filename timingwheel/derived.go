package timingwheel

import "context"

// heirs is what package context has derived from a deadlineCtx. Most contexts have none, so
// it is apart from them. Guarded by the context's mu.
type heirs struct {
	ring       *derived    // in no order; nil: there are none any more
	first      derived     // the first that there was: most have one
	stopNotice func() bool // of the parent's end; nil: it never ends, or callOff has taken the notice back
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
	c.state.Or(derives)
	if c.outcome.Load().isFinal() { // after the Or: whoever sets it looks at the state next
		go f()
		return func() bool { return false }
	}
	var d *derived
	if c.heirs == nil {
		c.heirs = new(heirs)
		d = &c.heirs.first
		if c.parentDone != nil {
			c.heirs.stopNotice = context.AfterFunc(c.herald(), c.cancelFunc)
		}
	} else {
		d = new(derived)
	}
	d.end = f
	c.heirs.putIn(d)
	return func() bool { return c.forget(d) }
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

func (c *deadlineCtx) forget(d *derived) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heirs.takeOut(d) != nil
}

// endDerived ends all that was derived. The context must have its outcome, and the inner
// context must have ended. It holds mu meanwhile, so that whoever comes second waits, as
// with package context.
func (c *deadlineCtx) endDerived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heirs == nil {
		return // what was just being derived has found the outcome
	}
	for c.heirs.ring != nil {
		c.heirs.takeOut(c.heirs.ring)()
	}
}

// callOff takes the notice of the parent's end back: finish needs it no more.
func (c *deadlineCtx) callOff() {
	c.mu.Lock()
	var stop func() bool
	if c.heirs != nil {
		stop, c.heirs.stopNotice = c.heirs.stopNotice, nil
	}
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}
