package engine

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/bucket"
)

// verifySnapshot compares Snapshot with a walk of the real structure, and returns it. The
// driver must be asleep, or the drive manual, and no call under way.
func (w *testWheel) verifySnapshot(t testing.TB, next int) snapshot {
	t.Helper()
	got := w.Snapshot(next)
	want := snapshot{Now: got.Now}
	for _, l := range w.Stats().Levels {
		want.Levels = append(want.Levels, levelOccupancy{LevelStats: l, Occupied: make([]int32, l.Slots)})
	}
	var deadlines []time.Time
	furthest := make([]int64, len(want.Levels))
	count := func(s *shard) {
		s.mu.Lock()
		defer s.mu.Unlock()
		walk := func(b *bucket.Bucket) (n int64) {
			for i := range b.All(&s.arena) {
				deadlines = append(deadlines, s.clock.Time(s.deadline(i)))
				n++
			}
			return n
		}
		// pushedBack counts those that were reset to a tick that is not the bucket's, and counts
		// them where they will be.
		pushedBack := func(l *wheel, b *bucket.Bucket) (n int64) {
			for i := range b.All(&s.arena) {
				deadline := s.deadline(i)
				if deadline&^(l.tick-1) == b.Expiration() {
					continue
				}
				n++
				for l := s.finest; ; l = l.overflow {
					if width := l.shift + l.bits; deadline>>width == l.currentTime>>width {
						want.Levels[l.level].Occupied[deadline>>l.shift&int64(l.last)]++
						break
					}
				}
			}
			return n
		}
		want.Due += walk(&s.overdue.Bucket) + walk(&s.overdueCascade.ring)
		want.Waiting += walk(&s.waiting)
		for l := s.finest; l != nil; l = l.overflow {
			want.Cascading += walk(&l.cascade.ring) - pushedBack(l, &l.cascade.ring)
			for n, b := range l.slots() {
				want.Levels[l.level].Occupied[n] += int32(walk(&b.Bucket) - pushedBack(l, &b.Bucket))
			}
			if now := l.currentTime; now >= furthest[l.level] {
				furthest[l.level] = now
				want.Levels[l.level].Hand = int(now>>l.shift) & l.last
			}
		}
	}
	for i := range w.shards {
		count(&w.shards[i])
	}
	want.Pending = int64(len(deadlines))
	slices.SortFunc(deadlines, time.Time.Compare)
	if n := min(max(0, next), len(deadlines)); n > 0 {
		want.Next = deadlines[:n]
	}
	require.Equal(t, want, got)
	for _, l := range got.Levels {
		require.True(t, len(w.shards) > 1 || !slices.ContainsFunc(l.Occupied[:l.Hand+1], positive), "up to the hand none: %+v", l)
	}
	return got
}

func positive(n int32) bool { return n > 0 }

// The hand is at currentTime, nothing waits up to it, and what is due is beside.
func TestSnapshotByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManualWheel(withWheelSize(8), withShards(1))
		defer w.Stop()
		for _, ms := range []time.Duration{0, -5, 1, 3, 3, 7, 8, 20, 100} {
			w.AfterFunc(ms*time.Millisecond, noop)
		}
		sn := w.verifySnapshot(t, 2)
		require.EqualValues(t, 9, sn.Pending)
		require.EqualValues(t, 2, sn.Due)
		require.Equal(t, []int32{0, 1, 0, 2, 0, 0, 0, 1}, sn.Levels[0].Occupied)
		require.Equal(t, []int32{0, 1, 1, 0, 0, 0, 0, 0}, sn.Levels[1].Occupied)
		require.Equal(t, []int32{0, 1, 0, 0, 0, 0, 0, 0}, sn.Levels[2].Occupied)

		time.Sleep(3 * time.Millisecond)
		w.Drive(0)
		sn = w.verifySnapshot(t, 2)
		require.Zero(t, sn.Due)
		require.Equal(t, 3, sn.Levels[0].Hand)
		require.Equal(t, []int32{0, 0, 0, 0, 0, 0, 0, 1}, sn.Levels[0].Occupied)
		require.Equal(t, []time.Duration{4 * time.Millisecond, 5 * time.Millisecond},
			[]time.Duration{time.Until(sn.Next[0]), time.Until(sn.Next[1])})
	})
}

// Levels that are made after Stats has looked are there as well.
func TestSnapshotOfALevelThatIsNew(t *testing.T) {
	w := newManualWheel(withShards(1))
	defer w.Stop()
	w.AfterFunc(time.Hour, noop)
	var sn snapshot
	_, more := w.shards[0].survey(0, &sn, nil)
	require.True(t, more)
	whole := w.Snapshot(0)
	whole.Now = 0
	require.Len(t, sn.Levels, 3)
	require.Equal(t, whole, sn)
}

func TestSnapshotOfSoManyNext(t *testing.T) {
	r := newRandForTest(t)
	w := newManualWheel(withShards(4))
	defer w.Stop()
	for i := range 5000 {
		addFunction(&w.shards[i%4], time.Duration(1+r.Int64N(1<<(20+r.IntN(40)))), noop)
	}
	for _, next := range []int{math.MinInt, -1, 0, 1, 2, 100, 2499, 2500, 2501, 4999, 5000, 5001, math.MaxInt32, math.MaxInt} {
		w.verifySnapshot(t, next)
	}
}
