package engine

import (
	"container/list"
	"math"
	"sync"
	"sync/atomic"

	"github.com/tickwheel/tickwheel/bucket"
)

// Shard is one hierarchy of wheels with the arena of its entries and one lock around
// both. Under that lock every operation is a few plain instructions. The ring that an
// entry is in is its whole state. So there are no atomics on entries and no retries, but
// for the deadline of a LazyTask.
//
// Lock order: the turnstile (see Fairness), shard, queue.
type Shard struct {
	Hub   *Hub
	Clock *clock // the hub's, as is limit
	Limit *Limit
	id    int    // its place among the shards
	Next  *Shard // the ring of all shards, see Engine.lock

	Fairness Fairness // who gets mu next

	Mu     sync.Mutex
	Arena  bucket.Arena // of all entries below; guarded by mu, as is all that follows
	Finest *Wheel       // nil until the first entry that is not due at once

	counts   Counts        // but for Pending
	OneShots int64         // pending entries whose tag has that bit
	Entries  [Levels]int32 // pending, by the level of their tag
	History  *history      // nil until the first flush

	// due holds the entries whose delay was not positive until the driver takes
	// them. Its place in the queue is the time at which the first was added, so
	// that it waits its turn among the buckets that expired before.
	Due        Slot
	DueCascade Cascade

	// waiting holds the entries that are due and wait at the gate, in the order in which
	// they came due. Whoever opens the gate takes them from here (takeWaiting).
	Waiting    bucket.Bucket
	WaitsSince atomic.Int64 // deadline of the first entry in waiting, or earlier; read without mu

	out *DueTasks // where what is due goes, set by whoever takes it out of its bucket

	Closed     bool // accepts no more
	Stopped    bool // and fires no more
	Heir       heir // of stopSlice; nil but in a slice
	canceling  bool // cancel is calling the task of the entry that it has removed
	Dismissing bool // dismiss is calling the task of the entry that it will remove

	Contexts *list.List // of the context.CancelCauseFunc of each Future that runs; nil: none, or stopped

	_ [64]byte // keeps the next shard's lock out of this one's cache lines
}

func (s *Shard) init(h *Hub, id int, next *Shard) {
	s.Hub, s.Clock, s.Limit, s.id, s.Next = h, h.Clock, h.limit, id, next
	s.DueCascade = Cascade{shard: id, due: true}
	s.Due.Cascade = &s.DueCascade
	s.WaitsSince.Store(math.MaxInt64)
}

// Ref names an entry of a shard while it is pending. Once the entry has fired or was
// canceled, the handle names nothing, for ever. The zero handle never names anything.
type Ref struct {
	index      bucket.Index
	generation uint64
}

// The caller of the methods that follow holds s.Mu.

// Accept adds a one-shot that is new, unless the shard is closed or the limit reached.
func (s *Shard) Accept(after Delay, f func(), kind bucket.Tag) (Ref, error) {
	if s.Closed || s.Limit != nil || s.Arena.IsFull() {
		if err := s.refuse(1); err != nil {
			return Ref{}, err
		}
	}
	return s.Add(after, f, kind), nil
}

// refuse takes n places under the limit, or none, and returns why not.
func (s *Shard) refuse(n int64) error {
	if s.Closed {
		return ErrStopped
	}
	if s.Arena.IsFull() || !s.Limit.Take(n) {
		s.counts.Rejected += n
		return ErrTooManyPending
	}
	return nil
}

// Add adds a task. The shard must not be closed, and a one-shot must have its place
// under the limit.
func (s *Shard) Add(after Delay, f func(), kind bucket.Tag) Ref {
	i, generation := s.Arena.Alloc(s.Clock.Deadline(after.Now, after.D), f, kind)
	s.counts.Scheduled++
	if kind&OneShot != 0 {
		s.OneShots++
	}
	s.place(i, after)
	return Ref{i, generation}
}

// Remove ends an entry that is in no bucket. Nothing counts it as pending any more.
func (s *Shard) Remove(i bucket.Index) (f func(), kind bucket.Tag) {
	f, tag := s.Arena.Free(i)
	s.leaveLevel(tag >> levelShift)
	if tag&OneShot != 0 {
		s.Limit.release()
		if s.OneShots--; s.OneShots == 0 && s.Closed {
			s.Hub.runner.Ended.Tell()
		}
	}
	return f, tag
}

// enter and leave count an entry on the level whose bucket it is put into, or taken out
// of.
func (s *Shard) enter(i bucket.Index, level uint) {
	s.Arena.SetTag(i, s.Arena.Tag(i)&kind|bucket.Tag(level<<levelShift))
	s.Entries[level]++
}

func (s *Shard) leave(i bucket.Index) { s.leaveLevel(s.Arena.Tag(i) >> levelShift) }

func (s *Shard) leaveLevel(level bucket.Tag) {
	s.Entries[level]--
	if level == LevelWaiting && !s.Stopped {
		s.Hub.Waiting.Add(-1)
	}
}

// IsPending reports whether h names an entry.
func (s *Shard) IsPending(h Ref) bool {
	_, ok := s.Arena.Find(h.index, h.generation)
	return ok
}

// Cancel forgets the task of h and reports whether it was pending.
func (s *Shard) Cancel(h Ref) bool {
	i := h.index
	if !s.Arena.Alive(i, h.generation) {
		var ok bool
		if i, ok = s.Arena.Moved(h.generation); !ok {
			return false
		}
	}
	s.Arena.Unlink(i)
	s.counts.Canceled++
	switch f, tag := s.Remove(i); tag & kind {
	case Internal | OneShot:
		s.canceling = true
		f()
		s.canceling = false
	case OneShot | lazy:
		_, pushes, _ := LazyOf(f).GiveBack()
		s.counts.Reset += pushes
	}
	s.tidy(1)
	return true
}

// tidy has the arena move entries together. work is the number of entries that the caller
// has just worked on. It does nothing once the shard is closed. For then there are passes
// over all entries, and what is canceled in between must not move the others.
func (s *Shard) tidy(work int) {
	if s.Arena.IsSparse() && !s.Closed {
		s.Arena.Tidy(work)
	}
}

// reset moves the task of h to a new time. It reports false if the task is not pending,
// if the shard is closed and the new time is later than the old one (see Shutdown), or if
// the shard is stopped.
//
// A reset to a later time is lazy: it writes the deadline and leaves the entry where it
// is. The entry still waits in a bucket that expires at or before its own tick, which is
// all that the wheel needs; the flush of that bucket adds it again. So a timer that is
// pushed back all the time moves once for each bucket that it waits in, and not once for
// each reset. For 100 k timers in random order a reset costs 0.61 of one that moves the
// entry. The price: entries that were reset fire anywhere among those of their tick, and
// a bucket whose entries were all pushed back wakes the driver once. If the new time is
// beyond the last level, the flush makes the level, or a Snapshot that comes first.
func (s *Shard) reset(h Ref, after Delay) bool {
	i, ok := s.Arena.Find(h.index, h.generation)
	return ok && s.move(i, after)
}

// move is reset of an entry that is pending.
func (s *Shard) move(i bucket.Index, after Delay) bool {
	deadline, old := s.Clock.Deadline(after.Now, after.D), s.Arena.Deadline(i)
	if s.Closed && (deadline > old || s.Stopped) {
		return false
	}
	s.counts.Reset++
	if deadline >= old && after.D > 0 && s.canStay(i) {
		s.Arena.SetDeadline(i, deadline)
		return true
	}
	s.Arena.Unlink(i)
	s.leave(i)
	s.Arena.SetDeadline(i, deadline)
	s.place(i, after)
	return true
}

// resetLazy is reset for the entry of a LazyTask, which keeps its deadline from then on.
// AfterFunc does not begin with that. Then every Timer would be on the heap, also one that
// nobody keeps, and every flush would have to look at it.
func (s *Shard) resetLazy(h Ref, after Delay, l *LazyTask) bool {
	i, ok := s.Arena.Find(h.index, h.generation)
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
func (s *Shard) makeLazy(i bucket.Index, l *LazyTask) {
	if tag := s.Arena.Tag(i); tag&lazy == 0 {
		s.Arena.SetTag(i, tag|lazy)
		s.Arena.SetTask(i, Disguise(l))
	}
	if s.canStay(i) && !s.Closed {
		l.Keep(s.Arena.Deadline(i))
	}
}

// settle gives the deadline back to the entry, so that nobody changes it without the lock.
func (s *Shard) settle(i bucket.Index) {
	if s.Arena.Tag(i)&lazy == 0 {
		return
	}
	if deadline, pushes, kept := LazyOf(s.Arena.Task(i)).GiveBack(); kept {
		s.Arena.SetDeadline(i, deadline)
		s.counts.Reset += pushes
	}
}

// Deadline returns the deadline of a living entry.
func (s *Shard) Deadline(i bucket.Index) int64 {
	if s.Arena.Tag(i)&lazy != 0 {
		if deadline, kept := LazyOf(s.Arena.Task(i)).Deadline(); kept {
			return deadline
		}
	}
	return s.Arena.Deadline(i)
}

// canStay reports whether a flush of the entry's bucket will look at its deadline.
func (s *Shard) canStay(i bucket.Index) bool { return s.Arena.Tag(i)>>levelShift < LevelWaiting }

// place puts an entry that is in no bucket where its delay says. It is due at
// once when the delay is not positive, or when the driver has flushed the
// deadline's bucket since the caller read the clock.
func (s *Shard) place(i bucket.Index, after Delay) {
	if after.D > 0 {
		if s.Finest == nil {
			s.Finest = newWheel(s, &s.Arena, s.id, s.Hub.Bits, 0, 0)
		}
		if level, ok := s.Finest.add(i, s.Arena.Deadline(i)); ok {
			s.enter(i, level)
			return
		}
	}
	if !s.Due.IsOpen() {
		s.Due.Open(&s.Arena, 0)
		s.Hub.offer(&s.Due, s.Clock.Start.Add(after.Now))
	}
	s.Due.Append(&s.Arena, i)
	s.enter(i, LevelDue)
}

// opened implements wheelOwner.
func (s *Shard) opened(b *Slot) { s.Hub.offer(b, s.Clock.Time(b.Expiration())) }

func (s *Shard) Len() int {
	s.Lock()
	defer s.Unlock()
	return s.Arena.Len()
}

// hasTasks reports whether functions are pending that are to run once.
func (s *Shard) hasTasks() bool {
	s.Lock()
	defer s.Unlock()
	return s.OneShots > 0
}

// wheelOf returns the wheel of a level, and nil for the levels that have none. It is
// called with s.Mu held.
func (s *Shard) wheelOf(level bucket.Tag) *Wheel {
	w := s.Finest
	for w != nil && w.Level != uint(level) {
		w = w.Overflow
	}
	return w
}
