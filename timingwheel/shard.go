package timingwheel

import (
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/delayqueue"
)

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

	expired *expired // the driver's: what a slice finds to be due goes here

	mu     sync.Mutex
	arena  bucket.Arena // of all entries below; guarded by mu, as is all that follows
	finest *wheel       // nil until the first entry that is not due at once

	// due holds the entries whose delay was not positive until the driver takes
	// them. Its place in the queue is the time at which the first was added, so
	// that it waits its turn among the buckets that expired before.
	due        slot
	dueCascade cascade

	stopped bool
	pending []Pending // collected by stop

	_ [64]byte // keeps the next shard's lock out of this one's cache lines
}

func (s *shard) init(c *clock, d *driver, bits uint, next *shard) {
	s.clock, s.queue, s.expired, s.bits, s.next = c, d.queue, &d.expired, bits, next
	s.turns.entered = make(chan struct{}, 1)
	s.dueCascade = cascade{shard: s, due: true}
	s.due.cascade = &s.dueCascade
}

// handle names an entry of a shard for as long as it is pending. Once the entry
// has fired or was cancelled the handle names nothing, for ever; nor does the zero
// handle ever name anything.
type handle struct {
	index      bucket.Index
	generation uint64
}

// delay says when a task is due: d after now.
type delay struct {
	now time.Duration // since the start
	d   time.Duration
}

// The methods that follow are called with s.mu held.

// add accepts a task. One of the wheel's own does not go to the executor: it is
// called under s.mu, by the driver when it is due and by stop when that comes first
// (s.stopped tells). So whatever it does is one with the state of its entry, and
// whoever cancels it under s.mu knows that it is neither running nor about to. It
// must be short, never block, and run no code of a user.
func (s *shard) add(after delay, f func(), own bool) handle {
	i, generation := s.arena.Alloc(s.clock.deadline(after.now, after.d), f, own)
	s.place(i, after)
	return handle{i, generation}
}

// cancel forgets the task of h and reports whether it was pending.
func (s *shard) cancel(h handle) bool {
	if !s.arena.Alive(h.index, h.generation) {
		return false
	}
	s.arena.Unlink(h.index)
	s.arena.Free(h.index)
	return true
}

// reset moves the task of h to a new time, behind those that are there already,
// and reports false if it is not pending any more.
func (s *shard) reset(h handle, after delay) bool {
	if !s.arena.Alive(h.index, h.generation) {
		return false
	}
	s.arena.Unlink(h.index)
	s.arena.SetDeadline(h.index, s.clock.deadline(after.now, after.d))
	s.place(h.index, after)
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
		s.queue.Offer(&s.due, s.clock.start.Add(after.now))
	}
	s.due.Append(&s.arena, i)
}

// offer puts a bucket that was just opened into the queue.
func (s *shard) offer(b *slot) {
	s.queue.Offer(b, s.clock.time(b.Expiration()))
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
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	if s.finest != nil {
		s.finest.advance(b.Expiration())
	}
	b.MoveTo(&b.cascade.ring)
	return s.flushSlice(b.cascade)
}

// flush goes on with a cascade: it adds a slice of the entries to the wheels again,
// puts those that are due into expired, and reports whether entries are left.
func (s *shard) flush(c *cascade) (more bool) {
	s.lockForDriver()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	return s.flushSlice(c)
}

// flushSlice is called with s.mu held.
func (s *shard) flushSlice(c *cascade) (more bool) {
	for range sliceLen {
		i := c.ring.First(&s.arena)
		if i == 0 {
			break
		}
		s.arena.Unlink(i)
		if !c.due && s.finest.add(i, s.arena.Deadline(i)) {
			continue
		}
		if task, own := s.arena.Free(i); own {
			task()
		} else {
			s.expired.tasks = append(s.expired.tasks, task)
		}
	}
	if c.ring.First(&s.arena) != 0 {
		return true
	}
	c.ring.Close(&s.arena)
	return false
}

// dropEmpty removes the bucket from the queue and closes it, if it is the head
// of the queue and its entries have all been cancelled. It reports whether the
// head may be another bucket now.
func (s *shard) dropEmpty(b *slot) bool {
	s.lock()
	defer s.mu.Unlock()
	if s.stopped || !b.IsOpen() || b.First(&s.arena) != 0 {
		return false
	}
	if s.queue.DropHead(b) {
		b.Close(&s.arena)
	}
	return true
}

// stop refuses what comes later, returns what is to be handed back, and lets go of
// it. The wheel's own tasks see to themselves.
func (s *shard) stop() (pending []Pending) {
	s.lock()
	defer s.mu.Unlock()
	s.stopped = true
	for i := range s.arena.All() {
		if task, own := s.arena.Task(i); own {
			task()
		} else {
			s.handBack(s.arena.Deadline(i), task)
		}
	}
	s.arena, s.finest = bucket.Arena{}, nil
	pending, s.pending = s.pending, nil
	return pending
}

// handBack is called with s.mu held, while the shard is being stopped.
func (s *shard) handBack(deadline int64, f func()) {
	s.pending = append(s.pending, Pending{s.clock.time(deadline), f})
}

func (s *shard) len() int {
	s.lock()
	defer s.mu.Unlock()
	return s.arena.Len()
}
