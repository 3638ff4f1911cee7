package engine

import (
	"math"

	"github.com/tickwheel/tickwheel/bucket"
)

// Entries that are due and cannot pass the gate wait on their shard. They are pending as
// before, in the order in which they came due.

// wait makes an entry that is due and in no bucket wait at the gate.
func (s *shard) wait(i bucket.Index) {
	s.leaveLevel(i)
	if !s.waiting.IsOpen() {
		s.waiting.Open(&s.arena, 0)
		s.waitsSince.Store(s.arena.Deadline(i))
	}
	s.waiting.Append(&s.arena, i)
	s.enterLevel(i, levelWaiting)
	s.hub.numWaiting.Add(1)
}

// takeWaiting fires up to so many entries that wait at the gate into out, and returns how many.
func (s *shard) takeWaiting(out *dueTasks, most int) (n int) {
	s.lock()
	defer s.unlock()
	if s.stopped || !s.waiting.IsOpen() {
		return 0
	}
	s.out = out
	now, before := s.clock.Now(), len(out.tasks)
	run := latenessRun{of: &s.history.lateness}
	i := s.waiting.First(&s.arena)
	for ; i != 0 && n < most; i = s.waiting.First(&s.arena) {
		n++
		s.arena.Unlink(i)
		run.record(s.arena.Deadline(i), s.clock, now)
		s.fire(i)
	}
	run.done()
	s.passed(before)
	if i != 0 {
		s.waitsSince.Store(s.arena.Deadline(i))
		return n
	}
	s.waiting.Close(&s.arena)
	s.waitsSince.Store(math.MaxInt64)
	return n
}
