package engine

import (
	"container/list"
	"math"

	"github.com/tickwheel/tickwheel/bucket"
)

// A shard ends in two steps. Once it is closed, it accepts no more, and holds only what is
// to run once. Once it is stopped, it fires no more, and soon holds nothing.
//
// Each step is a mark and a pass. The mark takes the lock for a moment, and has its effect
// at once. The pass goes over all entries, in slices, and gives way to others in between.
// Until the pass has come to an entry, the entry is pending as before: a cancel in between
// wins, and the pass finds it no more. Neither does a pass miss an entry. For a shard that
// is closed moves none (tidy), and gets no other that a pass is to find.

// close makes the shard refuse what comes later.
func (s *shard) close() {
	s.lock()
	defer s.unlock()
	s.closed = true
}

// closeSlice is a slice of the pass: it goes on with the chunk of the arena, and returns
// the one that is next, and false if there is none. It calls the wheel's own tasks for
// which nobody has to wait, and takes them off the wheel.
func (s *shard) closeSlice(chunk int) (next int, more bool) {
	s.lockLast()
	defer s.unlock()
	if chunk >= s.arena.Chunks() {
		return chunk, false
	}
	n := 0
	for i := range s.arena.Chunk(chunk) {
		s.settle(i) // a Reset to a later time is refused from now on
		if s.arena.Tag(i)&OneShot != 0 {
			continue
		}
		if n++; n > SliceLen {
			return chunk, true // those before are off, and the others are settled already
		}
		s.dismiss(i)
	}
	chunk++
	return chunk, chunk < s.arena.Chunks()
}

// dismiss takes an entry off the wheel that is not going to fire, because the shard is
// closed or stopped. If it is a task of the wheel's own, it is called. The caller holds
// s.mu.
func (s *shard) dismiss(i bucket.Index) {
	switch f, tag := s.arena.Task(i), s.arena.Tag(i); {
	case isInternal(tag):
		s.dismissing = true
		s.call(f, tag) // first: it may ask for its deadline
		s.dismissing = false
	case isLazy(tag):
		s.handBack(s.arena.Deadline(i), lazyOf(f).F)
	default:
		s.handBack(s.arena.Deadline(i), f)
	}
	s.counts.HandedBack++
	_, tag := s.arena.Remove(i)
	s.uncount(tag >> levelShift)
	s.uncountOneShot(tag)
}

// stop closes the shard, and lets nothing fire any more. It returns how many one-shots are
// pending, and the contexts that remember has noted.
func (s *shard) stop() (oneShots int64, contexts *list.List) {
	s.lock()
	defer s.unlock()
	if !s.stopped {
		s.closed, s.stopped = true, true
		// Nothing waits for the executor any more. The one that serves them does not
		// look for them here.
		s.hub.numWaiting.Add(-int64(s.entries[levelWaiting]))
		s.waitsSince.Store(math.MaxInt64)
	}
	contexts, s.contexts = s.contexts, nil
	return s.oneShots, contexts
}

// stopSlice is a slice of the pass: it goes on with the chunk of the arena, gives the heir
// what is to be handed back, and returns the chunk that is next, and false if there is
// none. The memory of a chunk is given back with the last of its entries.
func (s *shard) stopSlice(chunk, most int, h heir) (next int, more bool) {
	s.lockLast()
	defer s.unlock()
	if chunk >= s.arena.Chunks() {
		s.arena, s.finest = bucket.Arena{}, nil // it is empty: the pass has come to all
		if p := s.hub.profile; p != nil {
			p.forget(s)
		}
		return chunk, false
	}
	s.heir = h
	defer func() { s.heir = nil }()
	n := 0
	for i := range s.arena.Chunk(chunk) {
		if n++; n > most {
			return chunk, true
		}
		s.settle(i)
		s.dismiss(i)
	}
	return chunk + 1, true
}

// handBack is called with s.mu held, while the shard is being stopped.
func (s *shard) handBack(deadline int64, f func()) { s.heir.Take(s.clock.Time(deadline), f) }
