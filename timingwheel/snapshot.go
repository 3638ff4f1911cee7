package timingwheel

import (
	"math"
	"slices"
	"time"
)

// Snapshot is what [TimingWheel.Snapshot] returns: what is pending, and where.
type Snapshot struct {
	Now       time.Duration // since the wheel was made
	Pending   int64
	Due       int64            // due at once, and not yet taken by the driver
	Cascading int64            // in buckets that are being flushed
	Levels    []LevelOccupancy // of all shards together, the finest first
	Next      []time.Time      // the next deadlines, the earliest first
}

// LevelOccupancy is a level, and how much each of its slots holds.
type LevelOccupancy struct {
	LevelStats
	Hand     int     // the slot of CurrentTime
	Occupied []int32 // entries by slot. Slots of the past hold what is a revolution ahead
}

// Snapshot returns how many entries wait in which slot, and the next so many deadlines;
// none if next is not positive. It is for debugging. It passes over all that is pending, a few
// nanoseconds for each, but gives way after every 1024, so that it holds up nobody. What is
// added, fires or moves to a finer level meanwhile may be counted or not, and nothing is
// counted twice.
func (w *TimingWheel) Snapshot(next int) Snapshot {
	first := earliest{n: min(max(0, next), math.MaxInt32), bound: math.MaxInt64}
	sn := Snapshot{Now: w.clock.now()}
	for _, l := range w.Stats().Levels {
		sn.Levels = append(sn.Levels, LevelOccupancy{
			LevelStats: l,
			Hand:       int(l.CurrentTime / l.Tick % time.Duration(l.Slots)),
			Occupied:   make([]int32, l.Slots),
		})
	}
	for i := range w.shards {
		for chunk := 0; w.shards[i].survey(chunk, &sn, &first); chunk++ {
		}
	}
	for _, tick := range first.sorted() {
		sn.Next = append(sn.Next, w.clock.time(tick))
	}
	return sn
}

// survey adds the entries of a chunk of the arena, and reports false if there is no such
// chunk.
func (s *shard) survey(chunk int, sn *Snapshot, first *earliest) bool {
	s.lock()
	defer s.mu.Unlock()
	if chunk >= s.arena.Chunks() {
		return false
	}
	for i := range s.arena.Chunk(chunk) {
		deadline, level := s.arena.Deadline(i), s.arena.Tag(i)>>levelShift
		sn.Pending++
		first.add(deadline)
		switch w := s.wheelOf(level); {
		case w == nil:
			sn.Due++
		case w.isCascading(deadline):
			sn.Cascading++
		case int(level) < len(sn.Levels): // or the level is new
			sn.Levels[level].Occupied[w.position(deadline)]++
		}
	}
	return true
}

// earliest keeps the n lowest of the numbers that it is given.
type earliest struct {
	n     int
	ticks []int64
	bound int64 // what is not below does not count any more
}

// add lets ticks grow to twice of what is wanted before it throws the half away.
func (e *earliest) add(tick int64) {
	if tick >= e.bound || e.n == 0 {
		return
	}
	e.ticks = append(e.ticks, tick)
	if len(e.ticks) >= 2*e.n {
		e.ticks = e.sorted()
		e.bound = e.ticks[e.n-1]
	}
}

func (e *earliest) sorted() []int64 {
	slices.Sort(e.ticks)
	return e.ticks[:min(e.n, len(e.ticks))]
}
