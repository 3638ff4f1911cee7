package timingwheel

import (
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/delayqueue"
)

// Pending is a function that was pending when the wheel was stopped: its deadline, rounded
// up to a tick and at most 292 years ahead, and the function.
type Pending struct {
	Deadline time.Time
	Func     func()
}

// sliceLen is how many entries of a cascade are flushed in one holding of the
// lock: 256 at 25 to 50 ns each make about 10 us.
const sliceLen = 256

// shard is one hierarchy of wheels with the arena of its entries and one lock
// around both. Under that lock every operation is a few plain instructions, and
// which ring an entry is in is its whole state: there are no atomics on entries
// and no retries.
//
// Lock order: the gate (see turns), shard, queue.
type shard struct {
	clock *clock
	queue *delayqueue.DelayQueue[*slot]
	bits  uint   // log2 of the slots of a wheel
	next  *shard // the ring of all shards, see TimingWheel.lock

	turns turns // who gets mu next

	driver *driver
	gate   gate   // what is due must pass it on its way to the executor; nil: none
	limit  *limit // of all shards; nil: none

	mu     sync.Mutex
	arena  bucket.Arena // of all entries below; guarded by mu, as is all that follows
	finest *wheel       // nil until the first entry that is not due at once

	coarsest *wheel // the last overflow wheel; nil until then

	counts   Counts // but for Pending
	oneShots int64  // pending entries whose tag has that bit
	lateness Histogram
	entries  [levels]int32 // pending, by the level of their tag
	cascaded [levels]int64 // that have left the level for a finer one

	// due holds the entries whose delay was not positive until the driver takes
	// them. Its place in the queue is the time at which the first was added, so
	// that it waits its turn among the buckets that expired before.
	due        slot
	dueCascade cascade

	// waiting holds the entries that are due and wait at the gate, in the order in which
	// they came due. Whoever opens the gate takes them from here (takeWaiting). It is in the
	// queue only where Drive has to take them: then offered is true.
	waiting        slot
	waitingCascade cascade
	offered        bool
	waitsSince     atomic.Int64 // deadline of the first entry in waiting, or earlier; read without mu

	out *expired // where what is due goes, set by whoever takes it out of its bucket

	closed    bool      // accepts no more
	stopped   bool      // and nothing is pending any more
	pending   []Pending // collected by stop
	canceling bool      // cancel is calling the task of the entry that it has removed

	contexts *list.List // of the context.CancelCauseFunc of each Future that runs; nil: none, or stopped

	_ [64]byte // keeps the next shard's lock out of this one's cache lines
}

func (s *shard) init(c *clock, d *driver, l *limit, bits uint, next *shard) {
	s.clock, s.queue, s.driver, s.limit, s.bits, s.next = c, d.queue, d, l, bits, next
	s.turns.entered = make(chan struct{}, 1)
	s.gate = d.gate
	s.dueCascade = cascade{shard: s, due: true}
	s.due.cascade = &s.dueCascade
	s.waitingCascade = cascade{shard: s, due: true}
	s.waiting.cascade = &s.waitingCascade
	s.waitsSince.Store(math.MaxInt64)
}

// handle names an entry of a shard while it is pending. Once the entry has fired or was
// canceled, the handle names nothing, for ever. The zero handle never names anything.
type handle struct {
	index      bucket.Index
	generation uint64
}

// delay says when a task is due: d after now.
type delay struct {
	now time.Duration // since the start
	d   time.Duration
}

// An entry's tag says what it is, in its lowest bits (kind), and on which level it waits, in
// the others.
const (
	// own is a task of the wheel's own that never needs the executor: of a channel, a ticker
	// or a context.
	//
	// A task of the wheel's own is called under s.mu: by the driver when it is due, and by
	// close or stop when that comes first (s.closed and s.stopped tell). So whatever it does
	// is one with the state of its entry, and whoever cancels it under s.mu knows that it is
	// neither running nor about to. It must be short, never block, and run no code of a user.
	own bucket.Tag = 1 << iota

	// oneShot is an entry that becomes a user's function once. Shutdown waits for it, and the
	// limit counts it. With own it is a task of the wheel's own that hands the function to
	// the executor: of a Future, a key or a Group. Such a task is also called when its entry
	// is canceled (s.canceling tells), since a Timeout or Timer may do that without it.
	oneShot

	// recurring is a task of the wheel's own that hands a run to the executor: of a Job. Like
	// own without oneShot it has to see to itself when the shard is closed.
	recurring bucket.Tag = 0

	kind       = own | oneShot
	levelShift = 2 // the level's lowest bit

	levels       = 1 << (8 - levelShift)
	levelDue     = levels - 1 // on no wheel. Ticks of 1us in 292 years are 54 levels of two slots
	levelWaiting = levels - 2 // on no wheel, but at the gate
)

// isOwn reports whether an entry is a task of the wheel's own.
func isOwn(tag bucket.Tag) bool { return tag&kind != oneShot }

// needsExecutor reports whether an entry has something for the executor when it is due.
func needsExecutor(tag bucket.Tag) bool { return tag&kind != own }

// The caller of the methods that follow holds s.mu.

// accept adds a one-shot that is new, unless the shard is closed or the limit reached. It
// is add written out, since it is in the way of every Schedule: with two calls more that
// and its Cancel took 305 cycles instead of 300, where they took 297 before they counted.
func (s *shard) accept(after delay, f func(), kind bucket.Tag) (handle, error) {
	if s.closed || s.limit != nil {
		if err := s.refuse(1); err != nil {
			return handle{}, err
		}
	}
	i, generation := s.arena.Alloc(s.clock.deadline(after.now, after.d), f, kind)
	s.counts.Scheduled++
	s.oneShots++
	s.place(i, after)
	return handle{i, generation}, nil
}

// refuse takes n places under the limit, or none, and returns why not.
func (s *shard) refuse(n int64) error {
	if s.closed {
		return ErrStopped
	}
	if !s.limit.take(n) {
		s.counts.Rejected += n
		return ErrTooManyPending
	}
	return nil
}

// acceptAgain adds a one-shot that was accepted before, and is not pending any more,
// unless the shard is closed.
func (s *shard) acceptAgain(after delay, f func(), kind bucket.Tag) (handle, error) {
	if s.closed {
		return handle{}, ErrStopped
	}
	s.limit.force()
	return s.add(after, f, kind), nil
}

// add adds a task. The shard must not be closed, and a one-shot must have its place
// under the limit.
func (s *shard) add(after delay, f func(), kind bucket.Tag) handle {
	i, generation := s.arena.Alloc(s.clock.deadline(after.now, after.d), f, kind)
	s.counts.Scheduled++
	if kind&oneShot != 0 {
		s.oneShots++
	}
	s.place(i, after)
	return handle{i, generation}
}

// remove takes an entry that is in no bucket out of all that counts it as pending.
func (s *shard) remove(i bucket.Index) (f func(), kind bucket.Tag) {
	f, tag := s.arena.Free(i)
	s.leaveLevel(tag >> levelShift)
	if tag&oneShot != 0 {
		s.limit.release()
		if s.oneShots--; s.oneShots == 0 && s.closed {
			s.driver.runner.ended.tell()
		}
	}
	return f, tag
}

// enter and leave count an entry on the level whose bucket it is put into, or taken out of.
func (s *shard) enter(i bucket.Index, level uint) {
	s.arena.SetTag(i, s.arena.Tag(i)&kind|bucket.Tag(level<<levelShift))
	s.entries[level]++
}

func (s *shard) leave(i bucket.Index) { s.leaveLevel(s.arena.Tag(i) >> levelShift) }

func (s *shard) leaveLevel(level bucket.Tag) {
	s.entries[level]--
	if level == levelWaiting {
		s.driver.waiting.Add(-1)
	}
}

// wait makes an entry that is due and in no bucket wait at the gate.
func (s *shard) wait(i bucket.Index) {
	s.leave(i)
	if !s.waiting.IsOpen() {
		s.waiting.Open(&s.arena, 0)
		s.waitsSince.Store(s.arena.Deadline(i))
	}
	s.waiting.Append(&s.arena, i)
	s.enter(i, levelWaiting)
	s.driver.waiting.Add(1)
}

// isPending reports whether h names an entry.
func (s *shard) isPending(h handle) bool {
	_, ok := s.arena.Find(h.index, h.generation)
	return ok
}

// cancel forgets the task of h and reports whether it was pending.
func (s *shard) cancel(h handle) bool {
	i := h.index
	if !s.arena.Alive(i, h.generation) {
		var ok bool
		if i, ok = s.arena.Moved(h.generation); !ok {
			return false
		}
	}
	s.arena.Unlink(i)
	s.counts.Canceled++
	if f, tag := s.remove(i); tag&kind == own|oneShot {
		s.canceling = true
		f()
		s.canceling = false
	}
	s.tidy(1)
	return true
}

// tidy has the arena move entries together, after so much work. It does nothing once the
// shard is closed: tasks of the wheel's own may cancel others in the middle of the passes of
// closeLocked and stop.
func (s *shard) tidy(work int) {
	if s.arena.IsSparse() && !s.closed {
		s.arena.Tidy(work)
	}
}

// reset moves the task of h to a new time. It reports false if the task is not pending, or
// if the shard is closed and the new time is later than the old one: see Shutdown.
//
// A reset to a later time is lazy: it writes the deadline and leaves the entry where it is.
// The entry still waits in a bucket that expires at or before its own tick, which is all
// that the wheel needs; the flush of that bucket adds it again. So a timer that is pushed
// back all the time moves once for each bucket that it waits in, and not once for each
// reset. For 100 k timers in random order a reset costs 0.61 of one that moves the entry.
// The price: entries that were reset fire anywhere among those of their tick, and a bucket
// whose entries were all pushed back wakes the driver once.
func (s *shard) reset(h handle, after delay) bool {
	i, ok := s.arena.Find(h.index, h.generation)
	if !ok {
		return false
	}
	deadline, old := s.clock.deadline(after.now, after.d), s.arena.Deadline(i)
	if s.closed && deadline > old {
		return false
	}
	s.counts.Reset++
	if deadline >= old && after.d > 0 && s.canStay(i, deadline) {
		s.arena.SetDeadline(i, deadline)
		return true
	}
	s.arena.Unlink(i)
	s.leave(i)
	s.arena.SetDeadline(i, deadline)
	s.place(i, after)
	return true
}

// canStay reports whether a flush of the entry's bucket will look at its deadline, and
// whether the deadline is on a level that was made already: Snapshot counts the entry there.
func (s *shard) canStay(i bucket.Index, deadline int64) bool {
	level := s.arena.Tag(i) >> levelShift
	return level < levelWaiting && s.coarsest.covers(deadline)
}

// place puts an entry that is in no bucket where its delay says. It is due at
// once when the delay is not positive, or when the driver has flushed the
// deadline's bucket since the caller read the clock.
func (s *shard) place(i bucket.Index, after delay) {
	if after.d > 0 {
		if s.finest == nil {
			s.finest = newWheel(s, 0, 0)
			s.coarsest = s.finest
		}
		if s.finest.add(i, s.arena.Deadline(i)) {
			return
		}
	}
	if !s.due.IsOpen() {
		s.due.Open(&s.arena, 0)
		s.offerAt(&s.due, s.clock.start.Add(after.now))
	}
	s.due.Append(&s.arena, i)
	s.enter(i, levelDue)
}

// offer puts a bucket that was just opened into the queue, for its expiration.
func (s *shard) offer(b *slot) { s.offerAt(b, s.clock.time(b.Expiration())) }

func (s *shard) offerAt(b *slot, at time.Time) {
	b.cascade.open++
	s.queue.Offer(b, at)
	s.driver.ensure()
}

// The methods that follow take s.mu themselves.

// expire begins the cascade of a bucket that the driver has taken from the queue, and
// flushes its first slice. No cascade of the same level may be under way.
//
// The clocks advance before the entries are added again, or these would return to the
// bucket they came from. The clocks advance to the bucket's expiration only, never to now,
// or an entry added later could overtake one that waits in a coarser bucket. All of it
// happens in one holding of the lock, or an entry could be added in between and overtake
// those of its tick that are in the bucket.
func (s *shard) expire(b *slot) (more bool) {
	s.lockForDriver()
	defer s.unlock()
	if s.stopped {
		return false
	}
	s.out = &s.driver.expired
	b.cascade.open--
	if b == &s.waiting {
		s.offered = false
		s.flushWaiting(s.gate.claim)
		return false
	}
	if s.finest != nil {
		s.finest.advance(b.Expiration())
	}
	b.MoveTo(&s.arena, &b.cascade.ring)
	return s.flushSlice(b.cascade)
}

// flush goes on with a cascade: it adds a slice of the entries to the wheels again, fires
// those that are due, and reports whether entries are left.
func (s *shard) flush(c *cascade) (more bool) {
	s.lockForDriver()
	defer s.unlock()
	if s.stopped {
		return false
	}
	s.out = &s.driver.expired
	return s.flushSlice(c)
}

// flushSlice is called with s.mu held.
func (s *shard) flushSlice(c *cascade) (more bool) {
	now, before := s.clock.now(), len(s.out.tasks)
	for range sliceLen {
		i := c.ring.First(&s.arena)
		if i == 0 {
			break
		}
		s.arena.Unlink(i)
		deadline, level := s.arena.Deadline(i), s.arena.Tag(i)>>levelShift
		if !c.due && s.finest.add(i, deadline) {
			s.entries[level]--
			if s.arena.Tag(i)>>levelShift < level { // or else it was pushed back
				s.cascaded[level]++
			}
			continue
		}
		s.pass(i, max(0, now-s.clock.duration(deadline)))
	}
	s.passed(before)
	s.tidy(sliceLen)
	if c.ring.First(&s.arena) != 0 {
		return true
	}
	c.ring.Close(&s.arena)
	return false
}

// pass fires an entry that is due and in no bucket, or makes it wait at the gate. It is
// called with s.mu held.
func (s *shard) pass(i bucket.Index, late time.Duration) {
	if s.gate != nil && needsExecutor(s.arena.Tag(i)) && s.held(i) {
		s.out.held = true
		return
	}
	s.out.late = max(s.out.late, late)
	s.fire(i, late)
}

// held makes an entry wait if another waits already, or else if the gate says so. It is
// called with s.mu held.
func (s *shard) held(i bucket.Index) bool {
	if s.waiting.IsOpen() && s.waiting.First(&s.arena) != 0 {
		s.wait(i)
		return true
	}
	return s.gate.hold(s, i)
}

// passed counts what has been added to out since it had so many tasks, and lets the gate
// hand it over. It is called with s.mu held.
func (s *shard) passed(before int) {
	s.driver.runner.running.admit(len(s.out.tasks) - before)
	if s.gate != nil {
		s.gate.pass(s.out, s.driver.runner)
	}
}

// fire is called with s.mu held.
func (s *shard) fire(i bucket.Index, late time.Duration) {
	s.counts.Fired++
	s.lateness.add(late)
	if f, kind := s.remove(i); isOwn(kind) {
		f()
	} else {
		s.expired(function(f))
	}
}

// expired notes a task for the executor, and end one for a run queue of the wheel's own.
// They are called with s.mu held.
func (s *shard) expired(t task) { s.out.tasks = append(s.out.tasks, t) }
func (s *shard) end(t task)     { s.out.contexts = append(s.out.contexts, t) }

// takeWaiting fires entries that wait at the gate into out, as long as claim returns true,
// and reports whether one was there.
func (s *shard) takeWaiting(out *expired, claim func() bool) bool {
	s.lock()
	defer s.unlock()
	if s.stopped || !s.waiting.IsOpen() {
		return false
	}
	s.out = out
	return s.flushWaiting(claim)
}

// flushWaiting is called with s.mu held.
func (s *shard) flushWaiting(claim func() bool) (some bool) {
	now, before := s.clock.now(), len(s.out.tasks)
	i := s.waiting.First(&s.arena)
	for ; i != 0 && claim(); i = s.waiting.First(&s.arena) {
		some = true
		s.arena.Unlink(i)
		s.fire(i, max(0, now-s.clock.duration(s.arena.Deadline(i))))
	}
	s.passed(before)
	if i != 0 {
		s.waitsSince.Store(s.arena.Deadline(i))
		s.out.held = true
		return some
	}
	s.waiting.Close(&s.arena)
	s.waitsSince.Store(math.MaxInt64)
	return some
}

// offerWaiting has Drive take the entries that wait at the gate, since there may be room.
func (s *shard) offerWaiting() {
	s.lock()
	defer s.unlock()
	if s.stopped || s.offered || !s.waiting.IsOpen() {
		return
	}
	s.offered = true
	s.offerAt(&s.waiting, s.clock.read())
}

// dropEmpty removes the bucket from the queue and closes it, if it is the head and no entry
// is left in it. It reports whether it did: the head may be another bucket now.
func (s *shard) dropEmpty(b *slot) bool {
	s.lockForDriver()
	defer s.unlock()
	if s.stopped || !b.IsOpen() || b.First(&s.arena) != 0 {
		return false
	}
	if s.queue.DropHead(b) {
		b.Close(&s.arena)
		b.cascade.open--
		if b == &s.waiting {
			s.offered = false
			s.waitsSince.Store(math.MaxInt64)
		}
	}
	return true
}

// close refuses what comes later. The wheel's own tasks that nobody has to wait for see
// to themselves, and are gone.
func (s *shard) close() {
	s.lock()
	defer s.unlock()
	s.closeLocked()
}

func (s *shard) closeLocked() {
	if s.closed {
		return
	}
	s.closed = true
	for i := range s.arena.All() {
		if s.arena.Tag(i)&oneShot == 0 {
			s.arena.Task(i)()
			s.arena.Unlink(i)
			s.remove(i)
			s.counts.HandedBack++
		}
	}
}

// stop closes the shard, returns what is to be handed back, and lets go of it.
func (s *shard) stop() (pending []Pending) {
	s.lock()
	defer s.unlock()
	s.closeLocked()
	s.stopped = true
	for i := range s.arena.All() {
		if f := s.arena.Task(i); isOwn(s.arena.Tag(i)) {
			f()
		} else {
			s.handBack(s.arena.Deadline(i), f)
		}
		s.limit.release()
	}
	s.counts.HandedBack += int64(s.arena.Len())
	s.driver.waiting.Add(-int64(s.entries[levelWaiting]))
	s.arena, s.finest, s.coarsest = bucket.Arena{}, nil, nil
	s.oneShots, s.entries = 0, [levels]int32{}
	s.waitsSince.Store(math.MaxInt64)
	s.driver.runner.ended.tell()
	pending, s.pending = s.pending, nil
	return pending
}

// handBack is called with s.mu held, while the shard is being stopped.
func (s *shard) handBack(deadline int64, f func()) {
	s.pending = append(s.pending, Pending{s.clock.time(deadline), f})
}

// endContexts ends the contexts of the Futures that run, on a shard that was stopped. It
// does so without a lock, since contexts call what others have registered.
func (s *shard) endContexts() {
	s.lock()
	contexts := s.contexts
	s.contexts = nil
	s.unlock()
	if contexts == nil {
		return
	}
	for place := contexts.Front(); place != nil; place = place.Next() {
		place.Value.(context.CancelCauseFunc)(ErrStopped)
	}
}

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

// wheelOf returns the wheel of a level, and nil for the levels that have none. It is called
// with s.mu held.
func (s *shard) wheelOf(level bucket.Tag) *wheel {
	w := s.finest
	for w != nil && w.level != uint(level) {
		w = w.overflow
	}
	return w
}
