package timingwheel

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// WithTimeout returns WithDeadline(parent, w.Now().Add(d)).
//
//	ctx, cancel := w.WithTimeout(r.Context(), 5*time.Second)
//	defer cancel() // takes the timer off the wheel
func (w *TimingWheel) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	now := w.engine().Clock().Read()
	return w.withDeadline(parent, now, now.Add(d), exceeded)
}

// WithTimeoutCause is [TimingWheel.WithTimeout] with a cause, which context.Cause
// returns once the timeout has expired. The CancelFunc does not set it.
func (w *TimingWheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	now := w.engine().Clock().Read()
	return w.withDeadline(parent, now, now.Add(d), exceededBecause(cause))
}

// WithDeadline returns a context that is done at the deadline, or when the parent is
// done, or when the CancelFunc is called, whichever comes first. It is
// context.WithDeadline with the timer on the wheel. Call the CancelFunc as soon as you no
// longer need the context: that takes the timer off the wheel. The end of the parent
// takes it off too.
//
// The context is never done before its deadline. It may be as late as a function that is
// scheduled for the deadline. If the deadline has passed, the context is done when
// WithDeadline returns. Deadline, Err, Cause, Value and String are those of package
// context. A context that package context derives from this one takes its Err and Cause
// from it, and costs no goroutine. When the wheel is stopped, pending deadlines move to
// package time, and so do later ones: none is lost. ([WithManualClock] says what happens
// to those of virtual time.)
//
// One thing differs from package context, and only below a parent that can be canceled.
// Once the parent's Done is closed, Done, Err and context.Cause of this context show it
// at once. A channel that Done returned earlier closes a moment later, and so do the
// contexts that were derived from this one. A goroutine closes them, one for all children
// of a parent.
//
// O(1), and three allocations. A cause adds one. A parent that can be canceled adds two
// for the first of its children; the others share them. Five more are made when Done is
// first called, or when package context first derives from the context. A nil parent
// panics.
func (w *TimingWheel) WithDeadline(parent context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return w.withDeadline(parent, w.engine().Clock().Read(), at, exceeded)
}

// WithDeadlineCause is [TimingWheel.WithDeadline] with a cause, which context.Cause
// returns once the deadline has passed. The CancelFunc does not set it.
func (w *TimingWheel) WithDeadlineCause(parent context.Context, at time.Time, cause error) (context.Context, context.CancelFunc) {
	return w.withDeadline(parent, w.engine().Clock().Read(), at, exceededBecause(cause))
}

func (w *TimingWheel) withDeadline(parent context.Context, now, at time.Time, timedOut *outcome) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: cannot create context from nil parent")
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) && w.sharesClock(parent) {
		return context.WithCancel(parent)
	}
	var canceler context.Context
	done := parent.Done()
	if done != nil {
		canceler = cancelerOf(parent, done)
	}
	c := &deadlineCtx{parent: parent, canceler: canceler, deadline: at, timedOut: timedOut}
	cancel := c.cancel
	switch d := at.Sub(now); {
	case c.parentHasEnded():
		c.end(outcomeOf(parent)) // not the canceler's: package context asks the parent too
	case d <= 0:
		c.end(timedOut)
	default:
		if done != nil {
			c.member.end = cancel
			w.parents().join(&c.member, parent, canceler, done)
		}
		after := engine.Delay{Now: now.Sub(w.engine().Clock().Start), D: d}
		w.engine().Yield(after.Now)
		c.start(w, after)
	}
	return c, cancel
}

// clockKey is the key of the value by which a context tells the clock of its deadline.
type clockKey struct{}

// sharesClock reports whether the deadline of a context can be compared with one of the
// wheel's. On a wheel with a manual clock, only the deadlines of the wheel's own contexts
// can. That of another context must not hide the wheel's.
func (w *TimingWheel) sharesClock(ctx context.Context) bool {
	return !w.engine().Clock().IsManual() || ctx.Value(clockKey{}) == w.engine().Clock()
}

// deadlineCtx is a context whose deadline is kept by a wheel.
//
// It has to be two things at once. It ends with DeadlineExceeded when we say so. And
// package context takes it for one of its own, so that what it derives from this one is
// canceled without a goroutine, also with a WithValue in between. Nothing that package
// context makes can be ended with an error of our choice, except by a parent that ends
// with that error. Hence the proxy, which is a real context.WithCancel, and above it a
// parent of our own, the origin, which is this same struct with other methods. The
// proxy's Done channel is ours, and the proxy is what package context finds when it looks
// for one of its own.
//
// The proxy is made when it is first asked for, as the channel is in package context.
// That saves half the price of a timeout that nobody looks at.
//
// Why the proxy cannot follow the parent at once: package context calls nobody's code
// while it cancels. When the parent's CancelFunc returns, only those contexts have ended
// for certain that package context made itself, and put below the parent when it made
// them. It puts each context below one other, and once. A proxy that it put below the
// parent could not be below the origin: only a timer of package time would end it with
// DeadlineExceeded, and that timer is what the wheel replaces.
//
// Rejected as well: no proxy. Each derived context would cost a goroutine, or need an
// AfterFunc method, which a WithValue hides.
type deadlineCtx struct {
	parent   context.Context
	canceler context.Context // tells by its Err whether the parent has ended; nil: it never will
	deadline time.Time
	timedOut *outcome // the outcome when the deadline comes

	// outcome is nil while the context goes on, overdue when the wheel says that the
	// deadline has come, and else how the context has ended. The last is set once, with
	// mu held.
	outcome atomic.Pointer[outcome]

	// Mu is held while the context ends. So whoever comes second to end it waits until it
	// has ended. Lock order: mu, the lock of the shard.
	mu       sync.Mutex
	proxy    atomic.Value     // nil, or the proxy; set once, with mu held
	done     <-chan struct{}  // the proxy's; valid once proxy is not nil
	endProxy func()           // ends the proxy with the outcome; guarded by mu
	entry    engine.Handle    // joins a shard in start; guarded by mu
	relay    *engine.Fallback // has taken over since the wheel was stopped; guarded by the shard's lock
	member   member           // of the family of the parent, if the parent can be canceled
}

// start puts the deadline on the wheel, unless the parent has ended meanwhile.
func (c *deadlineCtx) start(w *TimingWheel, after engine.Delay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outcome.Load() != nil {
		return
	}
	c.entry.Join(w.engine())
	defer c.entry.UnlockShard()
	if c.entry.Closed() {
		c.moveToTime()
	} else {
		c.entry.Add(after, c.due, engine.Internal|engine.NoExecutor)
	}
}

// due is the wheel's own task. Ending a context may take long, and calls methods of the
// parent, so due leaves it to another goroutine. If the wheel was stopped first, it moves
// to package time. The caller holds the shard's lock.
func (c *deadlineCtx) due() {
	if c.entry.Dismissed() {
		c.moveToTime()
		return
	}
	c.outcome.CompareAndSwap(nil, overdue)
	c.entry.RunInternal(run.Function(c.expire))
}

// moveToTime is called with the shard's lock held.
func (c *deadlineCtx) moveToTime() {
	if c.isCutShort() {
		c.outcome.CompareAndSwap(nil, overdue) // so that it shows at once
	}
	c.relay = c.entry.Fallback(c.deadline, func() { go c.expire() })
}

func (c *deadlineCtx) leaveWheel() {
	c.entry.LockShard()
	defer c.entry.UnlockShard()
	c.entry.Cancel()
	c.relay.Stop()
}

// expire ends the context at its deadline, or because the deadline will never come.
// cancel is the CancelFunc. With both, if the parent has ended, the context ends as the
// parent did.
func (c *deadlineCtx) expire() {
	if c.isCutShort() {
		c.endUnlessParent(cutShort)
	} else {
		c.endUnlessParent(c.timedOut)
	}
}
func (c *deadlineCtx) cancel() { c.endUnlessParent(canceled) }

// isCutShort reports whether the deadline will never come, since the wheel is stopped and
// its clock is manual. Call it only if the deadline has come or the wheel is stopped. The
// context must have been on the wheel.
func (c *deadlineCtx) isCutShort() bool {
	clock := c.entry.Clock()
	return clock.IsManual() && clock.Read().Before(c.deadline)
}

func (c *deadlineCtx) endUnlessParent(o *outcome) {
	if !c.hasEnded() && c.parentHasEnded() {
		o = outcomeOf(c.canceler)
	}
	c.end(o)
}

// end ends the context, if it has not ended before. When it returns, the context has
// ended.
func (c *deadlineCtx) end(o *outcome) {
	if c.endOnce(o) {
		c.member.leave() // without mu, since it may call methods of the parent
	}
}

func (c *deadlineCtx) endOnce(o *outcome) (ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hasEnded() {
		return false
	}
	c.outcome.Store(o)
	if c.entry.Joined() {
		c.leaveWheel()
	}
	if c.endProxy != nil {
		c.endProxy()
	}
	return true
}

// hasEnded reports whether the context has its outcome. It may still be about to end.
func (c *deadlineCtx) hasEnded() bool {
	o := c.outcome.Load()
	return o != nil && o != overdue
}

// makeProxy makes the proxy if there is none yet.
func (c *deadlineCtx) makeProxy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxy.Load() != nil {
		return
	}
	proxy, cancel := context.WithCancel((*origin)(c))
	_ = cancel // it would end the proxy with Canceled, whatever the outcome is
	if c.hasEnded() {
		c.endProxy()
	}
	c.done = proxy.Done()
	c.proxy.Store(proxy)
}

// parentHasEnded asks the canceler for its Err. That is one call and two loads if the
// canceler is one of package context. A select on the parent's channel takes twice as
// long.
func (c *deadlineCtx) parentHasEnded() bool { return c.canceler != nil && c.canceler.Err() != nil }

// follow ends the context if the goroutine that is to end it has not come to it yet. Call
// it if the deadline has come or the parent has ended. When it returns, the context has
// its outcome.
func (c *deadlineCtx) follow() {
	switch c.outcome.Load() {
	case nil:
		c.cancel()
	case overdue:
		c.expire()
	}
}

func (c *deadlineCtx) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *deadlineCtx) Done() <-chan struct{} {
	if c.outcome.Load() != nil || c.parentHasEnded() {
		c.follow()
	}
	if c.proxy.Load() == nil {
		c.makeProxy()
	}
	return c.done
}

func (c *deadlineCtx) Err() error {
	if c.outcome.Load() == nil && !c.parentHasEnded() {
		return nil
	}
	c.follow()
	if c.proxy.Load() != nil {
		<-c.done // closed, or just about to be: it must be closed when Err says so
	}
	return c.outcome.Load().err
}

// When package context looks for a context of its own, Value answers with the proxy.
func (c *deadlineCtx) Value(key any) any {
	if key != packageKey {
		if _, ok := key.(clockKey); ok && c.entry.Joined() {
			return c.entry.Clock()
		}
		return c.parent.Value(key)
	}
	c.Done() // makes the proxy
	return c.proxy.Load()
}

// String names the context as package context does.
func (c *deadlineCtx) String() string {
	name := reflect.TypeOf(c.parent).String()
	if s, ok := c.parent.(fmt.Stringer); ok {
		name = s.String()
	}
	left := time.Until(c.deadline)
	if c.entry.Joined() { // or else it had ended when it was made
		left = c.deadline.Sub(c.entry.Clock().Read())
	}
	return fmt.Sprintf("%s.WithDeadline(%s [%s])", name, c.deadline, left)
}

// origin is a deadlineCtx as the parent of its proxy. Package context calls AfterFunc, to
// be told when it ends. When it is told, it asks for Err, and with Value for the cause.
// All of that happens with mu held.
type origin deadlineCtx

// never is never closed. Package context looks whether it is closed, and then calls
// AfterFunc.
var never = make(chan struct{})

func (o *origin) Deadline() (time.Time, bool) { return o.deadline, true }
func (o *origin) Done() <-chan struct{}       { return never }
func (o *origin) Err() error                  { return o.outcome.Load().err }

// Value is asked for one thing only: a context of package context that has the cause.
func (o *origin) Value(key any) any {
	end := o.outcome.Load()
	if end == nil || end.cause == nil {
		return nil
	}
	c, cancel := context.WithCancelCause(context.Background())
	cancel(end.cause)
	return c.Value(key)
}

func (o *origin) AfterFunc(f func()) (stop func() bool) {
	o.endProxy = f
	return func() bool { return false } // the proxy ends through endProxy only
}
