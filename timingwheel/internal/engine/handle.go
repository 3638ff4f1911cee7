package engine

import (
	"container/list"
	"context"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/internal/parking"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Handle is the only way to a shard: a shard, and the ref of an entry there. Everything
// that a user holds (Timer, Ticker, Job and so on) reaches the shard through one.
//
// The zero Handle belongs to no shard. Join gives it one, for good. The ref changes each
// time the handle is added again. The shard's lock guards it.
type Handle struct {
	shard *shard // nil until Join
	ref   ref
}

// Join gives the handle a shard of an engine, that of the processor that it runs on, and
// locks it.
func (h *Handle) Join(of *Engine) { h.shard = of.lock() }

// Sibling returns a handle of the same shard, which has not been added.
func (h *Handle) Sibling() Handle { return Handle{shard: h.shard} }

// Follow makes the handle name what another of its shard names. Unlike an assignment it
// does not write the shard, which is read without the lock.
func (h *Handle) Follow(other Handle) { h.ref = other.ref }

// Joined reports whether the handle has a shard.
func (h *Handle) Joined() bool { return h.shard != nil }

// LockShard and UnlockShard lock the shard.
func (h *Handle) LockShard()   { h.shard.lock() }
func (h *Handle) UnlockShard() { h.shard.mu.Unlock() } // mu: with unlock the compiler would not inline it

// RelockShard unlocks and locks the shard, and lets all go first that wait for it.
func (h *Handle) RelockShard() {
	h.shard.unlock()
	h.shard.lockLast()
}

// Clock returns the wheel's clock. It needs no lock.
func (h *Handle) Clock() *clock { return h.shard.clock }

// After returns the delay d from now. It panics if the caller is not where the clock belongs.
// If the driver is late, After may let it run first: so the caller must hold no lock.
func (h *Handle) After(d time.Duration) Delay { return h.shard.hub.after(d) }

// The caller of the methods that follow holds the shard's lock. A task of the wheel's own
// holds it too while it runs.

// Accept adds a one-shot that is new. It returns ErrStopped if the shard is closed, and
// ErrTooManyPending if the limit is reached.
func (h *Handle) Accept(after Delay, f func(), kind bucket.Tag) (err error) {
	h.ref, err = h.shard.accept(after, f, kind)
	return err
}

// Reserve takes the places of n one-shots that are new, for Add. It returns
// ErrStopped if the shard is closed, and ErrTooManyPending if there are fewer.
func (h *Handle) Reserve(n int) error { return h.shard.refuse(int64(n)) }

// AcceptAgain adds a one-shot that was accepted before and is not pending now. The limit
// does not refuse it. If the shard is closed, it returns ErrStopped and changes nothing;
// then the entry may be pending: its reset was refused.
func (h *Handle) AcceptAgain(after Delay, f func(), kind bucket.Tag) error {
	if h.Closed() {
		return ErrStopped
	}
	h.shard.limit.force()
	h.Add(after, f, kind)
	return nil
}

// Add adds a task of the wheel's own that is no one-shot, so that the limit does not
// count it, or a one-shot whose place was reserved. The shard must not be closed.
func (h *Handle) Add(after Delay, f func(), kind bucket.Tag) {
	h.ref = h.shard.add(after, f, kind)
}

// Recurring is the Handle of a task that comes again and again. The profile has it under the
// stack of its first Add: the others are the wheel's own.
type Recurring struct {
	Handle
	recurrence *recurrence // in the profile; nil: the first entry was not sampled
}

// Add adds the task, for the first time or again.
func (h *Recurring) Add(after Delay, f func(), kind bucket.Tag) {
	s := h.shard
	if h.ref.generation == 0 {
		h.Handle.Add(after, f, kind)
		if p := s.hub.profile; p != nil {
			h.recurrence = p.recurrence(s, h.ref)
		}
		return
	}
	s.nextSample++ // this add does not count
	h.Handle.Add(after, f, kind)
	if of := h.recurrence; of != nil {
		s.hub.profile.again(s, of, h.ref, after.Now)
	}
}

// AddDisguised is Add for a task of the wheel's own that is a pointer in disguise: so no
// closure is made for it. When it is due, due is called with it, which is the same function
// for all of them. An engine that is told of it so late does not link what due needs into
// programs without such tasks.
func (h *Handle) AddDisguised(after Delay, disguised func(), due func(disguised func())) {
	h.shard.due = due
	h.Add(after, disguised, Internal|NoExecutor|Disguised)
}

// Pending reports whether the entry is on the wheel.
func (h *Handle) Pending() bool { return h.shard.isPending(h.ref) }

// Cancel takes the entry off the wheel, and reports whether it was pending.
func (h *Handle) Cancel() bool { return h.shard.cancel(h.ref) }

// Reset moves a pending entry to a new time, see shard.move. If it reports false, the entry
// may be pending still.
func (h *Handle) Reset(after Delay) bool {
	i, ok := h.shard.arena.Find(h.ref.index, h.ref.generation)
	return ok && h.shard.move(i, after)
}

// ResetLazy is reset for the entry of a LazyTask, which knows its deadline from then on.
func (h *Handle) ResetLazy(after Delay, l *LazyTask) bool {
	return h.shard.resetLazy(h.ref, after, l)
}

// AcceptLazyAgain is AcceptAgain for a LazyTask.
func (h *Handle) AcceptLazyAgain(after Delay, l *LazyTask) error {
	err := h.AcceptAgain(after, l.F, OneShot)
	if err == nil {
		h.shard.makeLazy(h.ref.index, l)
	}
	return err
}

// Deadline returns the tick on which the entry is due. The entry must be pending, or be
// the one whose task is being called.
func (h *Handle) Deadline() int64 {
	i, _ := h.shard.arena.Find(h.ref.index, h.ref.generation)
	return h.shard.deadline(i)
}

// Due returns the time at which the entry is due, and false if it is not pending.
func (h *Handle) Due() (time.Time, bool) {
	if !h.Pending() {
		return time.Time{}, false
	}
	return h.Clock().Time(h.Deadline()), true
}

// Execute hands a task to the executor. Only a task of the wheel's own that is due may
// call it: the driver hands on what it finds after that.
func (h *Handle) Execute(t run.Task) { h.shard.execute(t) }

// RunInternal has a task run on a run queue of the wheel's own, where nothing of a user's can
// block it. Only a task of the wheel's own that is due may call it.
func (h *Handle) RunInternal(t run.Task) { h.shard.runInternal(t) }

// HandBack has the wheel's Stop return f. Only a task of the wheel's own may call it,
// when stopped says that the shard is being stopped.
func (h *Handle) HandBack(deadline int64, f func()) { h.shard.handBack(deadline, f) }

// Remember has the wheel's Stop call cancel, with ErrStopped, unless Forget comes first.
// On a stopped shard it calls cancel itself: nobody else can know of the context yet, so
// that nothing of a user's is called.
func (h *Handle) Remember(cancel context.CancelCauseFunc) *list.Element {
	if h.shard.stopped {
		cancel(ErrStopped)
		return nil
	}
	if h.shard.contexts == nil {
		h.shard.contexts = list.New()
	}
	return h.shard.contexts.PushBack(cancel)
}

// Forget takes back what remember has done. After Stop it does nothing.
func (h *Handle) Forget(elem *list.Element) {
	if elem != nil && h.shard.contexts != nil {
		h.shard.contexts.Remove(elem)
	}
}

// Fallback has package time call the task at the given time, with the shard's lock held.
func (h *Handle) Fallback(at time.Time, task func()) *Fallback {
	return startFallback(h.shard, at, task)
}

// Closed reports whether the shard accepts no more: the wheel was stopped, or is in
// Shutdown.
func (h *Handle) Closed() bool { return h.shard.closed }

// Canceled reports whether a task is being called because its entry was canceled.
func (h *Handle) Canceled() bool { return h.shard.canceling }

// Dismissed reports whether a task is being called because its shard is closed, and will not
// fire. (Before the pass of ending.go has come to it, it may still fire.)
func (h *Handle) Dismissed() bool { return h.shard.dismissing }

// Stopped reports whether the shard was stopped. One that is stopped is also closed.
func (h *Handle) Stopped() bool { return h.shard.stopped }

// Park holds an operation of package purgatory until its deadline. It returns
// what takes op off the wheel, or ErrStopped, or ErrTooManyPending. O(1), and one
// allocation.
//
// A parked operation is pending like a function: it counts toward the limit, and drain
// waits until it has ended. Unlike a function it is not handed back by stop, which would
// leave those hanging who wait for it: stop ends it. At the deadline its outcome is set by
// the driver, and the rest is done where contexts are ended, whatever the executor is busy
// with; but the user's function goes to the executor.
func (e *Engine) Park(after Delay, op parking.Op) (Handle, error) {
	var h Handle
	h.Join(e)
	defer h.UnlockShard()
	s := h.shard
	if err := h.Accept(after, func() { s.unpark(op) }, Internal|OneShot|NoExecutor); err != nil {
		return Handle{}, err
	}
	return h, nil
}

// unpark is the wheel's own task. The caller holds s.mu.
func (s *shard) unpark(op parking.Op) {
	if s.stopped {
		s.endParked(op)
		return
	}
	leave, done := op.Expire(parking.Held{})
	if leave != nil {
		s.runInternal(run.Function(leave))
	}
	switch {
	case done == nil:
	case s.hub.gate == nil:
		s.execute(run.Function(done))
	default:
		s.finishParked(done)
	}
}

// finishParked hands done to an executor that has a gate. The operation has expired,
// whatever the executor is busy with; done has to pass the gate like any function. So it
// becomes an entry of its own, due now. Unlike a function it is not handed back by Stop:
// it runs then. The caller holds s.mu.
func (s *shard) finishParked(done func()) {
	due := func() {
		switch {
		case s.stopped: // a goroutine, since the executor may run it here, with s.mu held
			s.hub.runner.Admit(1)
			go s.hub.runner.Run(run.Function(done))
		default:
			s.execute(run.Function(done))
		}
	}
	s.limit.force()
	s.add(Delay{s.clock.Now(), 0}, due, Internal|OneShot)
}

// endParked ends an operation while the shard is being stopped. The rest does
// not go through the driver any more. It is a task of the wheel all the same: the panic
// handler covers it, and Shutdown waits for it. The caller holds s.mu.
func (s *shard) endParked(op parking.Op) {
	if rest, by := op.Stop(parking.Held{}); rest != nil {
		s.hub.runner.Admit(1)
		by.Execute([]func(){s.hub.runner.Wrap(run.Function(rest))})
	}
}
