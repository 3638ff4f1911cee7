package timingwheel

import (
	"sync"
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

	driver *driver // what a slice finds to be due goes into its expired
	limit  *limit  // of all shards; nil: none

	mu     sync.Mutex
	arena  bucket.Arena // of all entries below; guarded by mu, as is all that follows
	finest *wheel       // nil until the first entry that is not due at once

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

	closed  bool      // accepts no more
	stopped bool      // and nothing is pending any more
	pending []Pending // collected by stop

	_ [64]byte // keeps the next shard's lock out of this one's cache lines
}

func (s *shard) init(c *clock, d *driver, l *limit, bits uint, next *shard) {
	s.clock, s.queue, s.driver, s.limit, s.bits, s.next = c, d.queue, d, l, bits, next
	s.turns.entered = make(chan struct{}, 1)
	s.dueCascade = cascade{shard: s, due: true}
	s.due.cascade = &s.dueCascade
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

// An entry's tag says what it is, in its lowest bits, and on which level it waits, in
// the others.
const (
	// own is a task of the wheel's own. It does not go to the executor: it is called
	// under s.mu, by the driver when it is due, and by close or stop when that comes
	// first (s.closed or s.stopped tell). So whatever it does is one with the state of
	// its entry, and whoever cancels it under s.mu knows that it is neither running nor
	// about to. It must be short, never block, and run no code of a user.
	own bucket.Tag = 1 << iota

	// oneShot is an entry that becomes a user's function once: Shutdown waits for it,
	// and it counts toward the limit. An own task that is none has to see to itself
	// when the shard is closed.
	oneShot

	kind       = own | oneShot
	levelShift = 2 // the level's lowest bit

	levels   = 1 << (8 - levelShift)
	levelDue = levels - 1 // not on any wheel. Ticks of 1us in 292 years are 54 levels of two slots
)

// The methods that follow are called with s.mu held.

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
	s.entries[tag>>levelShift]--
	if tag&oneShot != 0 {
		s.limit.release()
		if s.oneShots--; s.oneShots == 0 && s.closed {
			s.driver.runner.quiet.tell()
		}
	}
	return f, tag
}

// enter and leave count an entry on the level whose bucket it is put into, or taken out of.
func (s *shard) enter(i bucket.Index, level uint) {
	s.arena.SetTag(i, s.arena.Tag(i)&kind|bucket.Tag(level<<levelShift))
	s.entries[level]++
}

func (s *shard) leave(i bucket.Index) { s.entries[s.arena.Tag(i)>>levelShift]-- }

// isPending reports whether h names an entry.
func (s *shard) isPending(h handle) bool { return s.arena.Alive(h.index, h.generation) }

// cancel forgets the task of h and reports whether it was pending.
func (s *shard) cancel(h handle) bool {
	if !s.arena.Alive(h.index, h.generation) {
		return false
	}
	s.arena.Unlink(h.index)
	s.remove(h.index)
	s.counts.Canceled++
	return true
}

// reset moves the task of h to a new time, behind those that are there already,
// and reports false if it is not pending any more.
func (s *shard) reset(h handle, after delay) bool {
	if !s.arena.Alive(h.index, h.generation) {
		return false
	}
	s.arena.Unlink(h.index)
	s.leave(h.index)
	s.arena.SetDeadline(h.index, s.clock.deadline(after.now, after.d))
	s.place(h.index, after)
	s.counts.Reset++
	return true
}

// place puts an entry that is in no bucket where its delay says. It is due at
// once when the delay is not positive, or when the driver has flushed the
// deadline's bucket since the caller read the clock.
func (s *shard) place(i bucket.Index, after delay) {
	if after.d > 0 {
		if s.finest == nil {
			s.finest = newWheel(s, 0, 0)
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

// expire begins the cascade of a bucket that the driver has taken from the queue,
// and flushes its first slice. No cascade of the same level may be under way.
//
// The clocks advance before the entries are added again, or these would return to
// the bucket they came from; and they advance to the bucket's expiration only,
// never to now, or an entry added later could overtake one that waits in a
// coarser bucket. All in one holding of the lock, or an entry could be added
// between and overtake those of its tick that are in the bucket.
func (s *shard) expire(b *slot) (more bool) {
	s.lockForDriver()
	defer s.unlock()
	if s.stopped {
		return false
	}
	if s.finest != nil {
		s.finest.advance(b.Expiration())
	}
	b.MoveTo(&b.cascade.ring)
	b.cascade.open--
	return s.flushSlice(b.cascade)
}

// flush goes on with a cascade: it adds a slice of the entries to the wheels again,
// puts those that are due into expired, and reports whether entries are left.
func (s *shard) flush(c *cascade) (more bool) {
	s.lockForDriver()
	defer s.unlock()
	if s.stopped {
		return false
	}
	return s.flushSlice(c)
}

// flushSlice is called with s.mu held.
func (s *shard) flushSlice(c *cascade) (more bool) {
	e := &s.driver.expired
	now, tasks := s.clock.now(), len(e.tasks)
	for range sliceLen {
		i := c.ring.First(&s.arena)
		if i == 0 {
			break
		}
		s.arena.Unlink(i)
		deadline, level := s.arena.Deadline(i), s.arena.Tag(i)>>levelShift
		if !c.due && s.finest.add(i, deadline) {
			s.entries[level]--
			s.cascaded[level]++
		} else {
			late := max(0, now-s.clock.duration(deadline))
			e.late = max(e.late, late)
			s.fire(i, late)
		}
	}
	s.driver.runner.running.admit(len(e.tasks) - tasks)
	if c.ring.First(&s.arena) != 0 {
		return true
	}
	c.ring.Close(&s.arena)
	return false
}

// fire is called with s.mu held.
func (s *shard) fire(i bucket.Index, late time.Duration) {
	s.counts.Fired++
	s.lateness.add(late)
	if f, kind := s.remove(i); kind&own != 0 {
		f()
	} else {
		s.driver.expire(function(f))
	}
}

// dropEmpty removes the bucket from the queue and closes it, if it is the head
// of the queue and its entries have all been canceled. It reports whether the
// head may be another bucket now.
func (s *shard) dropEmpty(b *slot) bool {
	s.lock()
	defer s.unlock()
	if s.stopped || !b.IsOpen() || b.First(&s.arena) != 0 {
		return false
	}
	if s.queue.DropHead(b) {
		b.Close(&s.arena)
		b.cascade.open--
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
		if s.arena.Tag(i)&kind == own {
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
		if f := s.arena.Task(i); s.arena.Tag(i)&own != 0 {
			f()
		} else {
			s.handBack(s.arena.Deadline(i), f)
		}
		s.limit.release()
	}
	s.counts.HandedBack += int64(s.arena.Len())
	s.arena, s.finest = bucket.Arena{}, nil
	s.oneShots, s.entries = 0, [levels]int32{}
	s.driver.runner.quiet.tell()
	pending, s.pending = s.pending, nil
	return pending
}

// handBack is called with s.mu held, while the shard is being stopped.
func (s *shard) handBack(deadline int64, f func()) {
	s.pending = append(s.pending, Pending{s.clock.time(deadline), f})
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

// wheelOf returns the wheel of a level, and nil for levelDue. It is called with s.mu held.
func (s *shard) wheelOf(level bucket.Tag) *wheel {
	w := s.finest
	for w != nil && w.level != uint(level) {
		w = w.overflow
	}
	return w
}
