package engine

import (
	"container/list"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
)

// shard is one hierarchy of wheels with the arena of its entries and one lock around
// both. The ring that an entry is in is its whole state. So there are no atomics on entries
// and no retries, but for the deadline of a LazyTask.
//
// Lock order: the turnstile (see fairness), shard, queue.
type shard struct {
	hub   *hub
	clock *clock // the hub's

	fairness fairness // who gets mu next

	mu         sync.Mutex
	nextSample int64         // see Profile; here, where the line is written anyway; guarded by mu, as is all that follows
	arena      bucket.Arena  // of all entries below
	finest     *wheel        // nil until the first entry that is not due at once
	turnEnds   time.Duration // when the current interval of finest does; 0 until there is one

	counts   Counts        // but for Pending
	limit    share         // of the limit on oneShots; here, where the lines are written anyway
	oneShots int64         // pending entries whose tag has that bit
	entries  [levels]int32 // pending, by the level of their tag
	history  *history      // nil until the first flush

	// overdue holds what is due when it is added, until the driver takes it: the delay was not
	// positive, or the driver has flushed the deadline's bucket by now. Tasks for atOnce are
	// not here. In the queue it has the time at which the first was added: so it waits its turn
	// among the buckets that expired before.
	overdue        slot
	overdueCascade cascade

	// atOnce holds the users' functions that are due when they are added, if there is
	// hub.atOnce. While it is open, a goroutine is on its way to it: see atonce.go.
	atOnce   bucket.Bucket
	onAtOnce func() // runAtOnce; nil until first needed

	// waiting holds the entries that are due and wait at the gate, in the order in which
	// they came due. takeWaiting takes them from here when the gate opens.
	waiting    bucket.Bucket
	waitsSince atomic.Int64 // deadline of the first entry in waiting, or earlier; read without mu

	added      time.Duration // when something was last added
	dropsSince time.Duration // from when on drops counts
	drops      int           // of dropEmptied

	out *dueTasks // where what is due goes, set by whoever takes it out of its bucket

	closed     bool // accepts no more
	stopped    bool // and fires no more
	heir       heir // of stopSlice; nil but in a slice
	canceling  bool // cancel is calling the task of the entry that it has removed
	dismissing bool // dismiss is calling the task of the entry that it will remove

	due      func(disguised func()) // calls a task that is Disguised; nil until there is one
	contexts *list.List             // of the context.CancelCauseFunc of each Future that runs; nil: none, or stopped

	// Fields that an add does not use, so that shards need no more room between them.
	id int // its index among the shards, which never changes

	_ [24]byte // makes a whole number of cache lines, on 64 bits: then no shard's lock is in two
}

func (s *shard) init(h *hub, id int) {
	s.hub, s.clock, s.id = h, h.clock, id
	s.limit.join(h.limit)
	s.overdueCascade = cascade{shard: id, allDue: true}
	s.overdue.cascade = &s.overdueCascade
	s.nextSample = math.MinInt64
	if h.profile != nil {
		s.nextSample = h.profile.gap()
	}
	s.waitsSince.Store(math.MaxInt64)
}

// ref names an entry of a shard while it is pending. Once the entry has fired or was
// canceled, the ref names nothing, for ever. The zero ref never names anything.
type ref struct {
	index      bucket.Index
	generation uint64
}

// The caller of the methods that follow holds s.mu.

// accept adds a one-shot that is new, unless the shard is closed or the limit reached.
func (s *shard) accept(after Delay, f func(), kind bucket.Tag) (ref, error) {
	if s.closed || s.limit.exists() || s.arena.IsFull() {
		if err := s.refuse(1); err != nil {
			return ref{}, err
		}
	}
	return s.add(after, f, kind), nil
}

// refuse takes n places under the limit, or none, and returns why not.
func (s *shard) refuse(n int64) error {
	if s.closed {
		return ErrStopped
	}
	if s.arena.IsFull() || !s.limit.take(n) {
		s.counts.Rejected += n
		return ErrTooManyPending
	}
	return nil
}

// add adds a task. The shard must not be closed, and a one-shot must have its place
// under the limit. The bucket comes first: so the entry's tag is written once, with the
// level.
func (s *shard) add(after Delay, f func(), kind bucket.Tag) ref {
	deadline := s.clock.deadline(after.Now, after.D)
	s.added = after.Now
	b, level := s.bucketFor(deadline, after, kind)
	i, generation := s.arena.Alloc(deadline, f, kind|bucket.Tag(level<<levelShift))
	b.Append(&s.arena, i)
	s.entries[level]++
	s.counts.Scheduled++
	if kind&OneShot != 0 {
		s.oneShots++
	}
	if s.counts.Scheduled == s.nextSample {
		s.hub.profile.note(s, ref{i, generation}) // it reads the clock: after would be kept for it at every add
	}
	return ref{i, generation}
}

// remove ends an entry that is in no bucket. Nothing counts it as pending any more.
func (s *shard) remove(i bucket.Index) (f func(), tag bucket.Tag) {
	f, tag = s.arena.Free(i)
	s.uncount(tag >> levelShift)
	s.uncountOneShot(tag)
	return f, tag
}

// uncountOneShot counts a one-shot as pending no more. What only some shards have to do is
// apart, so that the compiler inlines the rest.
func (s *shard) uncountOneShot(tag bucket.Tag) {
	if tag&OneShot != 0 {
		s.oneShots--
		if s.limit.limit != nil || s.closed {
			s.oneShotEnded()
		}
	}
}

func (s *shard) oneShotEnded() {
	s.limit.release()
	if s.oneShots == 0 && s.closed {
		s.hub.runner.Ended.Tell()
	}
}

// enterLevel and leaveLevel count an entry on the level whose bucket it is put into, or taken
// out of.
func (s *shard) enterLevel(i bucket.Index, level uint) {
	s.arena.SetTag(i, s.arena.Tag(i)&kind|bucket.Tag(level<<levelShift))
	s.entries[level]++
}

func (s *shard) leaveLevel(i bucket.Index) { s.uncount(s.arena.Tag(i) >> levelShift) }

func (s *shard) uncount(level bucket.Tag) {
	s.entries[level]--
	if level == levelWaiting && !s.stopped {
		s.hub.numWaiting.Add(-1)
	}
}

// isPending reports whether h names an entry.
func (s *shard) isPending(h ref) bool {
	_, ok := s.arena.Find(h.index, h.generation)
	return ok
}

// cancel forgets the task of h and reports whether it was pending.
func (s *shard) cancel(h ref) bool {
	i := h.index
	if !s.arena.Alive(i, h.generation) {
		var ok bool
		if i, ok = s.arena.Moved(h.generation); !ok {
			return false
		}
	}
	s.counts.Stopped++
	f, tag := s.arena.Remove(i)
	s.uncount(tag >> levelShift)
	s.uncountOneShot(tag)
	switch tag & kind {
	case Internal | OneShot:
		s.canceling = true
		f()
		s.canceling = false
	case OneShot | Disguised:
		_, pushes, _ := lazyOf(f).giveBack()
		s.counts.Reset += pushes
	}
	s.tidy(1)
	if s.drops < mostDrops || s.added-s.dropsSince >= dropsWithin {
		s.dropEmptied()
	}
	return true
}

// tidy moves entries together if the arena is sparse, after work on so many. The compiler
// inlines the look.
func (s *shard) tidy(work int) {
	if s.arena.IsSparse() {
		s.moveTogether(work)
	}
}

// moveTogether does nothing once the shard is closed: then there are passes over all
// entries, and none must move meanwhile.
func (s *shard) moveTogether(work int) {
	if !s.closed {
		s.arena.Tidy(work)
	}
}

// move moves an entry to a new time. It reports false if the shard is closed and the new
// time is later than the old one (see Engine.Drain), or if the shard is stopped.
//
// A reset to a later time only writes the deadline. The entry still waits in a bucket that
// expires at or before its own tick, which is all that the wheel needs; the flush of that
// bucket adds it again. So a timer that is pushed back all the time moves once for each
// bucket that it waits in, and not once for each reset. For 100 k timers in random order a
// reset costs 0.61 of one that moves the entry. The price: entries that were reset fire
// anywhere among those of their tick, and a bucket whose entries were all pushed back wakes
// the driver once.
func (s *shard) move(i bucket.Index, after Delay) bool {
	deadline, old := s.clock.deadline(after.Now, after.D), s.arena.Deadline(i)
	if s.closed && (deadline > old || s.stopped) {
		return false
	}
	s.counts.Reset++
	if deadline >= old && after.D > 0 && s.canStay(i) {
		s.arena.SetDeadline(i, deadline)
		return true
	}
	s.arena.Unlink(i)
	s.leaveLevel(i)
	s.arena.SetDeadline(i, deadline)
	b, level := s.bucketFor(deadline, after, s.arena.Tag(i))
	b.Append(&s.arena, i)
	s.enterLevel(i, level)
	return true
}

// resetLazy is Handle.Reset for the entry of a LazyTask, which keeps its deadline from then on.
// AfterFunc does not begin with that. Then every Timer would be on the heap, also one that
// nobody keeps, and every flush would have to look at it.
func (s *shard) resetLazy(h ref, after Delay, l *LazyTask) bool {
	i, ok := s.arena.Find(h.index, h.generation)
	if !ok {
		return false
	}
	s.settle(i)
	if !s.move(i, after) {
		return false
	}
	s.makeLazy(i, l)
	return true
}

// makeLazy gives the deadline of an entry to its LazyTask, if the entry is on a wheel.
func (s *shard) makeLazy(i bucket.Index, l *LazyTask) {
	if tag := s.arena.Tag(i); !isLazy(tag) {
		s.arena.SetTag(i, tag|Disguised)
		s.arena.SetTask(i, Disguise(l))
	}
	if s.canStay(i) && !s.closed {
		l.keep(s.arena.Deadline(i))
	}
}

// settle gives the deadline back to the entry, so that nobody changes it without the lock.
func (s *shard) settle(i bucket.Index) {
	if !isLazy(s.arena.Tag(i)) {
		return
	}
	if deadline, pushes, kept := lazyOf(s.arena.Task(i)).giveBack(); kept {
		s.arena.SetDeadline(i, deadline)
		s.counts.Reset += pushes
	}
}

// deadline returns the deadline of a living entry.
func (s *shard) deadline(i bucket.Index) int64 {
	if isLazy(s.arena.Tag(i)) {
		if deadline, kept := lazyOf(s.arena.Task(i)).deadline(); kept {
			return deadline
		}
	}
	return s.arena.Deadline(i)
}

// canStay reports whether a flush of the entry's bucket will look at its deadline.
func (s *shard) canStay(i bucket.Index) bool { return s.arena.Tag(i)>>levelShift < levelWaiting }

// bucketFor returns the bucket for a new deadline, open, and the level. An entry is due at
// once when the delay is not positive, or when the driver has flushed the deadline's bucket
// since the caller read the clock.
func (s *shard) bucketFor(deadline int64, after Delay, tag bucket.Tag) (*bucket.Bucket, uint) {
	if after.D > 0 {
		if after.Now >= s.turnEnds {
			s.catchUp(after.Now)
		}
		if b, level := s.finest.find(deadline); b != nil {
			return &b.Bucket, level
		}
	}
	if s.hub.atOnce != nil && !isInternal(tag) {
		s.openAtOnce()
		return &s.atOnce, levelDue
	}
	if !s.overdue.IsOpen() {
		s.overdue.Open(&s.arena, 0)
		s.hub.offer(&s.overdue, after.Now)
	}
	return &s.overdue.Bucket, levelDue
}

// catchUp makes the finest wheel, if there is none, and advances the clocks to now if nothing
// has expired and the driver sleeps. Otherwise an add after an idle stretch would enter a
// coarse bucket that has expired already, and wake the driver for that. It is not inlined,
// so that the frames of add are small.
//
// While the driver sleeps, it has no bucket, so all that are open are in the queue, and
// none of them expires before the head. So no clock passes a bucket that has not been
// flushed. The queue's head comes first: whatever the driver has taken after that, it has
// flushed when it sleeps again, and it needs s.mu for that.
//
//go:noinline
func (s *shard) catchUp(now time.Duration) {
	if s.finest == nil {
		s.finest = newWheel(s, &s.arena, s.id, s.hub.bits, 0, 0)
	}
	if _, at, ok := s.hub.queue.Peek(); ok && at.Sub(s.clock.Start) <= now || !s.hub.queue.Waits() {
		return
	}
	s.advance(int64(now / s.clock.tick))
}

// advance advances the clocks to a tick.
func (s *shard) advance(tick int64) {
	w := s.finest
	w.advance(tick)
	s.turnEnds = Later(s.clock.duration(w.currentTime|w.mask), s.clock.tick)
}

// opened implements wheelOwner.
func (s *shard) opened(b *slot) { s.hub.offer(b, s.clock.duration(b.Expiration())) }

func (s *shard) len() int {
	s.lock()
	defer s.unlock()
	return s.arena.Len()
}

// hasTasks reports whether functions are pending that are to run once.
func (s *shard) hasTasks() bool {
	s.lock()
	defer s.unlock()
	return s.oneShots > 0
}

// wheelOf returns the wheel of a level, and nil for the levels that have none. It is
// called with s.mu held.
func (s *shard) wheelOf(level bucket.Tag) *wheel {
	w := s.finest
	for w != nil && w.level != uint(level) {
		w = w.overflow
	}
	return w
}
