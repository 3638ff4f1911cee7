package timingwheel

import (
	"math"
	"slices"
	"time"
)

// Snapshot is what [TimingWheel.Snapshot] returns: what is pending, and where. It encodes
// to JSON as it is; durations are nanoseconds then.
type Snapshot struct {
	Now       time.Duration    // since the wheel was made
	Pending   int64            // the sum of Due, Waiting, Cascading and all of Occupied
	Due       int64            // due at once, and not yet handed on by the driver
	Waiting   int64            // as in [Stats]
	Cascading int64            // in buckets of the levels that are being flushed
	Levels    []LevelOccupancy // of all shards together, the finest first
	Next      []time.Time      // the next deadlines, rounded up to a tick, the earliest first
}

// LevelOccupancy is a level, and how much each of its slots holds.
type LevelOccupancy struct {
	LevelStats
	Hand int // the slot of CurrentTime

	// Occupied has the number of entries of each slot. An entry that was pushed back is
	// counted in the slot of its new deadline, also while it waits in an earlier one. Up to the Hand there are none, but
	// for what has expired and waits to be flushed: a level holds what is due before its
	// next revolution, and the levels above have the rest.
	Occupied []int32
}

// Snapshot returns how many entries wait in which slot, and the next so many deadlines;
// none if next is not positive. It is for debugging. It passes over all that is pending,
// a few nanoseconds for each (more where next is large, since those are sorted), but
// gives way after every 1024 to whoever waits for the lock, so that it holds up nobody.
// What is added, fires or moves to a finer level meanwhile may be counted or not; each
// entry is counted once at most, so that Pending is the sum of Due, Waiting, Cascading and all of
// Occupied. (A timer that fires and is set anew is another entry then.) On a stopped
// wheel all but Now is zero. It may be called at any time, and by several goroutines.
func (w *TimingWheel) Snapshot(next int) Snapshot {
	first := earliest{n: max(0, next), bound: math.MaxInt64}
	st := w.Stats()
	sn := Snapshot{Now: st.Now}
	for _, l := range st.Levels {
		sn.Levels = append(sn.Levels, newLevelOccupancy(l))
	}
	var deadlines []int64 // of a chunk; sorting them has no place under the lock
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

// survey counts the entries of a chunk of the arena, appends their deadlines, and reports
// false if there is no such chunk.
func (s *shard) survey(chunk int, sn *Snapshot, deadlines []int64) (_ []int64, more bool) {
	s.lockLast()
	defer s.unlock()
	if chunk >= s.arena.Chunks() {
		return deadlines, false
	}
	sn.grow(s.finest)
	for i := range s.arena.Chunk(chunk) {
		deadline := s.arena.Deadline(i)
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
				sn.Levels[w.level].Occupied[w.position(deadline)]++
			}
		}
	}
	return deadlines, true
}

// wheelFor returns the wheel that has the slot of a deadline, here or further up. An entry
// that was pushed back is counted there, where it will be.
func (w *wheel) wheelFor(deadline int64) *wheel {
	for !w.covers(deadline) {
		w = w.overflow
	}
	return w
}

// grow adds the levels that were made since Stats looked. It is called with the lock of the
// shard of w held.
func (sn *Snapshot) grow(w *wheel) {
	for ; w != nil; w = w.overflow {
		if int(w.level) == len(sn.Levels) {
			var l LevelStats
			w.addTo(&l)
			sn.Levels = append(sn.Levels, newLevelOccupancy(l))
		}
	}
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
	if len(e.ticks)/2 >= e.n {
		e.ticks = e.sorted()
		e.bound = e.ticks[e.n-1]
	}
}

func (e *earliest) sorted() []int64 {
	slices.Sort(e.ticks)
	return e.ticks[:min(e.n, len(e.ticks))]
}
