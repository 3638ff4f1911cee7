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
// longer need the context: that takes the timer off the wheel.
//
// The context is never done before its deadline. It may be as late as a function that is
// scheduled for the deadline. If the deadline has passed, the context is done when
// WithDeadline returns. Deadline, Err, Cause, Value and String are those of package
// context. A context that package context derives from this one takes its Err and Cause
// from it. (Its String does not name this one: it is context.stopCtx.WithCancel, as for
// any parent that has a method AfterFunc and is not package context's own. The String of
// a context.WithValue does.) When the wheel is stopped, pending deadlines move to package
// time, and so do later ones: none is lost. ([WithManualClock] says what happens to those
// of virtual time.)
//
// When the parent ends, this context ends with it at once, as with package context: when the
// parent's CancelFunc has returned, Done is closed, and Err and context.Cause show it. So does
// a context of a wheel below this one, also behind a context.WithValue.
//
// A context that package context derives from this one may end a moment later, by a
// goroutine. There are two such cases: the parent of this one ends, or a wrapper without
// a method AfterFunc(func()) func() bool, such as a context.WithValue, is between the
// two. In all other cases it ends with this one, at the deadline and in the CancelFunc.
//
// The timer of a context that has ended with its parent leaves the wheel when the
// CancelFunc is called, when somebody asks for Err, or else at the deadline.
//
// O(1), and two allocations. A cause adds one. Three more are made when Done is first
// called, or when package context first derives from the context, or at once below a
// parent of your own that has a method AfterFunc. The first derived one costs some more.
// Each derived context behind a wrapper without that method costs a goroutine until it
// ends: give the deadline to the innermost context where you can. A nil parent panics.
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
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) && w.sharesClock(parent, earlier) {
		return withCancel(parent)
	}
	c := &deadlineCtx{parent: parent, parentDone: parent.Done(), deadline: at, timedOut: timedOut}
	c.cancelFunc = c.finish
	switch d := at.Sub(now); {
	case c.parentHasEnded():
		c.outcome.Store(outcomeOf(parent))
	case d <= 0:
		c.outcome.Store(timedOut)
	default:
		c.registerAtOnce()
		e, since := w.engine().HereAt(w.engine().Clock().Since(now))
		c.start(e, engine.Delay{Now: since, D: d})
	}
	return c, c.cancelFunc
}

// registerAtOnce makes the inner context if the parent is a stranger with a method AfterFunc.
// Package context calls that method when it makes a context, so that the parent knows what it
// has to end, and it ends the context only when the parent says so: Done of the parent may
// never be closed.
func (c *deadlineCtx) registerAtOnce() {
	if c.parentDone == nil {
		return
	}
	if _, ok := c.parent.(afterFuncer); !ok {
		return
	}
	if _, ok := c.parent.(*deadlineCtx); !ok {
		c.parentDone = c.Done()
	}
}

// afterFuncer is what package context looks for in a parent that is not its own.
type afterFuncer interface {
	AfterFunc(f func()) (stop func() bool)
}

// withCancel is context.WithCancel. If the parent is one of ours, so is the context, since
// one of package context would learn of the end of the parent's parent only a moment later.
func withCancel(parent context.Context) (context.Context, context.CancelFunc) {
	done := parent.Done()
	if ourOwn(parent, done) == nil {
		return context.WithCancel(parent)
	}
	c := &deadlineCtx{parent: parent, parentDone: done}
	c.cancelFunc = c.finish
	return c, c.cancelFunc
}

// sharesClock reports whether the deadline of ctx is on the wheel's clock, so that the two
// can be compared: both in real time, or both on one manual clock. A deadline on another
// clock must not hide the wheel's. The nearest context of ours tells which clock it is, if it
// has that deadline. Otherwise the deadline is package context's, in real time.
func (w *TimingWheel) sharesClock(ctx context.Context, deadline time.Time) bool {
	var its any
	if c, ok := ctx.Value(ownKey{}).(*deadlineCtx); ok {
		if at, _ := c.Deadline(); at.Equal(deadline) {
			its = c.virtual()
		}
	}
	return its == w.engine().Clock().Virtual()
}

// ownKey is the key of the value by which a context of ours is found.
type ownKey struct{}

// ourOwn returns the context of ours that has the channel: ctx, or the one that it wraps.
func ourOwn(ctx context.Context, done <-chan struct{}) *deadlineCtx {
	if c, ok := ctx.Value(ownKey{}).(*deadlineCtx); ok && c.Done() == done {
		return c
	}
	return nil
}

// deadlineCtx is a context whose deadline is kept by a wheel.
//
// Package context calls nobody's code while it cancels. When the parent's CancelFunc
// returns, only those contexts have ended for certain that package context made itself, and
// put below the parent. So the Done channel is that of such a one, the inner context. It is
// a context.WithCancel of the parent, and it is made when Done is first called. Where
// nobody does so, a look at the parent is enough.
//
// Nothing that package context makes can be ended with DeadlineExceeded when we say so. So
// Err and the cause are ours: the outcome says how the context has ended, and the inner
// context only closes the channel. And what is derived must not find the inner context, or
// it would end with Canceled at the deadline. Package context finds one of its own by a key
// of Value: that is hidden. Then it asks the parent for a method AfterFunc, which we have.
//
// The price: what is derived learns of the parent's end from a goroutine, a moment later,
// and behind a wrapper that hides AfterFunc it has a goroutine of its own. Both would be
// saved by a context in between that ends with an error of our choice. But its channel
// would be another than the inner one's, and package context accepts it only if Done
// returns the same. So below a parent that can end, a context with one that is derived takes
// 1.24 times as many instructions as package context's, and 18 allocations for 15. The notice
// of the parent's end (see AfterFunc) takes 0.21, and two allocations. It cannot be part of the
// inner context, since package context does not give out the context that it makes for
// context.AfterFunc.
type deadlineCtx struct {
	parent     context.Context
	parentDone <-chan struct{} // what the parent's Done returned, once, or see registerAtOnce; nil: it never ends
	deadline   time.Time       // zero: that of the parent
	timedOut   *outcome        // the outcome when the deadline comes
	cancelFunc func()          // finish

	// outcome is how the context has ended, set once. Until then it is nil, or overdue when
	// the wheel says that the deadline has come. If the parent has ended, somebody who looks
	// sets it.
	outcome atomic.Pointer[outcome]

	entry engine.Handle    // has no shard if there is nothing to wait for
	relay *engine.Fallback // has taken over since the wheel was stopped; guarded by the shard's lock

	// Valid once state says made, which is set with mu held.
	done        <-chan struct{}
	inner       any    // what is behind done: the inner context, or, if the parent cannot end any more, a chan struct{}
	cancelInner func() // nil: inner is a channel

	heirs heirs // what ends with the context; guarded by mu

	mu    sync.Mutex // lock order: no lock of package context is taken before mu but that of what is being derived
	state atomic.Uint32
}

// The bits of a context's state. They are never taken back.
const (
	made    = 1 << iota // done is valid
	closing             // somebody closes the channel that is no inner context's
	closed              // and has done so
	derives             // something was, or is just being derived
)

func (c *deadlineCtx) is(bit uint32) bool { return c.state.Load()&bit != 0 }

// start puts the deadline on the wheel.
func (c *deadlineCtx) start(e *engine.Engine, after engine.Delay) {
	c.entry.Join(e)
	defer c.entry.UnlockShard()
	if c.entry.Closed() {
		c.moveToTime()
	} else {
		c.entry.AddDisguised(after, engine.Disguise(c), contextDue)
	}
}

// contextDue calls due. With the method value, as a function, each context would have an
// allocation more.
func contextDue(disguised func()) { engine.Undisguise[deadlineCtx](disguised).due() }

// due is the wheel's own task. To close the channel and to end what is derived may take
// long, and may call methods of the parent, so due leaves it to another goroutine. If the
// wheel was stopped first, it moves to package time. The caller holds the shard's lock.
func (c *deadlineCtx) due() {
	if c.entry.Dismissed() {
		c.moveToTime()
		return
	}
	c.outcome.CompareAndSwap(nil, overdue) // so that it shows at once
	c.entry.RunInternal(run.Function(c.cancelFunc))
}

// moveToTime is called with the shard's lock held.
func (c *deadlineCtx) moveToTime() {
	if clock := c.entry.Clock(); clock.IsManual() && clock.Read().Before(c.deadline) {
		c.timedOut = cutShort // its time never comes
	}
	c.relay = c.entry.Fallback(c.deadline, func() {
		c.outcome.CompareAndSwap(nil, overdue)
		go c.finish()
	})
}

func (c *deadlineCtx) leaveWheel() {
	if !c.entry.Joined() {
		return
	}
	c.entry.LockShard()
	defer c.entry.UnlockShard()
	c.entry.Cancel()
	c.relay.Stop()
}

// parentHasEnded asks the channel, and not Err: with a parent that is not of package
// context, only the channel says when it has ended.
func (c *deadlineCtx) parentHasEnded() bool {
	select {
	case <-c.parentDone:
		return true
	default:
		return false
	}
}

// finish ends the context, if it has not ended, and all that depends on it. When it
// returns, all of that has ended. It is the CancelFunc, and it is called at the deadline and
// when the parent has ended.
//
// With two of these at the same time the parent is the first: so if parent and child have
// one deadline, the child ends as the parent does.
func (c *deadlineCtx) finish() {
	if o := c.outcome.Load(); !o.isFinal() {
		if c.entry.Joined() {
			c.entry.Clock().CheckOutside()
		}
		end := canceled
		switch {
		case c.parentHasEnded():
			end = outcomeOf(c.parent)
		case o == overdue:
			end = c.timedOut
		}
		if !c.outcome.CompareAndSwap(o, end) {
			c.outcome.CompareAndSwap(overdue, end) // the deadline has come just now
		}
	}
	c.leaveWheel()
	state := c.state.Load()
	if state&made == 0 {
		return // whoever makes it finds the outcome
	}
	if state&derives != 0 {
		defer c.endDerived() // deferred, since a function of the parent's may end the goroutine
		c.callOff()
	}
	c.closeDone()
}

// makeDone makes the channel if there is none yet, and the inner context whose channel it
// is. Below a parent that never ends, and for a context that has ended, the channel alone
// will do.
func (c *deadlineCtx) makeDone() {
	if c.parentHasEnded() {
		c.finish() // without mu, since it asks the parent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(made) {
		return
	}
	if c.parentDone == nil || c.outcome.Load().isFinal() {
		own := make(chan struct{})
		c.done, c.inner = own, own
	} else {
		inner, cancel := context.WithCancel(c.above())
		c.done, c.inner, c.cancelInner = inner.Done(), inner, cancel
	}
	c.state.Or(made)
	if c.outcome.Load().isFinal() { // after the Or: whoever sets it looks at the state next
		c.closeDone()
	}
}

// closeDone closes the channel, and may be called again. The second caller waits for the first.
func (c *deadlineCtx) closeDone() {
	if c.cancelInner != nil {
		c.cancelInner()
		return
	}
	switch state := c.state.Or(closing); {
	case state&closing == 0:
		close(c.inner.(chan struct{}))
		c.state.Or(closed)
	case state&closed == 0: // otherwise it may be a channel of a bubble, and the caller outside
		<-c.done
	}
}

// above returns the context below which the inner one is. If the parent is one of ours, that
// is its inner one, so that the channel is closed at once, and without a notice. If it has
// none, it is that one of ours, since a wrapper hides the method AfterFunc.
func (c *deadlineCtx) above() context.Context {
	outer := ourOwn(c.parent, c.parentDone)
	if outer == nil {
		return c.parent
	}
	if inner, ok := outer.inner.(context.Context); ok {
		return inner
	}
	return outer
}

// virtual returns the manual clock of the deadline. It returns nil for real time, and for a
// context that had ended when it was made.
func (c *deadlineCtx) virtual() any {
	if c.deadline.IsZero() {
		return ourOwn(c.parent, c.parentDone).virtual()
	}
	if !c.entry.Joined() {
		return nil
	}
	return c.entry.Clock().Virtual()
}

func (c *deadlineCtx) Deadline() (time.Time, bool) {
	if c.deadline.IsZero() {
		return c.parent.Deadline()
	}
	return c.deadline, true
}

func (c *deadlineCtx) Done() <-chan struct{} {
	if !c.is(made) {
		c.makeDone()
	} else if c.outcome.Load().isFinal() {
		<-c.done // just about to be closed: it must be closed for who has heard of the outcome
	}
	return c.done
}

func (c *deadlineCtx) Err() error {
	o := c.outcome.Load()
	if o == nil && !c.parentHasEnded() {
		return nil
	}
	if !o.isFinal() {
		c.finish()
		o = c.outcome.Load()
	}
	if c.is(made) {
		<-c.done // closed, or just about to be: it must be closed when Err says so
	}
	return o.err
}

// Value hides the inner context. When package context looks for a context of its own,
// Value returns nil, or, for the cause, a context that has the cause.
func (c *deadlineCtx) Value(key any) any {
	if key == packageKey {
		return c.outcome.Load().causeHolder()
	}
	if key == (any)(ownKey{}) {
		return c
	}
	return c.parent.Value(key)
}

// String names the context as package context does.
func (c *deadlineCtx) String() string {
	name := reflect.TypeOf(c.parent).String()
	if s, ok := c.parent.(fmt.Stringer); ok {
		name = s.String()
	}
	if c.deadline.IsZero() {
		return name + ".WithCancel"
	}
	left := time.Until(c.deadline)
	if c.entry.Joined() { // or else it had ended when it was made
		left = c.deadline.Sub(c.entry.Clock().Read())
	}
	return fmt.Sprintf("%s.WithDeadline(%s [%s])", name, c.deadline, left)
}
