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

// Close makes the shard refuse what comes later.
func (s *Shard) Close() {
	s.Lock()
	defer s.Unlock()
	s.Closed = true
}

// CloseSlice is a slice of the pass: it goes on with the chunk of the arena, and returns
// the one that is next, and false if there is none. It calls the wheel's own tasks for
// which nobody has to wait, and takes them off the wheel.
func (s *Shard) CloseSlice(chunk int) (next int, more bool) {
	s.lockLast()
	defer s.Unlock()
	if chunk >= s.Arena.Chunks() {
		return chunk, false
	}
	n := 0
	for i := range s.Arena.Chunk(chunk) {
		s.settle(i) // a Reset to a later time is refused from now on
		if s.Arena.Tag(i)&OneShot != 0 {
			continue
		}
		if n++; n > SliceLen {
			return chunk, true // those before are off, and the others are settled already
		}
		s.Dismiss(i)
	}
	chunk++
	return chunk, chunk < s.Arena.Chunks()
}

// Dismiss takes an entry off the wheel that is not going to fire, because the shard is
// closed or stopped. If it is a task of the wheel's own, it is called. The caller holds
// s.Mu.
func (s *Shard) Dismiss(i bucket.Index) {
	switch f, tag := s.Arena.Task(i), s.Arena.Tag(i); {
	case isInternal(tag):
		s.Dismissing = true
		f() // first: it may ask for its deadline
		s.Dismissing = false
	case tag&lazy != 0:
		s.handBack(s.Arena.Deadline(i), LazyOf(f).F)
	default:
		s.handBack(s.Arena.Deadline(i), f)
	}
	s.counts.HandedBack++
	s.Arena.Unlink(i)
	s.Remove(i)
}

// Stop closes the shard, and lets nothing fire any more. It returns how many one-shots are
// pending, and the contexts that remember has noted.
func (s *Shard) Stop() (oneShots int64, contexts *list.List) {
	s.Lock()
	defer s.Unlock()
	if !s.Stopped {
		s.Closed, s.Stopped = true, true
		// Nothing waits for the executor any more. Who serves those that wait does not
		// look for them here.
		s.Hub.Waiting.Add(-int64(s.Entries[LevelWaiting]))
		s.WaitsSince.Store(math.MaxInt64)
	}
	contexts, s.Contexts = s.Contexts, nil
	return s.OneShots, contexts
}

// StopSlice is a slice of the pass: it goes on with the chunk of the arena, gives the heir
// what is to be handed back, and returns the chunk that is next, and false if there is
// none. The memory of a chunk is given back with the last of its entries.
func (s *Shard) StopSlice(chunk, most int, h heir) (next int, more bool) {
	s.lockLast()
	defer s.Unlock()
	if chunk >= s.Arena.Chunks() {
		s.Arena, s.Finest = bucket.Arena{}, nil // it is empty: the pass has come to all
		return chunk, false
	}
	s.Heir = h
	defer func() { s.Heir = nil }()
	n := 0
	for i := range s.Arena.Chunk(chunk) {
		if n++; n > most {
			return chunk, true
		}
		s.settle(i)
		s.Dismiss(i)
	}
	return chunk + 1, true
}

// handBack is called with s.Mu held, while the shard is being stopped.
func (s *Shard) handBack(deadline int64, f func()) { s.Heir.Take(s.Clock.Time(deadline), f) }
