package timingwheel

import (
	"math"
	"slices"
	"time"
)

// Snapshot is what [TimingWheel.Snapshot] returns: what is pending, and where. It encodes
// to JSON; durations are nanoseconds there.
type Snapshot struct {
	Now       time.Duration    // since the wheel was made
	Pending   int64            // the sum of Due, Waiting, Cascading and all of Occupied
	Due       int64            // due at once, and not yet handed on by the driver
	Waiting   int64            // as in [Stats]
	Cascading int64            // in buckets of the levels, being flushed
	Levels    []LevelOccupancy // of all shards together, the finest first
	Next      []time.Time      // the next deadlines, rounded up to a tick, the earliest first
}

// LevelOccupancy describes a level and how much each of its slots holds.
type LevelOccupancy struct {
	LevelStats
	Hand int // number of the slot of CurrentTime

	// Occupied has the number of entries of each slot. A level holds what is due before
	// its next revolution, and the coarser levels have the rest. So the slots up to the
	// Hand are empty, except for entries that have expired and wait to be flushed. An
	// entry that was pushed back is counted in the slot of its new deadline, also while
	// it waits in an earlier one.
	Occupied []int32
}

// Snapshot returns how many entries wait in each slot, and the next deadlines, as many as
// next says. It returns no deadlines if next is not positive. It is for debugging. It may
// be called at any time, and by several goroutines. On a stopped wheel all but Now is
// zero.
//
// It passes over all that is pending, at a few nanoseconds each. (With a large next it
// takes more, since the deadlines are sorted.) After every 1024 entries it gives way to
// those who wait for the lock, so it holds nobody up. What is added, fires or moves to a
// finer level meanwhile may be counted or not. The same is true of what the wheel moves
// in memory because it has become much emptier. Each entry is counted at most once, so
// Pending is the sum of Due, Waiting, Cascading and all of Occupied. (A timer that fires
// and is armed again is another entry then.)
func (w *TimingWheel) Snapshot(next int) Snapshot {
	first := earliest{n: max(0, next), bound: math.MaxInt64}
	st := w.Stats()
	sn := Snapshot{Now: st.Now}
	for _, l := range st.Levels {
		sn.Levels = append(sn.Levels, newLevelOccupancy(l))
	}
	var deadlines []int64 // of a chunk; they are sorted without the lock
	for i := range w.shards {
		for chunk, more := 0, true; more; chunk++ {
			deadlines, more = w.shards[i].survey(chunk, &sn, deadlines[:0])
			for _, tick := range deadlines {
				first.add(tick)
			}
		}
	}
	for _, tick := range first.sorted() {
		sn.Next = append(sn.Next, w.clock.time(tick))
	}
	return sn
}

func newLevelOccupancy(l LevelStats) LevelOccupancy {
	return LevelOccupancy{
		LevelStats: l,
		Hand:       int(l.CurrentTime / l.Tick % time.Duration(l.Slots)),
		Occupied:   make([]int32, l.Slots),
	}
}

// survey counts the entries of a chunk of the arena and appends their deadlines. It
// reports false if there is no such chunk.
func (s *shard) survey(chunk int, sn *Snapshot, deadlines []int64) (_ []int64, more bool) {
	s.lockLast()
	defer s.unlock()
	if chunk >= s.arena.Chunks() {
		return deadlines, false
	}
	sn.grow(s.finest)
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
					sn.grow(s.finest)
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

// grow adds the levels that were made after Stats has looked. The caller holds the lock
// of the shard of w.
func (sn *Snapshot) grow(w *wheel) {
	for ; w != nil; w = w.overflow {
		if int(w.level) == len(sn.Levels) {
			var l LevelStats
			w.addTo(&l)
			sn.Levels = append(sn.Levels, newLevelOccupancy(l))
		}
	}
}

// earliest keeps the n lowest of the numbers that are added to it.
type earliest struct {
	n     int
	ticks []int64
	bound int64 // a number that is not below it does not count any more
}

// add lets ticks grow to twice of what is wanted. Then it drops the larger half.
func (e *earliest) add(tick int64) {
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
