package timingwheel

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// WithTimeout returns WithDeadline(parent, time.Now().Add(d)).
//
//	ctx, cancel := w.WithTimeout(r.Context(), 5*time.Second)
//	defer cancel() // takes the timer off the wheel
func (w *TimingWheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return w.WithTimeoutCause(parent, d, nil)
}

// WithTimeoutCause is [TimingWheel.WithTimeout] with a cause, which context.Cause
// returns once the timeout has expired. The CancelFunc does not set it.
func (w *TimingWheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	now := w.clock.read()
	return w.withDeadline(parent, now, now.Add(d), cause)
}

// WithDeadline returns a context that is done at the deadline, or when the parent
// is, or when the CancelFunc is called, whichever comes first: context.WithDeadline
// with its timer on the wheel. Call the CancelFunc as soon as the context is not
// needed any more; that takes the timer off the wheel, and so does the end of the
// parent.
//
// The context is never done before its deadline, and as late as a function that is
// scheduled for it may be; one whose deadline has passed is done when WithDeadline
// returns. Deadline, Err, Cause, Value and String are those of package context. So
// are the contexts that package context derives from it: they take their Err and
// Cause from it, and cost no goroutine. When the wheel is stopped, pending
// deadlines move to package time, and later ones are kept there too: none is lost.
//
// One thing differs, when the parent is one that can be canceled. That the parent's
// Done channel is closed shows in the context itself at once, to who calls Done or
// Err then; but a channel that Done returned earlier is closed, and contexts derived
// from this one are canceled, by a goroutine, a moment later. (Package context lets
// nobody else's code run while it cancels.)
//
// O(1). Three allocations, and two more if the parent can be canceled; and five
// when Done is first called, or package context first derives from it. A nil parent
// panics.
func (w *TimingWheel) WithDeadline(parent context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return w.withDeadline(parent, w.clock.read(), at, nil)
}

// WithDeadlineCause is [TimingWheel.WithDeadline] with a cause, which context.Cause
// returns once the deadline has passed. The CancelFunc does not set it.
func (w *TimingWheel) WithDeadlineCause(parent context.Context, at time.Time, cause error) (context.Context, context.CancelFunc) {
	return w.withDeadline(parent, w.clock.read(), at, cause)
}

func (w *TimingWheel) withDeadline(parent context.Context, now, at time.Time, cause error) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: cannot create context from nil parent")
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) && w.sharesClock(parent) {
		return context.WithCancel(parent)
	}
	c := &deadlineCtx{wheel: w, parent: parent, parentDone: parent.Done(), deadline: at, deadlineCause: cause}
	cancel := c.cancel
	switch d := at.Sub(now); {
	case c.parentIsDone():
		cancel()
	case d <= 0:
		c.expire()
	default:
		var stop func() bool
		if c.parentDone != nil {
			stop = context.AfterFunc(parent, cancel)
		}
		c.start(delay{now.Sub(w.clock.start), d}, stop)
	}
	return c, cancel
}

// clockKey is the key of the value by which a context tells the wheel whose manual clock its
// deadline is on.
type clockKey struct{}

// sharesClock reports whether the deadline of a context can be compared with one of the
// wheel's. With a manual clock that of a context of another origin cannot, and must not hide
// the wheel's.
func (w *TimingWheel) sharesClock(ctx context.Context) bool {
	return !w.clock.isManual() || ctx.Value(clockKey{}) == w
}

// deadlineCtx is a context whose deadline is kept by a wheel.
//
// It must be two things at once: a context that ends with DeadlineExceeded when we
// say so, and one that package context takes for its own, so that what it derives
// from this one is canceled without a goroutine, with a WithValue in between or
// not. Nothing that package context makes can be ended with an error of our
// choosing, but by a parent that ends with it. Hence a real context.WithCancel, the
// proxy, below a parent of our own, the origin, which is this very struct seen
// with other methods. The proxy's Done channel is ours, and the proxy is what
// package context finds when it looks for one of its own.
//
// Like the channel of a context of package context, the proxy is made when first
// asked for, which saves half the price of a timeout that nobody looks at.
//
// Rejected: no proxy (each derived context costs a goroutine, or needs an AfterFunc
// method, which a WithValue hides), and a proxy below the parent itself (it would
// end with the parent at once, and with Canceled at the deadline).
type deadlineCtx struct {
	wheel         *TimingWheel
	parent        context.Context
	parentDone    <-chan struct{} // what its Done returned, once
	deadline      time.Time
	deadlineCause error
	overdue       atomic.Bool // the wheel says that the deadline has come

	// Lock order: mu, the shard's lock. Mu is held while the context ends, so that who comes
	// second to end it waits until it has.
	mu         sync.Mutex
	err        atomic.Value    // of error; set once, with mu held
	cause      error           // with which it ended, if not err itself; guarded by mu
	stopParent func() bool     // ends the parent's notice; nil if it gives none; guarded by mu
	hasProxy   atomic.Bool     // set once, with mu held
	proxy      context.Context // valid once hasProxy is true
	endProxy   func()          // ends the proxy with err and cause; guarded by mu
	entry      entry           // joins a shard in start; guarded by mu
	relay      *relay          // has taken over since the wheel was stopped; guarded by the shard's lock
}

// start puts the deadline on the wheel, unless the parent has ended meanwhile.
func (c *deadlineCtx) start(after delay, stopParent func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err.Load() != nil {
		return
	}
	c.stopParent = stopParent
	c.entry.join(c.wheel)
	defer c.entry.unlock()
	if c.entry.closed() {
		c.moveToTime()
	} else {
		c.entry.add(after, c.due, own)
	}
}

// due is the wheel's own task, called with the shard's lock held: it leaves the rest to
// another goroutine, since ending a context may take long, and calls the parent; or
// it moves to package time if the wheel was stopped before.
func (c *deadlineCtx) due() {
	if c.entry.closed() {
		c.moveToTime()
		return
	}
	c.overdue.Store(true)
	c.entry.end(function(c.expire))
}

// moveToTime is called with the shard's lock held.
func (c *deadlineCtx) moveToTime() {
	if c.isCutShort() {
		c.overdue.Store(true) // so that it shows at once
	}
	c.relay = c.entry.relay(c.deadline, func() { go c.expire() })
}

func (c *deadlineCtx) leaveWheel() {
	c.entry.lock()
	defer c.entry.unlock()
	c.entry.cancel()
	c.relay.stop()
}

// expire ends the context at its deadline, and cancel is the CancelFunc and what the
// end of the parent calls. Whichever comes: if the parent has ended, that was first.
func (c *deadlineCtx) expire() {
	if c.isCutShort() {
		c.endUnlessParent(context.Canceled, ErrStopped)
	} else {
		c.endUnlessParent(context.DeadlineExceeded, c.deadlineCause)
	}
}
func (c *deadlineCtx) cancel() { c.endUnlessParent(context.Canceled, nil) }

// isCutShort reports whether the deadline will never come, since the wheel is stopped and its
// clock is manual. It is for those who know that the deadline has come, or that the wheel is
// stopped.
func (c *deadlineCtx) isCutShort() bool {
	return c.wheel.clock.isManual() && c.wheel.clock.read().Before(c.deadline)
}

func (c *deadlineCtx) endUnlessParent(err, cause error) {
	if c.parentIsDone() {
		err, cause = c.parent.Err(), context.Cause(c.parent)
	}
	c.end(err, cause)
}

// end ends the context, if it has not ended before. When it returns, it has.
func (c *deadlineCtx) end(err, cause error) {
	if stopParent := c.endOnce(err, cause); stopParent != nil {
		stopParent() // without a lock, since it calls methods of the parent
	}
}

func (c *deadlineCtx) endOnce(err, cause error) (stopParent func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err.Load() != nil {
		return nil
	}
	c.err.Store(err)
	c.cause = cause
	if c.entry.joined() {
		c.leaveWheel()
	}
	if c.endProxy != nil {
		c.endProxy()
	}
	return c.stopParent
}

// derived returns the proxy, and makes it if there is none yet.
func (c *deadlineCtx) derived() context.Context {
	if !c.hasProxy.Load() {
		c.makeProxy()
	}
	return c.proxy
}

func (c *deadlineCtx) makeProxy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasProxy.Load() {
		return
	}
	proxy, cancel := context.WithCancel((*origin)(c))
	_ = cancel // it would end the proxy with Canceled, whatever err is; endProxy ends it with err
	if c.err.Load() != nil {
		c.endProxy()
	}
	c.proxy = proxy
	c.hasProxy.Store(true)
}

// follow ends the context if it has to be ended, and who will do it is still on the
// way. It calls nothing of the parent before that is so.
func (c *deadlineCtx) follow() {
	switch {
	case c.err.Load() != nil:
	case c.overdue.Load():
		c.expire()
	case c.parentIsDone():
		c.cancel()
	}
}

func (c *deadlineCtx) parentIsDone() bool {
	select {
	case <-c.parentDone:
		return true
	default:
		return false
	}
}

func (c *deadlineCtx) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deadlineCtx) Done() <-chan struct{} {
	c.follow()
	return c.derived().Done()
}

func (c *deadlineCtx) Err() error {
	c.follow()
	err, _ := c.err.Load().(error)
	if err != nil && c.hasProxy.Load() {
		<-c.proxy.Done() // closed, or just about to be: it must be when Err says so
	}
	return err
}

// Value knows the key by which package context looks for its own from the wheel's
// context, which has no other value.
func (c *deadlineCtx) Value(key any) any {
	if c.wheel.ctx.Value(key) != nil {
		return c.derived().Value(key)
	}
	if _, ok := key.(clockKey); ok && c.wheel.clock.isManual() {
		return c.wheel
	}
	return c.parent.Value(key)
}

// String names the context as package context does.
func (c *deadlineCtx) String() string {
	name := reflect.TypeOf(c.parent).String()
	if s, ok := c.parent.(fmt.Stringer); ok {
		name = s.String()
	}
	return fmt.Sprintf("%s.WithDeadline(%s [%s])", name, c.deadline, c.deadline.Sub(c.wheel.clock.read()))
}

// origin is a deadlineCtx as the parent of its proxy. Package context calls
// AfterFunc to be told of its end, and when it is told, asks for Err and, by a
// Value, for the cause. All of that happens with mu held.
type origin deadlineCtx

// never is closed never. Package context looks whether it is, and then calls
// AfterFunc.
var never = make(chan struct{})

func (o *origin) Deadline() (time.Time, bool) { return o.deadline, true }
func (o *origin) Done() <-chan struct{}       { return never }

func (o *origin) Err() error {
	err, _ := o.err.Load().(error)
	return err
}

// Value is asked for one thing only: a context of package context that has the
// cause.
func (o *origin) Value(key any) any {
	if o.cause == nil {
		return nil
	}
	c, cancel := context.WithCancelCause(context.Background())
	cancel(o.cause)
	return c.Value(key)
}

func (o *origin) AfterFunc(f func()) (stop func() bool) {
	o.endProxy = f
	return func() bool { return false } // the proxy ends through endProxy only
}
