package engine

import (
	"math"

	"github.com/tickwheel/tickwheel/bucket"
)

// Entries that are due and cannot pass the gate wait on their shard: pending as before,
// in the order in which they came due.

// held makes an entry wait if another waits already, or if the gate says so, and reports
// whether the entry waits. It is called with s.Mu held.
func (s *Shard) held(i bucket.Index) bool {
	if s.Waiting.IsOpen() && s.Waiting.First(&s.Arena) != 0 {
		s.Wait(i)
		return true
	}
	return s.Hub.gate.Hold(s, i)
}

// Wait makes an entry that is due and in no bucket wait at the gate.
func (s *Shard) Wait(i bucket.Index) {
	s.leave(i)
	if !s.Waiting.IsOpen() {
		s.Waiting.Open(&s.Arena, 0)
		s.WaitsSince.Store(s.Arena.Deadline(i))
	}
	s.Waiting.Append(&s.Arena, i)
	s.enter(i, LevelWaiting)
	s.Hub.Waiting.Add(1)
}

// TakeWaiting fires entries that wait at the gate into out, as long as acquire returns
// true.
func (s *Shard) TakeWaiting(out *DueTasks, acquire func() bool) {
	s.Lock()
	defer s.Unlock()
	if s.Stopped || !s.Waiting.IsOpen() {
		return
	}
	s.out = out
	now, before := s.Clock.Now(), len(out.Tasks)
	run := LatenessRun{Of: &s.History.lateness}
	i := s.Waiting.First(&s.Arena)
	for ; i != 0 && acquire(); i = s.Waiting.First(&s.Arena) {
		s.Arena.Unlink(i)
		run.Record(s.Arena.Deadline(i), s.Clock, now)
		s.fire(i)
	}
	run.End()
	s.passed(before)
	if i != 0 {
		s.WaitsSince.Store(s.Arena.Deadline(i))
		return
	}
	s.Waiting.Close(&s.Arena)
	s.WaitsSince.Store(math.MaxInt64)
}
