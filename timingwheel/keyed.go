package timingwheel

import (
	"hash/maphash"
	"iter"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// Keyed holds at most one pending function for each key: a session's expiry under
// the session's name, say. Make one with [NewKeyed].
//
// Up to the instant in which a function starts, Schedule, Cancel and Reset of its
// key win, also while it waits in the executor's queue: it is then replaced, dropped
// or put off. In that instant the key disappears; the function may schedule it again.
//
// A long and a short delay are no different here. One wheel has both, and to replace one
// by the other is one step under one lock, so that a key is never without its entry
// in between, as it is where tasks are handed from a wheel with a coarse tick to one
// with a fine.
//
// A function that has started is no longer its key's, and runs beside whatever comes
// after. A cache must mind that: an expiry that has started, and waits for the cache's lock,
// would delete a value that was set anew meanwhile. So let the function check under the
// cache's lock that the value is still the one for which it was scheduled, as the example
// does. (A cache without this check has lost 128 of 25,600 values in a test.)
//
// The keys are spread over stripes with a lock each, so that goroutines with
// different keys seldom wait for each other. All methods are safe for concurrent
// use, and O(1).
type Keyed[K comparable] struct {
	wheel   *TimingWheel
	seed    maphash.Seed
	stripes [keyedStripes]stripe[K]
}

const keyedStripes = 64

type stripe[K comparable] struct {
	mu    sync.Mutex // lock order: stripe, shard
	tasks map[K]*keyedTask[K]
	most  int      // keys that tasks has had
	_     [40]byte // one stripe to a cache line
}

// keepMap is how large a map may have been that an empty stripe keeps. Maps do not
// shrink.
const keepMap = 64

func (s *stripe[K]) put(key K, t *keyedTask[K]) {
	if s.tasks == nil {
		s.tasks = make(map[K]*keyedTask[K])
	}
	s.tasks[key] = t
	s.most = max(s.most, len(s.tasks))
}

func (s *stripe[K]) remove(key K) {
	delete(s.tasks, key)
	if len(s.tasks) == 0 && s.most > keepMap {
		s.tasks, s.most = nil, 0
	}
}

// keyedTask is what a key is scheduled for. It is its key's as long as the stripe
// says so, and that decides whether its function runs.
type keyedTask[K comparable] struct {
	keyed *Keyed[K]
	key   K
	f     func() // guarded by the shard's lock while the wheel has the task, then by the stripe's
	entry entry

	// Guarded by the shard's lock.
	deadline   int64
	handedBack bool // by the wheel's Stop
}

// NewKeyed returns a Keyed on the wheel. There may be any number. It takes 4 KB, and
// has nothing to be closed. It panics on a nil wheel.
func NewKeyed[K comparable](w *TimingWheel) *Keyed[K] {
	if w == nil {
		panic("timingwheel: NewKeyed(nil)")
	}
	return &Keyed[K]{wheel: w, seed: maphash.MakeSeed()}
}

// lock returns the key's stripe, locked.
func (k *Keyed[K]) lock(key K) *stripe[K] {
	return k.lockStripe(int(maphash.Comparable(k.seed, key) % keyedStripes))
}

// lockStripe returns a stripe, locked. On a stopped wheel it first drops what Stop has
// handed back.
func (k *Keyed[K]) lockStripe(i int) *stripe[K] {
	s := &k.stripes[i]
	s.mu.Lock()
	if k.wheel.ctx.Err() != nil {
		s.dropHandedBack()
	}
	return s
}

func (s *stripe[K]) dropHandedBack() {
	for key, t := range s.tasks {
		if t.isHandedBack() {
			s.remove(key)
		}
	}
}

// Schedule arranges for f to run d from now, as [TimingWheel.Schedule] does, and
// replaces what the key was scheduled for. It tells whether there was something:
// then that function will not run. It panics on a nil function, and on a key that
// does not equal itself, such as a NaN, or that cannot be compared, such as a slice in an
// interface. On a stopped wheel it returns [ErrStopped], and
// where [WithMaxPending] permits no more [ErrTooManyPending] unless the key is pending;
// then it changes nothing.
func (k *Keyed[K]) Schedule(key K, d time.Duration, f func()) (replaced bool, err error) {
	if f == nil {
		panic("timingwheel: Keyed.Schedule: nil function")
	}
	if same := key; key != same {
		panic("timingwheel: Keyed.Schedule: a key that does not equal itself")
	}
	s := k.lock(key)
	defer s.mu.Unlock()
	after := delay{k.wheel.clock.now(), d}
	if old, ok := s.tasks[key]; ok && old.change(after, f) {
		return true, nil
	}
	return k.put(s, key, after, f, (*entry).accept)
}

// adder is accept or acceptAgain.
type adder = func(e *entry, after delay, f func(), kind bucket.Tag) error

// put makes f the key's task. The caller holds s.mu.
func (k *Keyed[K]) put(s *stripe[K], key K, after delay, f func(), add adder) (replaced bool, err error) {
	t := &keyedTask[K]{keyed: k, key: key, f: f}
	if err := t.start(after, add); err != nil {
		return false, err
	}
	if old, ok := s.tasks[key]; ok {
		replaced = old.cancel()
	}
	s.put(key, t)
	return replaced, nil
}

// Cancel drops what the key is scheduled for, and returns true if the function will
// therefore not run: false if the key has none, because it has started, say, and
// false if the wheel's Stop has handed it back.
func (k *Keyed[K]) Cancel(key K) bool {
	s := k.lock(key)
	defer s.mu.Unlock()
	t, ok := s.tasks[key]
	if !ok {
		return false
	}
	s.remove(key)
	return t.cancel()
}

// Reset puts the key's function off until d from now and returns true, or returns
// false if the key has none, or the wheel is stopped.
func (k *Keyed[K]) Reset(key K, d time.Duration) bool {
	s := k.lock(key)
	defer s.mu.Unlock()
	t, ok := s.tasks[key]
	if !ok {
		return false
	}
	after := delay{k.wheel.clock.now(), d}
	if t.change(after, nil) {
		return true
	}
	if t.isHandedBack() { // the wheel was stopped just now
		s.remove(key)
		return false
	}
	// It waits in the executor's queue: leave it there, and put another in its place.
	_, err := k.put(s, key, after, t.f, (*entry).acceptAgain)
	return err == nil
}

// Deadline returns when the key's function is due, rounded up to a tick, and false
// if the key has none.
func (k *Keyed[K]) Deadline(key K) (time.Time, bool) {
	s := k.lock(key)
	defer s.mu.Unlock()
	t, ok := s.tasks[key]
	if !ok {
		return time.Time{}, false
	}
	return t.dueAt(), true
}

// Len returns the number of keys that are scheduled. It is exact when nothing else is
// under way.
func (k *Keyed[K]) Len() int {
	n := 0
	for i := range k.stripes {
		s := k.lockStripe(i)
		n += len(s.tasks)
		s.mu.Unlock()
	}
	return n
}

// All iterates over the keys that are scheduled, each with the time at which its function is
// due, rounded up to a tick, in no order. No lock is held while the loop's body runs, so the
// body may call any method. A key that is scheduled throughout the loop comes once. One that
// is scheduled, replaced, canceled or reset meanwhile, or whose function starts, comes once
// or not at all, and the time is that of some moment during the loop; so before you act on a
// key, check with Cancel or Reset that it is still there.
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
	s := k.lockStripe(i)
	defer s.mu.Unlock()
	for key, t := range s.tasks {
		found = append(found, KeyedPending[K]{Key: key, Deadline: t.dueAt()})
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

// Drain cancels all keys and returns them with their functions, in no order, for a program
// that writes down what has not run. What it returns will not run, also if it waits in the
// executor's queue. Each key that was scheduled when Drain was called either is returned,
// once and by one of several calls, or was canceled by another, or its function has started.
// What is scheduled while Drain runs may be returned or stay.
//
// Call Drain before [TimingWheel.Stop], which hands back functions without their keys:
// these Drain does not return. It returns nil if there is nothing. O(keys); it holds the lock
// of one stripe of 64 at a time.
func (k *Keyed[K]) Drain() (drained []KeyedPending[K]) {
	for i := range k.stripes {
		drained = k.drain(i, drained)
	}
	return drained
}

// drain takes the keys out of a stripe and appends them.
func (k *Keyed[K]) drain(i int, drained []KeyedPending[K]) []KeyedPending[K] {
	s := k.lockStripe(i)
	defer s.mu.Unlock()
	for key, t := range s.tasks {
		at := t.dueAt()
		if f := t.take(); f != nil {
			drained = append(drained, KeyedPending[K]{key, at, f})
		}
	}
	s.tasks, s.most = nil, 0
	return drained
}

// start puts the task on the wheel.
func (t *keyedTask[K]) start(after delay, add adder) error {
	t.entry.join(t.keyed.wheel)
	defer t.entry.unlock()
	if err := add(&t.entry, after, t.due, own|oneShot); err != nil {
		return err
	}
	t.deadline = t.entry.deadline()
	return nil
}

// due is the wheel's own task: it hands the task to the executor, or the function back if
// the wheel was stopped first. The caller holds the shard's lock.
func (t *keyedTask[K]) due() {
	switch {
	case t.entry.canceled(): // by take, which sees to the rest
	case t.entry.stopped():
		t.handedBack = true
		t.entry.handBack(t.deadline, t.f)
		t.f = nil
	default:
		t.entry.execute(t)
	}
}

// run is the task that the executor runs, if it still is its key's.
func (t *keyedTask[K]) run() {
	if f := t.begin(); f != nil {
		f()
	}
}

// discard takes the task from its key.
func (t *keyedTask[K]) discard() func() { return t.begin() }

func (t *keyedTask[K]) begin() (f func()) {
	s := t.keyed.lock(t.key)
	defer s.mu.Unlock()
	if s.tasks[t.key] != t {
		return nil
	}
	s.remove(t.key)
	return t.f
}

// The methods that follow are called with the stripe's lock held.

// cancel takes the task, which is its key's no more, off the wheel, and reports
// whether its function will therefore not run.
func (t *keyedTask[K]) cancel() bool { return t.take() != nil }

// take is cancel, and returns the function. If the wheel no longer has the task, it is in
// the executor's queue and will find that it is not its key's; or it was handed back, and
// take returns nil. The queue may be long, so the function is let go of here.
func (t *keyedTask[K]) take() (f func()) {
	t.entry.lock()
	defer t.entry.unlock()
	t.entry.cancel()
	f, t.f = t.f, nil // nil if it was handed back
	return f
}

// change gives a task that is still on the wheel a new time, and another function
// unless that is nil, and reports false if it no longer is there.
func (t *keyedTask[K]) change(after delay, f func()) bool {
	t.entry.lock()
	defer t.entry.unlock()
	if !t.entry.reset(after) {
		return false
	}
	if f != nil {
		t.f = f
	}
	t.deadline = t.entry.deadline()
	return true
}

// dueAt returns when the task is due, or was.
func (t *keyedTask[K]) dueAt() time.Time {
	t.entry.lock()
	defer t.entry.unlock()
	return t.entry.clock().time(t.deadline)
}

func (t *keyedTask[K]) isHandedBack() bool {
	t.entry.lock()
	defer t.entry.unlock()
	return t.handedBack
}
