package timingwheel

import (
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/internal/shrinking"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Keyed holds at most one pending function for each key, for example the expiry of a
// session under the session's name. Make one with [NewKeyed].
//
// If you have a struct for each key anyway, such as the session, put a [Timeout] into it:
// that is two to three times leaner. With 300,000 sessions under strings a Keyed takes
// 180 bytes for each besides the function, a Timeout in the struct 56 to 80, and one
// garbage collection takes longer with a Keyed (the benchmark Sessions prints both). Use
// a Keyed if the keys have no struct, or if a function must be replaced while it is about
// to run.
//
// Schedule, Cancel and Reset of a key work until its function starts, also while the
// function waits in the executor's queue: they replace it, drop it or delay it. When the
// function starts, the key disappears. The function may schedule the key again.
//
// A function that was replaced, dropped or delayed there is let go, but its place in the queue
// stays taken until the executor comes to it. So a key that is due again and again while all
// workers are busy can fill the queue of a pool.Pool. Under pool.Wait the next function
// then waits on the wheel, where it is replaced in place.
//
// Long and short delays are on the same wheel. Replacing one by the other is one step
// under one lock, so a key is never without its entry in between. A design that hands
// tasks from a wheel with a coarse tick to one with a fine tick has such a gap.
//
// A function that has started no longer belongs to its key. It may run at the same time
// as the key's next function. A cache must allow for that: an expiry that has started,
// and waits for the cache's lock, would delete a value that was set anew meanwhile. So
// let the function check under the cache's lock that the value is still the one for which
// it was scheduled, as the example does. (A cache without this check has lost 128 of
// 25,600 values in a test.)
//
// The keys are spread over 64 stripes, each with a lock of its own, so goroutines with
// different keys seldom wait for each other. The memory that a Keyed takes follows the
// number of its keys, up and down. All methods are safe for concurrent use. They are
// O(1).
type Keyed[K comparable] struct {
	engine  *engine.Engine
	seed    maphash.Seed
	stripes [keyedStripes]stripe[K]
}

const keyedStripes = 64

type stripe[K comparable] struct {
	mu    sync.Mutex // lock order: stripe, shard
	tasks shrinking.Map[K, *keyedTask[K]]

	// handedBack counts the tasks that the wheel's Stop has handed back and that are
	// still in the map. Stop adds to it without mu, for which it must not wait.
	handedBack atomic.Int64
	_          [32]byte // one stripe to a cache line
}

// dropHandedBack is called before each look at a key. If the key's task was handed back,
// it takes it out of the map. The tasks of other keys that were handed back stay in the
// map, so that the cost is O(1). With a pass over the stripe here, the work on n keys that
// wait in the executor's queue would be quadratic.
func (s *stripe[K]) dropHandedBack(key K) {
	if s.handedBack.Load() == 0 || s.forget() {
		return
	}
	if t, ok := s.tasks.Get(key); ok {
		if _, handedBack := t.where(); handedBack {
			s.Remove(key, true)
		}
	}
}

// forget forgets all tasks of the stripe together, once all of them were handed back, and
// reports whether it did.
func (s *stripe[K]) forget() bool {
	if n := s.handedBack.Load(); n == 0 || n != int64(s.tasks.Len()) {
		return false
	}
	s.tasks.Clear() // Stop can hand back no other
	s.handedBack.Store(0)
	return true
}

// handBack counts a task that Stop hands back. The caller holds the shard's lock, so it only
// tries to lock mu. If somebody else has mu, the next call that locks it forgets the tasks.
func (s *stripe[K]) handBack() {
	s.handedBack.Add(1)
	if s.mu.TryLock() {
		s.forget()
		s.mu.Unlock()
	}
}

// Remove takes a task out of the map. It must be its key's.
func (s *stripe[K]) Remove(key K, handedBack bool) {
	s.tasks.Delete(key)
	if handedBack {
		s.handedBack.Add(-1)
	}
	s.forget()
}

// keyedTask is what a key is scheduled for. It belongs to its key as long as the stripe
// has it under that key. That decides whether its function runs.
type keyedTask[K comparable] struct {
	keyed    *Keyed[K]
	key      K
	f        func() // nil once Stop has handed it back; guarded by the shard's lock while the wheel has the task, then by the stripe's
	entry    engine.Handle
	deadline int64 // guarded by the shard's lock
}

// NewKeyed returns a Keyed on the wheel. A wheel may have any number of them. A Keyed
// takes 4 KB, and needs no closing. NewKeyed panics on a nil wheel.
func NewKeyed[K comparable](w *TimingWheel) *Keyed[K] {
	if w == nil {
		panic("timingwheel: NewKeyed(nil)")
	}
	e, _ := w.here()
	return &Keyed[K]{engine: e, seed: maphash.MakeSeed()}
}

// stripe returns the stripe of a key.
func (k *Keyed[K]) stripe(key K) *stripe[K] {
	return &k.stripes[maphash.Comparable(k.seed, key)%keyedStripes]
}

// lock returns the key's stripe, locked. The keys that Stop has handed back are no longer there.
func (k *Keyed[K]) lock(key K) *stripe[K] {
	s := k.stripe(key)
	s.mu.Lock()
	s.dropHandedBack(key)
	return s
}

// Schedule arranges for f to run d from now, as [TimingWheel.Schedule] does, and replaces
// the key's previous function. It returns true if it has replaced one: then that function
// will not run.
//
// Schedule panics on a nil function. It also panics on a key that does not equal itself,
// such as a NaN, and on one that cannot be compared, such as a slice in an interface. It
// returns [ErrStopped] on a stopped wheel and during [TimingWheel.Shutdown], whether or
// not the key is pending. It returns [ErrTooManyPending] if the key is not pending and
// [WithMaxPending] permits no more. With an error it changes nothing.
func (k *Keyed[K]) Schedule(key K, d time.Duration, f func()) (replaced bool, err error) {
	if f == nil {
		panic("timingwheel: Keyed.Schedule: nil function")
	}
	if same := key; key != same {
		panic("timingwheel: Keyed.Schedule: the key does not equal itself")
	}
	after := k.engine.After(d)
	s := k.lock(key)
	defer s.mu.Unlock()
	old, ok := s.tasks.Get(key)
	if ok && old.change(after, f) {
		return true, nil
	}
	t := &keyedTask[K]{keyed: k, key: key, f: f}
	return s.put(t, old, after, (*engine.Handle).Accept)
}

// adder is Handle.Accept or Handle.AcceptAgain.
type adder = func(e *engine.Handle, after engine.Delay, f func(), kind engine.Tag) error

// put puts a task on the wheel and makes it its key's, instead of old, if that is not
// nil.
func (s *stripe[K]) put(t, old *keyedTask[K], after engine.Delay, add adder) (replaced bool, err error) {
	if err := t.start(after, add); err != nil {
		return false, err
	}
	if old != nil {
		if replaced = old.cancel(); !replaced {
			s.handedBack.Add(-1)
		}
	}
	s.tasks.Set(t.key, t)
	return replaced, nil
}

// Cancel drops the key's function. It returns true if it has done so: then the function
// will not run. It returns false if the key has no function, for example because the
// function has started. It also returns false if the wheel's Stop has handed the function
// back.
func (k *Keyed[K]) Cancel(key K) bool {
	s := k.lock(key)
	defer s.mu.Unlock()
	t, ok := s.tasks.Get(key)
	if !ok {
		return false
	}
	canceled := t.cancel()
	s.Remove(key, !canceled)
	return canceled
}

// Reset moves the key's function to d from now and returns true. It returns false if the
// key has none, or if the wheel is stopped. During [TimingWheel.Shutdown] it also returns
// false, and changes nothing, if the new time is later than the old one.
//
// Each Reset takes the lock of the key's part of the map, looks the key up, and takes the
// lock of the shard that the function is on. A connection that can hold a handle needs no
// key: use [TimingWheel.AfterFunc] there, since Reset of a [Timer] mostly takes no lock.
func (k *Keyed[K]) Reset(key K, d time.Duration) bool {
	after := k.engine.After(d)
	s := k.lock(key)
	defer s.mu.Unlock()
	t, ok := s.tasks.Get(key)
	if !ok {
		return false
	}
	if t.change(after, nil) {
		return true
	}
	switch pending, handedBack := t.where(); {
	case pending: // in Shutdown, which refuses a later time
		return false
	case handedBack: // the wheel was stopped just now
		s.Remove(key, true)
		return false
	}
	// It waits in the executor's queue: leave it there, and put another in its place.
	again := &keyedTask[K]{keyed: k, key: key, f: t.f}
	_, err := s.put(again, t, after, (*engine.Handle).AcceptAgain)
	return err == nil
}

// Deadline returns when the key's function is due, rounded up to a tick. It returns false
// if the key has none.
func (k *Keyed[K]) Deadline(key K) (time.Time, bool) {
	s := k.lock(key)
	defer s.mu.Unlock()
	t, ok := s.tasks.Get(key)
	if !ok {
		return time.Time{}, false
	}
	return t.dueAt()
}

// Len returns the number of keys that are scheduled. It is exact while no other call is
// under way.
func (k *Keyed[K]) Len() int {
	n := 0
	for i := range k.stripes {
		s := &k.stripes[i]
		s.mu.Lock()
		n += s.tasks.Len() - int(s.handedBack.Load())
		s.mu.Unlock()
	}
	return n
}

// All iterates over the keys that are scheduled, each with the time at which its function
// is due, rounded up to a tick, in no order. No lock is held while the loop's body runs,
// so the body may call any method. A key that is scheduled throughout the loop comes
// once. One that is scheduled, replaced, canceled or reset meanwhile, or whose function
// starts, comes once or not at all. The time is that of some moment during the loop. So
// before you act on a key, check with Cancel or Reset that it is still there.
//
// The loop copies the keys of one stripe of 64 at a time, and holds the stripe's lock for
// that. O(keys).
func (k *Keyed[K]) All() iter.Seq2[K, time.Time] {
	return func(yield func(K, time.Time) bool) {
		var found []KeyedPending[K]
		for i := range k.stripes {
			found = k.survey(i, found[:0])
			for _, p := range found {
				if !yield(p.Key, p.Deadline) {
					return
				}
			}
		}
	}
}

// survey appends the keys of a stripe and their deadlines.
func (k *Keyed[K]) survey(i int, found []KeyedPending[K]) []KeyedPending[K] {
	s := &k.stripes[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, t := range s.tasks.All() {
		if at, ok := t.dueAt(); ok {
			found = append(found, KeyedPending[K]{Key: key, Deadline: at})
		}
	}
	return found
}

// KeyedPending is a key that [Keyed.Drain] has taken: the time at which its function was
// due, rounded up to a tick, and the function.
type KeyedPending[K comparable] struct {
	Key      K
	Deadline time.Time
	Func     func()
}

// Drain cancels all keys and returns them with their functions, in no order. It is for a
// program that writes down what has not run. A function that it returns will not run,
// even if it waits in the executor's queue. A key that was scheduled when Drain was
// called is returned once, unless it was canceled or its function has started. If several
// calls of Drain overlap, one of them returns the key. A key that is scheduled while
// Drain runs may be returned or stay.
//
// [TimingWheel.Stop] hands back functions without their keys, and Drain does not return
// these. So call Drain before Stop. Drain returns nil if there is nothing. O(keys). It
// holds the lock of one stripe of 64 at a time.
func (k *Keyed[K]) Drain() (drained []KeyedPending[K]) {
	for i := range k.stripes {
		drained = k.drain(i, drained)
	}
	return drained
}

// drain takes the keys out of a stripe and appends them.
func (k *Keyed[K]) drain(i int, drained []KeyedPending[K]) []KeyedPending[K] {
	s := &k.stripes[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, t := range s.tasks.All() {
		at, _ := t.dueAt()
		if f := t.take(); f != nil {
			drained = append(drained, KeyedPending[K]{key, at, f})
		} else {
			s.handedBack.Add(-1)
		}
	}
	s.tasks.Clear()
	return drained
}

// start puts the task on the wheel.
func (t *keyedTask[K]) start(after engine.Delay, add adder) error {
	t.entry.Join(t.keyed.engine)
	defer t.entry.UnlockShard()
	if err := add(&t.entry, after, t.due, engine.Internal|engine.OneShot); err != nil {
		return err
	}
	t.deadline = t.entry.Deadline()
	return nil
}

// due is the wheel's own task: it hands the task to the executor, or the function back if
// the wheel was stopped first. The caller holds the shard's lock.
func (t *keyedTask[K]) due() {
	switch {
	case t.entry.Canceled(): // by take, which sees to the rest
	case t.entry.Stopped():
		t.entry.HandBack(t.deadline, t.f)
		t.f = nil
		t.keyed.stripe(t.key).handBack()
	default:
		t.entry.Execute(t)
	}
}

// Run is the task that the executor runs. It does nothing if the task is no longer its
// key's.
func (t *keyedTask[K]) Run() {
	if f := t.begin(); f != nil {
		f()
	}
}

// Discard takes the task from its key.
func (t *keyedTask[K]) Discard() func() { return t.begin() }

func (t *keyedTask[K]) begin() (f func()) {
	s := t.keyed.lock(t.key)
	defer s.mu.Unlock()
	if its, _ := s.tasks.Get(t.key); its != t {
		return nil
	}
	s.Remove(t.key, false) // Stop cannot have handed it back: it is in the executor's queue
	return t.f
}

// The methods that follow are called with the stripe's lock held.

// cancel takes the task, which is its key's no more, off the wheel, and reports
// whether its function will therefore not run.
func (t *keyedTask[K]) cancel() bool { return t.take() != nil }

// take is cancel, and returns the function. If the wheel no longer has the task, there
// are two cases. Either it is in the executor's queue, and will find that it is no longer
// its key's. Or it was handed back, and take returns nil. The queue may be long, so take
// lets go of the function.
func (t *keyedTask[K]) take() (f func()) {
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	t.entry.Cancel()
	f, t.f = t.f, nil // nil if it was handed back
	return f
}

// change gives a task that is still on the wheel a new time, and another function unless
// that is nil. It reports false if the task is not there any more, or if the wheel is in
// Shutdown and refuses: it refuses every new function, also for a key that is scheduled.
func (t *keyedTask[K]) change(after engine.Delay, f func()) bool {
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	if f != nil && t.entry.Closed() || !t.entry.Reset(after) {
		return false
	}
	if f != nil {
		t.f = f
	}
	t.deadline = t.entry.Deadline()
	return true
}

// dueAt returns when the task is due, or was, and false if it was handed back.
func (t *keyedTask[K]) dueAt() (time.Time, bool) {
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	if t.f == nil {
		return time.Time{}, false
	}
	return t.entry.Clock().Time(t.deadline), true
}

// where reports whether the task is on the wheel, and whether it was handed back. If it
// is neither, it is in the executor's queue.
func (t *keyedTask[K]) where() (pending, handedBack bool) {
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	return t.entry.Pending(), t.f == nil
}
