package timingwheel

import "context"

// derived is a place in the ring of what package context has derived from a deadlineCtx.
type derived struct {
	end        func() // ends it; nil once it has been taken out
	prev, next *derived
}

// AfterFunc is the method that package context looks for in a parent that is not its own. It
// has f called once the context has ended, unless stop comes first. Package context calls it
// with a lock held that f takes, so AfterFunc never calls f itself.
func (c *deadlineCtx) AfterFunc(f func()) (stop func() bool) {
	c.Done() // makes the inner context
	c.mu.Lock()
	defer c.mu.Unlock()
	c.derives.Store(true)
	if c.outcome.Load().isFinal() { // after the Store: whoever sets it looks at derives next
		go f()
		return func() bool { return false }
	}
	d := &derived{end: f}
	if first := c.derived; first == nil {
		d.prev, d.next = d, d
	} else {
		d.prev, d.next = first.prev, first
		d.prev.next, first.prev = d, d
	}
	c.derived = d
	if c.stopNotice == nil && c.parentDone != nil {
		c.stopNotice = context.AfterFunc(c.herald(), c.cancelFunc)
	}
	return func() bool { return c.forget(d) }
}

// herald returns the context whose end is that of the parent. If package context has made it,
// it has a map of what depends on it already, with the inner context in it. Otherwise it is
// the inner context, rather than to ask a stranger twice.
func (c *deadlineCtx) herald() context.Context {
	parent, ok := c.above().Value(packageKey).(context.Context)
	if ok && parent.Done() == c.parentDone {
		return parent
	}
	return c.inner
}

func (c *deadlineCtx) forget(d *derived) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeOut(d) != nil
}

// takeOut is called with mu held. It returns nil if d has been taken out before.
func (c *deadlineCtx) takeOut(d *derived) (end func()) {
	if end = d.end; end == nil {
		return nil
	}
	if c.derived = d.next; d.next == d {
		c.derived = nil
	}
	d.prev.next, d.next.prev = d.next, d.prev
	*d = derived{}
	return end
}

// endDerived ends all that was derived. The context must have its outcome, and the inner
// context must have ended. It holds mu meanwhile, so that whoever comes second waits, as
// with package context.
func (c *deadlineCtx) endDerived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.derived != nil {
		c.takeOut(c.derived)()
	}
}

// callOff takes the notice of the parent's end back: finish needs it no more.
func (c *deadlineCtx) callOff() {
	c.mu.Lock()
	stop := c.stopNotice
	c.stopNotice = nil
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}
