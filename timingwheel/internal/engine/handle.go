package engine

import (
	"container/list"
	"context"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Handle is the door to the shard: a shard, and the handle of an entry there. Everything
// that a user holds (Timer, Ticker, Job and so on) has one, and reaches the shard through
// it and through nothing else.
//
// The zero Handle belongs to no shard. Join gives it one, for good; the handle changes
// each time it is added again. The handle is guarded by the shard's lock.
type Handle struct {
	shard *shard // nil until join
	ref   ref
}

// Join gives the entry a shard of an engine, that of the processor that it runs on, and
// locks it.
func (e *Handle) Join(of *Engine) { e.shard = of.lock() }

// Sibling returns an entry on the same shard, which has not been added.
func (e *Handle) Sibling() Handle { return Handle{shard: e.shard} }

// Follow makes the entry name what another of its shard names. Unlike an assignment it
// does not write the shard, which is read without the lock.
func (e *Handle) Follow(other Handle) { e.ref = other.ref }

// Joined reports whether the entry has a shard.
func (e *Handle) Joined() bool { return e.shard != nil }

// LockShard and UnlockShard lock the shard.
func (e *Handle) LockShard()   { e.shard.lock() }
func (e *Handle) UnlockShard() { e.shard.mu.Unlock() } // mu: with unlock the compiler would not inline it

// RelockShard unlocks and locks the shard, and lets all go first that wait for it.
func (e *Handle) RelockShard() {
	e.shard.unlock()
	e.shard.lockLast()
}

// clock returns the wheel's clock. It needs no lock.
func (e *Handle) Clock() *clock { return e.shard.clock }

// After returns the delay d from now. It needs no lock: a caller reads the clock before
// it takes the lock.
func (e *Handle) After(d time.Duration) Delay { return Delay{e.shard.clock.Now(), d} }

// The caller of the methods that follow holds the shard's lock. A task of the wheel's own
// holds it too while it runs.

// Accept adds a one-shot that is new. It returns ErrStopped if the shard is closed, and
// ErrTooManyPending if the limit is reached.
func (e *Handle) Accept(after Delay, f func(), kind bucket.Tag) (err error) {
	e.ref, err = e.shard.accept(after, f, kind)
	return err
}

// Reserve takes the places of n one-shots that are new, for add. It returns
// ErrStopped if the shard is closed, and ErrTooManyPending if there are fewer.
func (e *Handle) Reserve(n int) error { return e.shard.refuse(int64(n)) }

// AcceptAgain adds a one-shot that was accepted before and is not pending now. The limit
// does not refuse it. If the shard is closed, it returns ErrStopped and changes nothing;
// then the entry may be pending: its reset was refused.
func (e *Handle) AcceptAgain(after Delay, f func(), kind bucket.Tag) error {
	if e.Closed() {
		return ErrStopped
	}
	e.shard.limit.force()
	e.Add(after, f, kind)
	return nil
}

// Add adds a task of the wheel's own that is no one-shot, so that the limit does not
// count it, or a one-shot whose place was reserved. The shard must not be closed.
func (e *Handle) Add(after Delay, f func(), kind bucket.Tag) {
	e.ref = e.shard.add(after, f, kind)
}

// Pending reports whether the entry is on the wheel.
func (e *Handle) Pending() bool { return e.shard.isPending(e.ref) }

// cancel takes the entry off the wheel, and reports whether it was pending.
func (e *Handle) Cancel() bool { return e.shard.cancel(e.ref) }

// Reset moves a pending entry to a new time. It reports false if the entry is not
// pending, or if the shard is closed and the new time is later than the old one, or if
// the shard is stopped. Then the entry may be pending still.
func (e *Handle) Reset(after Delay) bool { return e.shard.reset(e.ref, after) }

// ResetLazy is reset for the entry of a LazyTask, which knows its deadline from then on.
func (e *Handle) ResetLazy(after Delay, l *LazyTask) bool {
	return e.shard.resetLazy(e.ref, after, l)
}

// AcceptLazyAgain is AcceptAgain for a LazyTask.
func (e *Handle) AcceptLazyAgain(after Delay, l *LazyTask) error {
	err := e.AcceptAgain(after, l.F, OneShot)
	if err == nil {
		e.shard.makeLazy(e.ref.index, l)
	}
	return err
}

// Deadline returns the tick on which the entry is due. The entry must be pending, or be
// the one whose task is being called.
func (e *Handle) Deadline() int64 {
	i, _ := e.shard.arena.Find(e.ref.index, e.ref.generation)
	return e.shard.deadline(i)
}

// Due returns the time at which the entry is due, and false if it is not pending.
func (e *Handle) Due() (time.Time, bool) {
	if !e.Pending() {
		return time.Time{}, false
	}
	return e.Clock().Time(e.Deadline()), true
}

// Execute hands a task to the executor. Only a task of the wheel's own that is due may
// call it: the driver hands on what it finds after that.
func (e *Handle) Execute(t run.Task) { e.shard.execute(t) }

// RunInternal has a task run on a run queue of the wheel's own, where nothing of a user's can
// block it. Only a task of the wheel's own that is due may call it.
func (e *Handle) RunInternal(t run.Task) { e.shard.runInternal(t) }

// HandBack has the wheel's Stop return f. Only a task of the wheel's own may call it,
// when stopped says that the shard is being stopped.
func (e *Handle) HandBack(deadline int64, f func()) { e.shard.handBack(deadline, f) }

// Remember has the wheel's Stop call cancel, with ErrStopped, unless forget comes first.
// On a stopped shard it calls cancel itself: nobody else can know of the context yet, so
// that nothing of a user's is called.
func (e *Handle) Remember(cancel context.CancelCauseFunc) *list.Element {
	if e.shard.stopped {
		cancel(ErrStopped)
		return nil
	}
	if e.shard.contexts == nil {
		e.shard.contexts = list.New()
	}
	return e.shard.contexts.PushBack(cancel)
}

// Forget takes back what remember has done. After Stop it does nothing.
func (e *Handle) Forget(place *list.Element) {
	if place != nil && e.shard.contexts != nil {
		e.shard.contexts.Remove(place)
	}
}

// Fallback has package time call the task at the given time, with the shard's lock held.
func (e *Handle) Fallback(at time.Time, task func()) *Fallback {
	return startFallback(e.shard, at, task)
}

// closed reports whether the shard accepts no more: the wheel was stopped, or is in
// Shutdown.
func (e *Handle) Closed() bool { return e.shard.closed }

// Canceled reports whether a task is being called because its entry was canceled.
func (e *Handle) Canceled() bool { return e.shard.canceling }

// Dismissed reports whether a task is being called because its shard is closed: the entry
// will not fire.
func (e *Handle) Dismissed() bool { return e.shard.dismissing }

// stopped reports whether the shard was stopped. One that is stopped is also closed.
func (e *Handle) Stopped() bool { return e.shard.stopped }
