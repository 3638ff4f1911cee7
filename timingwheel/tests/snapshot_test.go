package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSnapshotOfAnUnusedAndOfAStoppedWheel(t *testing.T) {
	w := timingwheel.New()
	unused := w.Snapshot(10)
	require.Equal(t, timingwheel.Snapshot{Now: unused.Now}, unused)
	w.AfterFunc(time.Hour, noop)
	require.EqualValues(t, 1, w.Snapshot(10).Pending)
	w.Stop()
	stopped := w.Snapshot(10)
	require.Greater(t, stopped.Now, unused.Now)
	require.Equal(t, timingwheel.Snapshot{Now: stopped.Now}, stopped)
}

// A Snapshot of very many entries gives the lock to others between chunks, at once. It
// sorts the deadlines without the lock.
func TestSnapshotHoldsUpNobody(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	pending := unlessShort(500_000, 100_000)
	r := newRandForTest(t)
	for range pending {
		w.Schedule(time.Minute+time.Duration(r.Int64N(int64(time.Hour))), noop)
	}
	atLeastOnce(t, func() bool { // the lock is not taken straight back
		snapshot, waits, late := waitsBesideSnapshots(w, 10)
		median := waits[len(waits)/2]
		t.Logf("a snapshot takes %v, a call beside it %v; a sleep is late by %v", snapshot, median, late[len(late)/2])
		return median < max(snapshot/10, 4*late[len(late)/2])
	})
	atLeastOnce(t, func() bool { // deadlines are not sorted under the lock
		snapshot, waits, late := waitsBesideSnapshots(w, pending/2)
		p99 := waits[len(waits)*99/100] // few calls see the sorting, since it is long
		t.Logf("one that sorts many takes %v, a call beside it %v at p99; a sleep is late by %v", snapshot, p99, late[len(late)*99/100])
		return p99 < max(snapshot/4, 4*late[len(late)*99/100])
	})
}

// waitsBesideSnapshots returns how long a Snapshot takes, and, sorted, how long the calls
// that are made while there are Snapshots all the time, and how late sleeps are meanwhile,
// beyond the millisecond by which they are in an idle process.
func waitsBesideSnapshots(w *timingwheel.TimingWheel, next int) (snapshot time.Duration, waits, late []time.Duration) {
	const nap = 100 * time.Microsecond
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
		before = time.Now()
		time.Sleep(nap)
		late = append(late, time.Since(before)-nap-time.Millisecond)
	}
	end.Store(true)
	slices.Sort(waits)
	slices.Sort(late)
	return <-took, waits, late
}

// checkSnapshot checks what is true of a Snapshot at any time, whatever is under way.
func checkSnapshot(t testing.TB, sn timingwheel.Snapshot, next int) {
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
