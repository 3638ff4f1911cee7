package timingwheel

import (
	"container/list"
	"context"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// entry is the door to the shard: a shard, and the handle of an entry there. Everything
// that a user holds (Timer, Ticker, Job and so on) has one, and reaches the shard through
// it and through nothing else. A test keeps it so (rooms_test.go).
//
// The zero entry belongs to no shard. join gives it one, for good; the handle changes
// each time it is added again. The handle is guarded by the shard's lock.
type entry struct {
	shard *shard // nil until join
	ref   handle
}

// join gives the entry a shard of an engine, that of the processor that it runs on, and locks it.
func (e *entry) join(of *engine) { e.shard = of.lock() }

// JoinTo is join for a certain shard. It is for tests.
func (e *entry) JoinTo(s *shard) {
	e.shard = s
	s.lock()
}

// sibling returns an entry on the same shard, which has not been added.
func (e *entry) sibling() entry { return entry{shard: e.shard} }

// follow makes the entry name what another of its shard names. Unlike an assignment it
// does not write the shard, which is read without the lock.
func (e *entry) follow(other entry) { e.ref = other.ref }

// Place returns where the entry is in its arena, and 0 if it was never added. It is for
// tests.
func (e *entry) Place() bucket.Index { return e.ref.index }

// Shard returns the entry's shard. It is for tests.
func (e *entry) Shard() *shard { return e.shard }

// joined reports whether the entry has a shard.
func (e *entry) joined() bool { return e.shard != nil }

// lock and unlock lock the shard.
func (e *entry) lock()   { e.shard.lock() }
func (e *entry) unlock() { e.shard.mu.Unlock() } // mu: with unlock the compiler would not inline it

// relock unlocks and locks the shard, and lets all go first that wait for it.
func (e *entry) relock() {
	e.shard.unlock()
	e.shard.lockLast()
}

// clock returns the wheel's clock. It needs no lock.
func (e *entry) clock() *clock { return e.shard.clock }

// after returns the delay d from now. It needs no lock: a caller reads the clock before
// it takes the lock.
func (e *entry) after(d time.Duration) delay { return delay{e.shard.clock.now(), d} }

// The caller of the methods that follow holds the shard's lock. A task of the wheel's own
// holds it too while it runs.

// accept adds a one-shot that is new. It returns errStopped if the shard is closed, and
// errTooManyPending if the limit is reached.
func (e *entry) accept(after delay, f func(), kind bucket.Tag) (err error) {
	e.ref, err = e.shard.accept(after, f, kind)
	return err
}

// reserve takes the places of n one-shots that are new, for add. It returns
// errStopped if the shard is closed, and errTooManyPending if there are fewer.
func (e *entry) reserve(n int) error { return e.shard.refuse(int64(n)) }

// acceptAgain adds a one-shot that was accepted before and is not pending now. The limit
// does not refuse it. If the shard is closed, it returns errStopped and changes nothing;
// then the entry may be pending: its reset was refused.
func (e *entry) acceptAgain(after delay, f func(), kind bucket.Tag) error {
	if e.closed() {
		return errStopped
	}
	e.shard.limit.force()
	e.add(after, f, kind)
	return nil
}

// add adds a task of the wheel's own that is no one-shot, so that the limit does not
// count it, or a one-shot whose place was reserved. The shard must not be closed.
func (e *entry) add(after delay, f func(), kind bucket.Tag) {
	e.ref = e.shard.add(after, f, kind)
}

// pending reports whether the entry is on the wheel.
func (e *entry) pending() bool { return e.shard.isPending(e.ref) }

// cancel takes the entry off the wheel, and reports whether it was pending.
func (e *entry) cancel() bool { return e.shard.cancel(e.ref) }

// reset moves a pending entry to a new time. It reports false if the entry is not
// pending, or if the shard is closed and the new time is later than the old one, or if
// the shard is stopped. Then the entry may be pending still.
func (e *entry) reset(after delay) bool { return e.shard.reset(e.ref, after) }

// resetLazy is reset for the entry of a lazyTask, which knows its deadline from then on.
func (e *entry) resetLazy(after delay, l *lazyTask) bool {
	return e.shard.resetLazy(e.ref, after, l)
}

// acceptLazyAgain is acceptAgain for a lazyTask.
func (e *entry) acceptLazyAgain(after delay, l *lazyTask) error {
	err := e.acceptAgain(after, l.f, oneShot)
	if err == nil {
		e.shard.makeLazy(e.ref.index, l)
	}
	return err
}

// deadline returns the tick on which the entry is due. The entry must be pending, or be
// the one whose task is being called.
func (e *entry) deadline() int64 {
	i, _ := e.shard.arena.Find(e.ref.index, e.ref.generation)
	return e.shard.deadline(i)
}

// due returns the time at which the entry is due, and false if it is not pending.
func (e *entry) due() (time.Time, bool) {
	if !e.pending() {
		return time.Time{}, false
	}
	return e.clock().time(e.deadline()), true
}

// execute hands a task to the executor. Only a task of the wheel's own that is due may
// call it: the driver hands on what it finds after that.
func (e *entry) execute(t task) { e.shard.expired(t) }

// end has a task run on a run queue of the wheel's own, where nothing of a user's can
// block it. Only a task of the wheel's own that is due may call it.
func (e *entry) end(t task) { e.shard.end(t) }

// handBack has the wheel's Stop return f. Only a task of the wheel's own may call it,
// when stopped says that the shard is being stopped.
func (e *entry) handBack(deadline int64, f func()) { e.shard.handBack(deadline, f) }

// remember has the wheel's Stop call cancel, with errStopped, unless forget comes first.
// On a stopped shard it calls cancel itself: nobody else can know of the context yet, so
// that nothing of a user's is called.
func (e *entry) remember(cancel context.CancelCauseFunc) *list.Element {
	if e.shard.stopped {
		cancel(errStopped)
		return nil
	}
	if e.shard.contexts == nil {
		e.shard.contexts = list.New()
	}
	return e.shard.contexts.PushBack(cancel)
}

// forget takes back what remember has done. After Stop it does nothing.
func (e *entry) forget(place *list.Element) {
	if place != nil && e.shard.contexts != nil {
		e.shard.contexts.Remove(place)
	}
}

// relay has package time call the task at the given time, with the shard's lock held.
func (e *entry) relay(at time.Time, task func()) *relay { return startRelay(e.shard, at, task) }

// closed reports whether the shard accepts no more: the wheel was stopped, or is in
// Shutdown.
func (e *entry) closed() bool { return e.shard.closed }

// canceled reports whether a task is being called because its entry was canceled.
func (e *entry) canceled() bool { return e.shard.canceling }

// dismissed reports whether a task is being called because its shard is closed: the entry
// will not fire.
func (e *entry) dismissed() bool { return e.shard.dismissing }

// stopped reports whether the shard was stopped. One that is stopped is also closed.
func (e *entry) stopped() bool { return e.shard.stopped }
