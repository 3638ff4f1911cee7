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
func (w *testWheel) verifySnapshot(t testing.TB, next int) Snapshot {
	t.Helper()
	got := w.Snapshot(next)
	want := Snapshot{Now: got.Now}
	for _, l := range w.Stats().Levels {
		want.Levels = append(want.Levels, levelOccupancy{LevelStats: l, Occupied: make([]int32, l.Slots)})
	}
	var deadlines []time.Time
	furthest := make([]int64, len(want.Levels))
	count := func(s *Shard) {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		walk := func(b *bucket.Bucket) (n int64) {
			for i := range b.All(&s.Arena) {
				deadlines = append(deadlines, s.Clock.Time(s.Deadline(i)))
				n++
			}
			return n
		}
		// pushedBack counts those that were reset to a tick that is not the bucket's, and counts
		// them where they will be.
		pushedBack := func(l *Wheel, b *bucket.Bucket) (n int64) {
			for i := range b.All(&s.Arena) {
				deadline := s.Deadline(i)
				if deadline&^(l.Tick-1) == b.Expiration() {
					continue
				}
				n++
				for l := s.Finest; ; l = l.Overflow {
					if width := l.Shift + l.Bits; deadline>>width == l.CurrentTime>>width {
						want.Levels[l.Level].Occupied[deadline>>l.Shift&int64(len(l.Slots)-1)]++
						break
					}
				}
			}
			return n
		}
		want.Due += walk(&s.Due.Bucket) + walk(&s.DueCascade.Ring)
		want.Waiting += walk(&s.Waiting)
		for l := s.Finest; l != nil; l = l.Overflow {
			want.Cascading += walk(&l.Cascade.Ring) - pushedBack(l, &l.Cascade.Ring)
			for n := range l.Slots {
				b := &l.Slots[n].Bucket
				want.Levels[l.Level].Occupied[n] += int32(walk(b) - pushedBack(l, b))
			}
			if now := l.CurrentTime; now >= furthest[l.Level] {
				furthest[l.Level] = now
				want.Levels[l.Level].Hand = int(now>>l.Shift) & (len(l.Slots) - 1)
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
	var sn Snapshot
	_, more := w.shards[0].Survey(0, &sn, nil)
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
