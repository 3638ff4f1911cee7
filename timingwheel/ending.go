package timingwheel

import (
	"container/list"
	"math"

	"github.com/tickwheel/tickwheel/bucket"
)

// A shard ends in two steps. When it is closed, it accepts no more. When it is stopped,
// it holds no more.

// close makes the shard refuse what comes later. It calls the wheel's own tasks for which
// nobody has to wait, and takes them off the wheel.
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
		s.settle(i) // a Reset to a later time is refused from now on
		if s.arena.Tag(i)&oneShot == 0 {
			s.arena.Task(i)()
			s.arena.Unlink(i)
			s.remove(i)
			s.counts.HandedBack++
		}
	}
}

// stop closes the shard, and lets go of it. It returns what is to be handed back, and the
// contexts that remember has noted.
func (s *shard) stop() (pending []Pending, contexts *list.List) {
	s.lock()
	defer s.unlock()
	s.closeLocked()
	s.stopped = true
	for i := range s.arena.All() {
		switch f, tag := s.arena.Task(i), s.arena.Tag(i); {
		case isOwn(tag):
			f()
		case tag&lazy != 0:
			s.handBack(s.arena.Deadline(i), lazyOf(f).f)
		default:
			s.handBack(s.arena.Deadline(i), f)
		}
		s.limit.release()
	}
	s.counts.HandedBack += int64(s.arena.Len())
	s.driver.waiting.Add(-int64(s.entries[levelWaiting]))
	s.arena, s.finest = bucket.Arena{}, nil
	s.oneShots, s.entries = 0, [levels]int32{}
	s.waitsSince.Store(math.MaxInt64)
	s.driver.runner.ended.tell()
	pending, s.pending = s.pending, nil
	contexts, s.contexts = s.contexts, nil
	return pending, contexts
}

// handBack is called with s.mu held, while the shard is being stopped.
func (s *shard) handBack(deadline int64, f func()) {
	s.pending = append(s.pending, Pending{s.clock.time(deadline), f})
}
