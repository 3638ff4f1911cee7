package timingwheel

import (
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// verifySnapshot compares Snapshot with a walk of the real structure, and returns it. The
// driver must be asleep, or the drive manual, and no call under way.
func (w *TimingWheel) verifySnapshot(t testing.TB, next int) Snapshot {
	t.Helper()
	got := w.Snapshot(next)
	want := Snapshot{Now: got.Now}
	for _, l := range w.Stats().Levels {
		want.Levels = append(want.Levels, LevelOccupancy{LevelStats: l, Occupied: make([]int32, l.Slots)})
	}
	var deadlines []time.Time
	furthest := make([]int64, len(want.Levels))
	count := func(s *engine.Shard) {
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
		pushedBack := func(l *engine.Wheel, b *bucket.Bucket) (n int64) {
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
	for i := range w.engine().Shards() {
		count(&w.engine().Shards()[i])
	}
	want.Pending = int64(len(deadlines))
	slices.SortFunc(deadlines, time.Time.Compare)
	if n := min(max(0, next), len(deadlines)); n > 0 {
		want.Next = deadlines[:n]
	}
	require.Equal(t, want, got)
	for _, l := range got.Levels {
		require.True(t, len(w.engine().Shards()) > 1 || !slices.ContainsFunc(l.Occupied[:l.Hand+1], positive), "up to the hand none: %+v", l)
	}
	checkSnapshot(t, got, next)
	return got
}

func positive(n int32) bool { return n > 0 }

// checkSnapshot checks what is true of a Snapshot at any time, whatever is under way.
func checkSnapshot(t testing.TB, sn Snapshot, next int) {
	t.Helper()
	sum := sn.Due + sn.Waiting + sn.Cascading
	for i, l := range sn.Levels {
		for _, n := range l.Occupied {
			sum += int64(n)
		}
		if l.Hand < 0 || l.Hand >= l.Slots || len(l.Occupied) != l.Slots {
			t.Errorf("level %d: %d slots, hand at %d of %d", i, len(l.Occupied), l.Hand, l.Slots)
		}
	}
	if sum != sn.Pending {
		t.Errorf("%d pending, %d of them somewhere", sn.Pending, sum)
	}
	if len(sn.Next) != int(min(int64(max(0, next)), sn.Pending)) || !slices.IsSortedFunc(sn.Next, time.Time.Compare) {
		t.Errorf("%d pending, the next: %v", sn.Pending, sn.Next)
	}
}

func TestSnapshotOfAnUnusedAndOfAStoppedWheel(t *testing.T) {
	w := New()
	unused := w.Snapshot(10)
	require.Equal(t, Snapshot{Now: unused.Now}, unused)
	w.AfterFunc(time.Hour, noop)
	require.EqualValues(t, 1, w.Snapshot(10).Pending)
	w.Stop()
	stopped := w.Snapshot(10)
	require.Greater(t, stopped.Now, unused.Now)
	require.Equal(t, Snapshot{Now: stopped.Now}, stopped)
}

// The hand is at currentTime, nothing waits up to it, and what is due is beside.
func TestSnapshotByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManual(WithWheelSize(8), WithShards(1))
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
	w := newManual(WithShards(1))
	defer w.Stop()
	w.AfterFunc(time.Hour, noop)
	var sn engine.Snapshot
	_, more := w.engine().Shards()[0].Survey(0, &sn, nil)
	require.True(t, more)
	whole := w.engine().Snapshot(0)
	whole.Now = 0
	require.Len(t, sn.Levels, 3)
	require.Equal(t, whole, sn)
}

func TestSnapshotOfSoManyNext(t *testing.T) {
	r := newRandForTest(t)
	w := newManual(WithShards(4))
	defer w.Stop()
	for i := range 5000 {
		addForTest(&w.engine().Shards()[i%4], time.Duration(1+r.Int64N(1<<(20+r.IntN(40)))))
	}
	for _, next := range []int{math.MinInt, -1, 0, 1, 2, 100, 2499, 2500, 2501, 4999, 5000, 5001, math.MaxInt32, math.MaxInt} {
		w.verifySnapshot(t, next)
	}
}

// A Snapshot of very many entries gives the lock to others between chunks, at once. It
// sorts the deadlines without the lock.
func TestSnapshotHoldsUpNobody(t *testing.T) {
	w := New(WithShards(1))
	defer w.Stop()
	pending := unlessShort(500_000, 100_000)
	r := newRandForTest(t)
	for range pending {
		w.Schedule(time.Minute+time.Duration(r.Int64N(int64(time.Hour))), noop)
	}
	atLeastOnce(t, func() bool { // the lock is not taken straight back
		snapshot, waits := waitsBesideSnapshots(w, 10)
		median := waits[len(waits)/2]
		t.Logf("a snapshot takes %v, a call beside it %v", snapshot, median)
		return median < snapshot/10
	})
	atLeastOnce(t, func() bool { // deadlines are not sorted under the lock
		snapshot, waits := waitsBesideSnapshots(w, pending/2)
		p99 := waits[len(waits)*99/100] // few calls see the sorting, since it is long
		t.Logf("one that sorts many takes %v, a call beside it %v at p99", snapshot, p99)
		return p99 < snapshot/4
	})
}

// waitsBesideSnapshots returns how long a Snapshot takes, and, sorted, how long the calls
// that are made while there are Snapshots all the time.
func waitsBesideSnapshots(w *TimingWheel, next int) (snapshot time.Duration, waits []time.Duration) {
	var end atomic.Bool
	took := make(chan time.Duration)
	go func() {
		start, n := time.Now(), 0
		for n < 3 || !end.Load() {
			w.Snapshot(next)
			n++
		}
		took <- time.Since(start) / time.Duration(n)
	}()
	for start := time.Now(); time.Since(start) < 300*time.Millisecond || len(waits) < 100; {
		before := time.Now()
		timeout, _ := w.Schedule(time.Hour, noop)
		waits = append(waits, time.Since(before))
		timeout.Cancel()
		time.Sleep(100 * time.Microsecond)
	}
	end.Store(true)
	slices.Sort(waits)
	return <-took, waits
}
