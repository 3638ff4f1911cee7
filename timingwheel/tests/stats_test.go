package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"encoding/json"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// newManual returns a wheel that moves only in Drive, with tasks that have run when Drive
// returns.
func newManual(opts ...timingwheel.Option) *timingwheel.TimingWheel {
	return timingwheel.New(append([]timingwheel.Option{timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline())}, opts...)...)
}

func TestStatsInsideATask(t *testing.T) {
	for name, e := range map[string]timingwheel.Executor{"goroutines": timingwheel.Goroutines(), "inline": timingwheel.Inline()} {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithExecutor(e))
			defer w.Stop()
			seen := make(chan timingwheel.Stats, 1)
			w.AfterFunc(time.Millisecond, func() {
				w.Snapshot(1)
				seen <- w.Stats()
			})
			st := <-seen
			require.EqualValues(t, 1, st.Expired)
			require.EqualValues(t, 1, st.Running, "the task itself")
			waitFor(t, func() bool { return w.Stats().Running == 0 })
		})
	}
}

// While real goroutines do everything at once, the figures of Stats belong together, and
// what can only grow never shrinks.
func TestStatsAtAnyTime(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(4), timingwheel.WithWheelSize(4), timingwheel.WithTick(10*time.Microsecond), timingwheel.WithMaxPending(500))
	var end atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { churn(w, &end) })
	}
	for range 2 {
		wg.Go(func() {
			var last timingwheel.Stats
			for !end.Load() {
				st := w.Stats()
				checkStats(t, st)
				if st.Scheduled < last.Scheduled || st.Expired < last.Expired || st.Stopped < last.Stopped ||
					st.Reset < last.Reset || st.Cascaded < last.Cascaded || st.Lateness.Sum < last.Lateness.Sum || st.Now < last.Now {
					t.Errorf("has shrunk: %+v, %+v", last.Counts, st.Counts)
				}
				last = st
			}
		})
	}
	wg.Go(func() {
		for !end.Load() {
			checkSnapshot(t, w.Snapshot(10), 10)
		}
	})
	time.Sleep(300 * time.Millisecond)
	waitFor(t, func() bool {
		st := w.Stats()
		return st.Expired > 0 && st.Stopped > 0 && st.Reset > 0 && st.Cascaded > 0
	})
	wg.Go(func() { w.Stop() })
	time.Sleep(time.Millisecond)
	end.Store(true)
	wg.Wait()
	st := w.Stats()
	checkStats(t, st)
	require.Zero(t, st.Pending)
}

// churn uses all that comes to wait on a wheel.
func churn(w *timingwheel.TimingWheel, end *atomic.Bool) {
	for !end.Load() {
		d := time.Duration(rand.Int64N(1<<(8+rand.IntN(16)))) - 100 // up to 8 ms
		timeout, _ := w.Schedule(d, noop)
		timer, ticker := w.AfterFunc(d, noop), w.NewTicker(max(1, d))
		channel := w.NewTimer(d)
		w.Schedule(d, noop)
		timer.Reset(2 * d)
		channel.Reset(3 * d)
		if rand.IntN(2) == 0 {
			time.Sleep(d / 4)
		}
		timeout.Cancel()
		timer.Stop()
		ticker.Stop()
		channel.Stop()
	}
}

func TestStatsAndSnapshotAreJSON(t *testing.T) {
	w := newManual(timingwheel.WithShards(2))
	defer w.Stop()
	for i := range 100 {
		w.AfterFunc(time.Duration(i)*time.Minute, noop)
	}
	w.Drive(0)
	st := w.Stats()
	require.NotZero(t, st.Expired)
	require.Equal(t, st, viaJSON(t, st))

	sn := w.Snapshot(5)
	got := viaJSON(t, sn)
	require.Len(t, got.Next, 5)
	for i := range sn.Next {
		require.True(t, sn.Next[i].Equal(got.Next[i]))
	}
	got.Next = sn.Next // JSON keeps neither a Location nor a monotonic reading
	require.Equal(t, sn, got)
}

func viaJSON[T any](t *testing.T, v T) (back T) {
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(encoded, &back))
	return back
}

// The interval of the coarsest levels is longer than a time.Duration can say.
func TestIntervalSaturates(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(1), timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(65536))
	defer w.Stop()
	w.AfterFunc(math.MaxInt64, noop)
	levels := w.Stats().Levels
	require.Len(t, levels, 4)
	require.Equal(t, time.Duration(math.MaxInt64), levels[3].Interval)
	for _, l := range levels {
		require.Positive(t, l.Interval)
	}
}

// A timer that was pushed back has not left its level for a finer one.
func TestCascadedCountsNothingThatWasPushedBack(t *testing.T) {
	w := virtual()
	defer w.Stop()
	timeout, err := w.Schedule(10*msec, noop)
	require.NoError(t, err)
	require.True(t, timeout.Reset(20*msec))
	w.Advance(15 * msec) // on the same level
	require.True(t, timeout.Reset(time.Hour))
	w.Advance(15 * msec) // to a coarser one
	require.Zero(t, w.Stats().Cascaded)
	require.Equal(t, 1, w.Advance(time.Hour))
	require.Positive(t, w.Stats().Cascaded)
}

// The lateness of a function that was pushed back counts from its last deadline, also if it has
// waited for the executor.
func TestLatenessOfWhatWasPushedBackAndWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1))
		defer w.Stop()
		w.Schedule(time.Second, func() { time.Sleep(9 * time.Second) })
		timer := w.AfterFunc(2*time.Second, noop)
		require.True(t, timer.Reset(2*time.Second))
		require.True(t, timer.Reset(8*time.Second))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 2*time.Second, w.Stats().Lateness.Max)
	})
}

// checkStats checks what is true of Stats at any time, whatever is under way. (It calls
// require only when it fails, since it is called from other goroutines.)
func checkStats(t testing.TB, st timingwheel.Stats) {
	t.Helper()
	entries, cascaded := int64(0), int64(0)
	for i, l := range st.Levels {
		entries += l.Entries
		cascaded += l.Cascaded
		if l.CurrentTime > st.Now || l.Buckets < 0 || l.Entries < 0 || l.Cascaded < 0 || l.Buckets > l.Slots*st.Shards {
			t.Errorf("level %d: %+v", i, l)
		}
	}
	if st.Scheduled != st.Expired+st.Stopped+st.HandedBack+st.Pending ||
		st.Lateness.Total() != st.Expired ||
		entries > st.Pending || !st.Closed && cascaded != st.Cascaded || // a shard that is stopped has no levels

		st.Arena.Capacity-st.Arena.Free < st.Pending || st.Arena.Free < 0 ||
		st.Running < 0 {
		t.Errorf("these figures do not belong together: %+v", st)
	}
}

// newRandForTest has a new seed each time. The seed is logged if the test fails.
func newRandForTest(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("seed:", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
