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
	return w.withDeadline(parent, now, now.Add(d), nil)
}

// WithTimeoutCause is [TimingWheel.WithTimeout] with a cause, which context.Cause
// returns once the timeout has expired. The CancelFunc does not set it.
func (w *TimingWheel) WithTimeoutCause(parent context.Context, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	now := w.engine().Clock().Read()
	return w.withDeadline(parent, now, now.Add(d), cause)
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
// When the parent ends, this context ends with it at once, as with package context: when
// the parent's CancelFunc has returned, Done is closed, and Err and context.Cause show
// it. So does a context of a wheel below this one, also behind a context.WithValue.
//
// A context that package context derives from this one may end a moment later, by a
// goroutine. There are two such cases: the parent of this one ends, or a wrapper is
// between the two, such as a context.WithValue, that does not pass its method
// AfterFunc(func()) func() bool on to this one. In all other cases it ends with this one,
// at the deadline and in the CancelFunc: it has ended when a CancelFunc returns, also one
// that was not the first. Functions that were given to context.AfterFunc run in
// goroutines of their own, as ever.
//
// A context that has ended with its parent stays on the wheel, 224 bytes and all that its
// parent refers to, until the CancelFunc is called, somebody asks for Err, or the
// deadline comes. So call the CancelFunc. (Package context releases it when the parent
// ends. A notice of that would double the cost of a context.) One from which package
// context has derived another leaves at once.
//
// A framework may use one parent for many requests, so that its methods return something
// else while this context lives. This context ends with the Done channel that the parent
// had in the beginning, and has the error and the cause of the context of package context
// that has this channel. If only the parent has it, this context asks the parent for both
// when a program wants to know them. Value and String always ask the parent.
//
// O(1), and two allocations. A cause adds one, and one at the deadline. Three more are
// made when Done is first called, or when package context first derives from the context,
// or at once below a parent of your own that has a method AfterFunc. The first derived
// one costs some more. A parent that is a context.WithValue adds 6 % to the steps of a
// context that is canceled. Each derived context behind a wrapper without that method
// costs a goroutine until it ends: give the deadline to the innermost context where you
// can. A nil parent panics.
func (w *TimingWheel) WithDeadline(parent context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return w.withDeadline(parent, w.engine().Clock().Read(), at, nil)
}

// WithDeadlineCause is [TimingWheel.WithDeadline] with a cause, which context.Cause
// returns once the deadline has passed. The CancelFunc does not set it.
func (w *TimingWheel) WithDeadlineCause(parent context.Context, at time.Time, cause error) (context.Context, context.CancelFunc) {
	return w.withDeadline(parent, w.engine().Clock().Read(), at, cause)
}

func (w *TimingWheel) withDeadline(parent context.Context, now, at time.Time, cause error) (context.Context, context.CancelFunc) {
	if parent == nil {
		panic("timingwheel: cannot create context from nil parent")
	}
	if earlier, ok := parent.Deadline(); ok && earlier.Before(at) && w.sharesClock(parent, earlier) {
		return withCancel(parent)
	}
	c := &deadlineCtx{parent: parent, deadline: at}
	c.cancelFunc = c.finish
	if cause != nil {
		c.outcome.Store(&outcome{cause: cause})
	}
	done := parent.Done()
	switch d := at.Sub(now); {
	case isClosed(done):
		c.startEnded(w.engine(), outcomeOf(parent))
	case d <= 0:
		c.startEnded(w.engine(), c.outcome.Load().atDeadline())
	default:
		if done != nil {
			c.follow(done)
		}
		e, since := w.engine().HereAt(w.engine().Clock().Since(now))
		c.start(e, engine.Delay{Now: since, D: d})
	}
	return c, c.cancelFunc
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// follow finds the source: the context whose end is that of the parent. A parent is asked
// here, and never again: it may belong to a framework that gives it to another request
// while this context lives, so that all its methods return something else then. The
// source is either of package context or of ours, whose answers do not change, or it is
// no more than the parent's channel.
//
// Package context registers with a parent that has a method AfterFunc, and ends the
// context only when the parent says so: Done of the parent may never be closed. So does
// the inner context, which is then made at once, and is the source.
func (c *deadlineCtx) follow(done <-chan struct{}) {
	if c.source = sourceOf(c.parent, done); c.source != nil {
		return
	}
	c.source = doneOnly(done)
	if _, ok := c.parent.(afterFuncer); ok { // nobody else knows of c yet, so mu is not needed
		inner, cancel := context.WithCancel(c.parent)
		c.done, c.inner, c.cancelInner = inner.Done(), inner, cancel
		c.state.Store(made)
		c.source = inner
	}
}

// sourceOf returns the context of package context, or of ours, that has the parent's
// channel. It returns nil if there is none.
func sourceOf(parent context.Context, done <-chan struct{}) context.Context {
	if reflect.TypeOf(parent) == cancelCtxType {
		return parent // which needs no search
	}
	if c, ok := parent.Value(packageKey).(context.Context); ok && c.Done() == done {
		return c
	}
	if c := ourOwn(parent, done); c != nil {
		return c
	}
	return nil
}

// afterFuncer is what package context looks for in a parent that is not its own.
type afterFuncer interface {
	AfterFunc(f func()) (stop func() bool)
}

// withCancel is context.WithCancel. If the parent is one of ours, so is the context,
// since one of package context would learn of the end of the parent's parent only a
// moment later.
func withCancel(parent context.Context) (context.Context, context.CancelFunc) {
	outer := ourOwn(parent, parent.Done())
	if outer == nil {
		return context.WithCancel(parent)
	}
	c := &deadlineCtx{parent: parent, source: outer, inherits: true}
	c.cancelFunc = c.finish
	return c, c.cancelFunc
}

// sharesClock reports whether the deadline of ctx is on the wheel's clock, so that the
// two can be compared: both in real time, or both on one manual clock. A deadline on
// another clock must not hide the wheel's. The nearest context of ours tells which clock
// it is, if it has that deadline. Otherwise the deadline is package context's, in real
// time.
func (w *TimingWheel) sharesClock(ctx context.Context, deadline time.Time) bool {
	var its any
	if c, ok := ctx.Value(ownKey{}).(*deadlineCtx); ok {
		if at, ok := c.Deadline(); ok && at.Equal(deadline) {
			its = c.virtual()
		}
	}
	return its == w.engine().Clock().Virtual()
}

// ownKey is the key of the value by which a context of ours is found.
type ownKey struct{}

// ourOwn returns the context of ours that has the channel: ctx, or the one that it wraps.
func ourOwn(ctx context.Context, done <-chan struct{}) *deadlineCtx {
	if c, ok := ctx.Value(ownKey{}).(*deadlineCtx); ok && c.is(made) && c.done == done {
		return c
	}
	return nil
}

// deadlineCtx is a context whose deadline is kept by a wheel.
//
// Package context calls nobody's code while it cancels. When the parent's CancelFunc
// returns, only those contexts have ended for certain that package context made itself,
// and put below the parent. So the Done channel is that of such a one, the inner context.
// It is a context.WithCancel of the parent, and it is made when Done is first called.
// Where nobody does so, a look at the parent is enough.
//
// Nothing that package context makes can be ended with DeadlineExceeded when we say so.
// So Err and the cause are ours: the outcome says how the context has ended, and the
// inner context only closes the channel. And what is derived must not find the inner
// context, or it would end with Canceled at the deadline. Package context finds one of
// its own by a key of Value: that is hidden. Then it asks the parent for a method
// AfterFunc, which we have.
//
// The price: what is derived learns of the parent's end from a goroutine, a moment later,
// and behind a wrapper that hides AfterFunc it has a goroutine of its own. Both would be
// saved by a context in between that ends with an error of our choice. But its channel
// would be another than the inner one's, and package context accepts it only if Done
// returns the same. So below a parent that can end, a context with one that is derived
// takes 1.24 times as many instructions as package context's, and 18 allocations for 15.
// The notice of the parent's end (see AfterFunc) takes 0.21, and two allocations. It
// cannot be part of the inner context, since package context does not give out the
// context that it makes for context.AfterFunc.
type deadlineCtx struct {
	parent     context.Context // asked only for values, its name and, if inherits, its deadline
	source     context.Context // ends when the parent does, see follow; nil: the parent never ends
	deadline   time.Time       // not valid if inherits
	cancelFunc func()          // finish

	// outcome says how the context has ended. It is final then, and changes no more.
	// Until then it is nil, or has the cause for the deadline. If the parent has ended,
	// somebody who looks makes it final.
	outcome atomic.Pointer[outcome]

	entry engine.Handle    // has no shard if inherits
	relay *engine.Fallback // has taken over since the wheel was stopped; guarded by the shard's lock

	// Valid once state says made, which is set with mu held, or by follow.
	done        <-chan struct{}
	inner       any    // what is behind done: the inner context, or, if the parent cannot end any more, a chan struct{}
	cancelInner func() // nil: inner is a channel

	heirs heirs // what ends with the context; guarded by mu

	// mu is never held while a method of the parent is called, or a function given to
	// AfterFunc. Lock order: no lock of package context is taken before mu but that of
	// what is being derived.
	mu       sync.Mutex
	state    atomic.Uint32
	inherits bool // the deadline is the parent's; the source is one of ours
}

// The bits of a context's state. They are never taken back.
const (
	made    = 1 << iota // done is valid
	closing             // somebody closes the channel that is no inner context's
	closed              // and has done so
	derives             // something was, or is just being derived
	overdue             // the deadline has come, and a goroutine that ends the context is on its way
	cut                 // a manual clock has ended before the deadline
)

func (c *deadlineCtx) is(bit uint32) bool { return c.state.Load()&bit != 0 }

// startEnded is start for a context that has ended: it only has the wheel's clock.
func (c *deadlineCtx) startEnded(e *engine.Engine, how *outcome) {
	c.outcome.Store(how)
	c.entry.Join(e)
	c.entry.UnlockShard()
}

// start puts the deadline on the wheel.
func (c *deadlineCtx) start(e *engine.Engine, after engine.Delay) {
	c.entry.Join(e)
	defer c.entry.UnlockShard()
	if c.entry.Closed() {
		c.moveToTime(c.deadline)
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
		c.moveToTime(c.entry.Clock().Time(c.entry.Deadline())) // the deadline was converted once, when it was set
		return
	}
	c.state.Or(overdue) // so that it shows at once
	c.entry.RunInternal(run.Function(c.cancelFunc))
}

// moveToTime is called with the shard's lock held.
func (c *deadlineCtx) moveToTime(at time.Time) {
	if clock := c.entry.Clock(); clock.IsManual() && clock.Read().Before(c.deadline) {
		c.state.Or(cut) // its time never comes
	}
	c.relay = c.entry.Fallback(at, func() {
		c.state.Or(overdue)
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

func (c *deadlineCtx) parentHasEnded() bool { return c.source != nil && c.source.Err() != nil }

// endOfParent returns the outcome of a context whose parent has ended.
func (c *deadlineCtx) endOfParent() *outcome {
	if _, ok := c.source.(doneOnly); ok {
		return outcomeOf(c.parent) // nobody else knows
	}
	return outcomeOf(c.source)
}

// finish ends the context, if it has not ended, and all that depends on it. When it
// returns, all of that has ended. It is the CancelFunc, and it is called at the deadline
// and when the parent has ended.
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
			end = c.endOfParent()
		case c.is(overdue) && c.is(cut):
			end = cutShort
		case c.is(overdue):
			end = o.atDeadline()
		}
		c.outcome.CompareAndSwap(o, end)
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
		c.finish() // without mu, since it may ask the parent
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.is(made) {
		return
	}
	if c.source == nil || c.outcome.Load().isFinal() {
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

// closeDone closes the channel, and may be called again. The second caller waits for the
// first.
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

// above returns the context below which the inner one is. If the source is one of ours,
// that is its inner one, so that the channel is closed at once, and without a notice.
func (c *deadlineCtx) above() context.Context {
	if outer, ok := c.source.(*deadlineCtx); ok {
		if inner, ok := outer.inner.(context.Context); ok {
			return inner
		}
	}
	return c.source
}

// virtual returns the manual clock of the deadline, or nil for real time.
func (c *deadlineCtx) virtual() any {
	if c.inherits {
		return c.source.(*deadlineCtx).virtual()
	}
	return c.entry.Clock().Virtual()
}

func (c *deadlineCtx) Deadline() (time.Time, bool) {
	if c.inherits {
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
	if !o.isFinal() {
		if !c.is(overdue) && !c.parentHasEnded() {
			return nil
		}
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
	if c.inherits {
		return name + ".WithCancel"
	}
	left := c.deadline.Sub(c.entry.Clock().Read())
	return fmt.Sprintf("%s.WithDeadline(%s [%s])", name, c.deadline, left)
}
