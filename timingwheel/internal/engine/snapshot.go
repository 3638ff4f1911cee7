package engine

import (
	"math"
	"slices"
	"time"
)

// snapshot is what timingwheel.Snapshot says, whose documentation says it.
type snapshot struct {
	Now                              time.Duration
	Pending, Due, Waiting, Cascading int64
	Levels                           []levelOccupancy
	Next                             []time.Time
}

type levelOccupancy struct {
	LevelStats
	Hand     int
	Occupied []int32
}

// Snapshot passes over all that is pending, and counts how many entries wait in each
// slot. It finds the next deadlines, as many as next says.
func (e *Engine) Snapshot(next int) snapshot {
	first := earliest{n: max(0, next), bound: math.MaxInt64}
	st := e.Stats()
	sn := snapshot{Now: st.Now}
	for _, l := range st.Levels {
		sn.Levels = append(sn.Levels, newLevelOccupancy(l))
	}
	var deadlines []int64 // of a chunk; they are sorted without the lock
	for i := range e.shards {
		for chunk, more := 0, true; more; chunk++ {
			deadlines, more = e.shards[i].survey(chunk, &sn, deadlines[:0])
			for _, tick := range deadlines {
				first.see(tick)
			}
		}
	}
	for _, tick := range first.sorted() {
		sn.Next = append(sn.Next, e.clock.Time(tick))
	}
	return sn
}

func newLevelOccupancy(l LevelStats) levelOccupancy {
	return levelOccupancy{
		LevelStats: l,
		Hand:       int(l.CurrentTime / l.Tick % time.Duration(l.Slots)),
		Occupied:   make([]int32, l.Slots),
	}
}

// survey counts the entries of a chunk of the arena and appends their deadlines. It
// reports false if there is no such chunk.
func (s *shard) survey(chunk int, sn *snapshot, deadlines []int64) (_ []int64, more bool) {
	s.lockLast()
	defer s.unlock()
	if chunk >= s.arena.Chunks() {
		return deadlines, false
	}
	sn.grow(s)
	for i := range s.arena.Chunk(chunk) {
		deadline := s.deadline(i)
		sn.Pending++
		deadlines = append(deadlines, deadline)
		switch level := s.arena.Tag(i) >> levelShift; level {
		case levelWaiting:
			sn.Waiting++
		case levelDue:
			sn.Due++
		default:
			if s.wheelOf(level).isCascading(deadline) {
				sn.Cascading++
			} else {
				w := s.finest.wheelFor(deadline)
				if int(w.level) >= len(sn.Levels) {
					sn.grow(s)
				}
				sn.Levels[w.level].Occupied[w.position(deadline)]++
			}
		}
	}
	return deadlines, true
}

// wheelFor returns the wheel that has the slot of a deadline, here or further up. An
// entry that was pushed back is counted there, where it will be. If that level was not
// made yet, wheelFor makes it.
func (w *wheel) wheelFor(deadline int64) *wheel {
	for !w.covers(deadline) {
		if w.overflow == nil {
			w.makeOverflow()
		}
		w = w.overflow
	}
	return w
}

// grow adds the levels that were made after stats has looked. The caller holds the lock
// of s.
func (sn *snapshot) grow(s *shard) {
	for w := s.finest; w != nil; w = w.overflow {
		if int(w.level) == len(sn.Levels) {
			var l LevelStats
			s.addLevelTo(w, &l)
			sn.Levels = append(sn.Levels, newLevelOccupancy(l))
		}
	}
}

// earliest keeps the n lowest of the numbers that it sees.
type earliest struct {
	n     int
	ticks []int64
	bound int64 // a number that is not below it does not count any more
}

// see lets ticks grow to twice of what is wanted. Then it drops the larger half.
func (e *earliest) see(tick int64) {
	if tick >= e.bound || e.n == 0 {
		return
	}
	e.ticks = append(e.ticks, tick)
	if len(e.ticks)/2 >= e.n {
		e.ticks = e.sorted()
		e.bound = e.ticks[e.n-1]
	}
}

func (e *earliest) sorted() []int64 {
	slices.Sort(e.ticks)
	return e.ticks[:min(e.n, len(e.ticks))]
}
