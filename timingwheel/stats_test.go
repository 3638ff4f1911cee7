package timingwheel

import (
	"encoding/json"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// verifyStats compares Stats with a walk of the real structure, and returns it. The
// driver must be asleep, or the drive manual, and no call under way.
func (w *TimingWheel) verifyStats(t testing.TB) Stats {
	t.Helper()
	got := w.Stats()
	var pending, due int64
	var walked []LevelStats
	walk := func(s *engine.Shard) {
		s.Mu.Lock() // the driver may be asleep in the middle of a task, and go on any time
		defer s.Mu.Unlock()
		if s.Stopped && s.Arena.Chunks() == 0 { // its buckets refer to an arena that is gone
			require.Equal(t, [engine.Levels]int32{}, s.Entries)
			require.Zero(t, s.Arena.Cap())
			return
		}
		pending += int64(s.Arena.Len())
		ofDue := countIn(s, &s.Due.Bucket) + countIn(s, &s.DueCascade.Ring)
		require.EqualValues(t, ofDue, s.Entries[engine.LevelDue], "due entries")
		require.Equal(t, countOneShots(s), s.OneShots, "one-shots")
		ofWaiting := countIn(s, &s.Waiting)
		require.EqualValues(t, ofWaiting, s.Entries[engine.LevelWaiting], "waiting entries")
		due += ofDue + ofWaiting
		for l := s.Finest; l != nil; l = l.Overflow {
			if int(l.Level) == len(walked) {
				walked = append(walked, LevelStats{})
			}
			walk(s, l, &walked[l.Level])
		}
	}
	for i := range w.engine().Shards() {
		walk(&w.engine().Shards()[i])
	}
	require.Equal(t, walked, got.Levels)
	inLevels := int64(0)
	for _, l := range walked {
		inLevels += l.Entries
	}
	require.Equal(t, pending, got.Pending)
	require.Equal(t, pending, inLevels+due, "an entry is either due, or waits, or is on a level")
	require.Equal(t, got.Arena.Capacity-got.Arena.Free, pending)
	checkStats(t, got)
	return got
}

// walk adds what the wheel holds, by counting it.
func walk(s *engine.Shard, w *engine.Wheel, l *LevelStats) {
	tick := uint64(s.Clock.Tick)
	l.Tick = saturated(tick, 1<<(uint(w.Level)*s.Hub.Bits))
	l.Interval = saturated(tick, math.MaxUint64)
	if shift := (w.Level + 1) * s.Hub.Bits; shift < 64 {
		l.Interval = saturated(tick, 1<<shift)
	}
	l.Slots = 1 << s.Hub.Bits
	l.CurrentTime = max(l.CurrentTime, saturated(tick, uint64(w.CurrentTime)))
	l.Entries += countIn(s, &w.Cascade.Ring)
	for n := range w.Slots {
		if b := &w.Slots[n].Bucket; b.IsOpen() {
			l.Buckets++
			l.Entries += countIn(s, b)
		}
	}
	if s.History != nil {
		l.Cascaded += s.History.Cascaded[w.Level] // nothing is left to count
	}
}

func saturated(a, b uint64) time.Duration {
	if high, low := bits.Mul64(a, b); high == 0 && low <= math.MaxInt64 {
		return time.Duration(low)
	}
	return math.MaxInt64
}

func countIn(s *engine.Shard, b *bucket.Bucket) (n int64) {
	for range b.All(&s.Arena) {
		n++
	}
	return n
}

func countOneShots(s *engine.Shard) (n int64) {
	for i := range s.Arena.All() {
		if s.Arena.Tag(i)&engine.OneShot != 0 {
			n++
		}
	}
	return n
}

// checkStats checks what is true of Stats at any time, whatever is under way. (It calls
// require only when it fails, since it is called from other goroutines.)
func checkStats(t testing.TB, st Stats) {
	t.Helper()
	entries, cascaded := int64(0), int64(0)
	for i, l := range st.Levels {
		entries += l.Entries
		cascaded += l.Cascaded
		if l.CurrentTime > st.Now || l.Buckets < 0 || l.Entries < 0 || l.Cascaded < 0 || l.Buckets > l.Slots*st.Shards {
			t.Errorf("level %d: %+v", i, l)
		}
	}
	if st.Scheduled != st.Fired+st.Canceled+st.HandedBack+st.Pending ||
		st.Lateness.Total() != st.Fired ||
		entries > st.Pending || !st.Stopped && cascaded != st.Cascaded || // a shard that is stopped has no levels

		st.Arena.Capacity-st.Arena.Free < st.Pending || st.Arena.Free < 0 ||
		st.Running < 0 {
		t.Errorf("these figures do not belong together: %+v", st)
	}
}

// newManual returns a wheel that moves only in Drive, with tasks that have run when Drive
// returns.
func newManual(opts ...Option) *TimingWheel {
	return New(append([]Option{WithManualDrive(), WithExecutor(Inline())}, opts...)...)
}

func TestStatsOfAnUnusedAndOfAStoppedWheel(t *testing.T) {
	w := New(WithTick(2*time.Millisecond), WithShards(4))
	st := w.verifyStats(t)
	require.Positive(t, st.Now)
	st.Now = 0
	require.Equal(t, Stats{Tick: 2 * time.Millisecond, Shards: 4}, st)

	for range 10 {
		w.AfterFunc(time.Hour, noop)
	}
	w.NewTicker(time.Hour)
	w.AfterFunc(time.Hour, noop).Stop()
	require.Len(t, w.Stop(), 10)
	st = w.verifyStats(t)
	require.True(t, st.Stopped)
	require.Equal(t, Counts{Scheduled: 12, Canceled: 1, HandedBack: 11}, st.Counts)
	require.Zero(t, st.Arena)
	require.Empty(t, st.Levels)

	w.AfterFunc(time.Hour, noop).Reset(time.Hour)
	w.NewTimer(time.Hour).Stop()
	w.Stop()
	require.Equal(t, st.Counts, w.verifyStats(t).Counts, "a stopped wheel counts no more")
}

// A known sequence of calls, and what each figure must be after it.
func TestStatsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManual(WithTick(time.Millisecond), WithWheelSize(8), WithShards(1), WithMaxPending(3))
		defer w.Stop()
		w.Schedule(100*time.Millisecond, noop) // level 2, whose slot expires at 64 ms, then 1, at 96, then 0
		reset := w.AfterFunc(time.Hour, noop)
		canceled, _ := w.Schedule(5*time.Millisecond, noop)
		_, err := w.Schedule(time.Second, noop)
		require.ErrorIs(t, err, ErrTooManyPending)
		require.Equal(t, Counts{Pending: 3, Scheduled: 3, Rejected: 1}, w.verifyStats(t).Counts)

		require.True(t, reset.Reset(2*time.Hour))
		require.True(t, canceled.Cancel())
		st := w.verifyStats(t)
		require.Equal(t, Counts{Pending: 2, Scheduled: 3, Canceled: 1, Reset: 1, Rejected: 1}, st.Counts)
		require.Equal(t, LevelStats{Tick: time.Millisecond, Interval: 8 * time.Millisecond, Slots: 8, Buckets: 1}, st.Levels[0],
			"the bucket of what was canceled waits for the driver")
		require.Equal(t, LevelStats{Tick: 64 * time.Millisecond, Interval: 512 * time.Millisecond, Slots: 8, Buckets: 1, Entries: 1}, st.Levels[2])

		time.Sleep(64 * time.Millisecond)
		require.Zero(t, w.Drive(0))
		st = w.verifyStats(t)
		require.Equal(t, []int64{0, 0, 1}, []int64{st.Levels[0].Cascaded, st.Levels[1].Cascaded, st.Levels[2].Cascaded})
		require.Equal(t, 64*time.Millisecond, st.Levels[0].CurrentTime)
		require.Equal(t, 64*time.Millisecond, st.Levels[2].CurrentTime)

		time.Sleep(36*time.Millisecond + 700*time.Microsecond)
		require.Equal(t, 1, w.Drive(0))
		st = w.verifyStats(t)
		require.Equal(t, []int64{0, 1, 1}, []int64{st.Levels[0].Cascaded, st.Levels[1].Cascaded, st.Levels[2].Cascaded})
		require.Equal(t, Counts{Pending: 1, Scheduled: 3, Fired: 1, Canceled: 1, Reset: 1, Cascaded: 2, Rejected: 1}, st.Counts)
		require.Equal(t, 700*time.Microsecond, st.Lateness.Max, "since its tick")
		require.Equal(t, 700*time.Microsecond, st.Lateness.P999)

		require.False(t, canceled.Cancel())
		w.AfterFunc(0, noop)
		w.Drive(0)
		st = w.verifyStats(t)
		require.EqualValues(t, 2, st.Fired)
		require.EqualValues(t, 1, st.Lateness.Counts[0], "due at once, before the tick")
		require.EqualValues(t, 100*time.Millisecond+700*time.Microsecond, st.Now)
	})
}

func TestStatsOfFiftyFourLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManual(WithTick(time.Microsecond), WithWheelSize(2), WithShards(1))
		defer w.Stop()
		for bit := range 63 {
			w.AfterFunc(1<<bit, noop)
		}
		w.AfterFunc(math.MaxInt64, noop)
		w.AfterFunc(0, noop)
		st := w.verifyStats(t)
		require.Len(t, st.Levels, 54)
		require.EqualValues(t, int64(math.MaxInt64), st.Levels[53].Interval, "saturates")
		w.verifySnapshot(t, 10)
		time.Sleep(time.Hour)
		for w.Drive(0) > 0 {
			w.verifySnapshot(t, 10)
		}
		require.EqualValues(t, 43, w.verifyStats(t).Fired, "delays of 2^0 to 2^41 ns, and 0")
	})
}

// addForTest schedules on a shard of the caller's choice.
func addForTest(s *engine.Shard, d time.Duration) {
	s.Lock()
	defer s.Mu.Unlock()
	s.Accept(engine.Delay{Now: s.Clock.Now(), D: d}, noop, engine.OneShot)
}

// Shards make their levels when they need them. Their clocks stand where their last
// bucket has expired.
func TestStatsOfShardsThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManual(WithWheelSize(4), WithShards(8))
		defer w.Stop()
		for i := range 7 { // the last one has none
			for range i + 1 {
				addForTest(&w.engine().Shards()[i], time.Millisecond<<(2*i))
			}
		}
		st := w.verifyStats(t)
		require.Len(t, st.Levels, 7)
		for i, l := range st.Levels {
			require.EqualValues(t, i+1, l.Entries)
			require.Equal(t, 1, l.Buckets)
		}
		w.verifySnapshot(t, 100)
		for fired := 0; fired < 28; {
			fired += w.Drive(time.Hour)
			w.verifyStats(t)
			w.verifySnapshot(t, 3)
		}
	})
}

// The entries of a long cascade are counted where they are, slice by slice.
func TestStatsDuringACascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManual(WithWheelSize(8), WithShards(1))
		defer w.Stop()
		for i := range 3 * engine.SliceLen {
			w.AfterFunc(64*time.Millisecond+time.Duration(i%60)*time.Millisecond, noop)
		}
		w.AfterFunc(66*time.Millisecond, noop)
		w.AfterFunc(200*time.Millisecond, noop) // of the level, and not in the cascade
		time.Sleep(64 * time.Millisecond)
		d := w.engine().Driver()
		b, ok := d.Queue.Poll()
		require.True(t, ok)
		d.Begin(b)
		d.Hand()
		for range 2 {
			st := w.verifyStats(t)
			require.Positive(t, st.Levels[2].Entries)
			sn := w.verifySnapshot(t, 10)
			require.Equal(t, st.Levels[2].Entries-1, sn.Cascading)
			more := d.Step()
			require.True(t, more)
		}
		d.Finish()
		require.Zero(t, w.verifySnapshot(t, 10).Cascading)
		require.EqualValues(t, 3*engine.SliceLen+2, w.verifyStats(t).Scheduled)
	})
}

func TestStatsInsideATask(t *testing.T) {
	for name, e := range map[string]Executor{"goroutines": Goroutines(), "inline": Inline()} {
		t.Run(name, func(t *testing.T) {
			w := New(WithExecutor(e))
			defer w.Stop()
			seen := make(chan Stats, 1)
			w.AfterFunc(time.Millisecond, func() {
				w.Snapshot(1)
				seen <- w.Stats()
			})
			st := <-seen
			require.EqualValues(t, 1, st.Fired)
			require.EqualValues(t, 1, st.Running, "the task itself")
			waitUntil(t, func() bool { return w.Stats().Running == 0 })
		})
	}
}

// While real goroutines do everything at once, the figures of Stats belong together, and
// what can only grow never shrinks.
func TestStatsAtAnyTime(t *testing.T) {
	w := New(WithShards(4), WithWheelSize(4), WithTick(10*time.Microsecond), WithMaxPending(500))
	var end atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { churn(w, &end) })
	}
	for range 2 {
		wg.Go(func() {
			var last Stats
			for !end.Load() {
				st := w.Stats()
				checkStats(t, st)
				if st.Scheduled < last.Scheduled || st.Fired < last.Fired || st.Canceled < last.Canceled ||
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
	waitUntil(t, func() bool {
		st := w.Stats()
		return st.Fired > 0 && st.Canceled > 0 && st.Reset > 0 && st.Cascaded > 0
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
func churn(w *TimingWheel, end *atomic.Bool) {
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
	w := newManual(WithShards(2))
	defer w.Stop()
	for i := range 100 {
		w.AfterFunc(time.Duration(i)*time.Minute, noop)
	}
	w.Drive(0)
	st := w.Stats()
	require.NotZero(t, st.Fired)
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
	w := New(WithManualDrive(), WithShards(1), WithTick(time.Microsecond), WithWheelSize(65536))
	defer w.Stop()
	w.AfterFunc(math.MaxInt64, noop)
	levels := w.Stats().Levels
	require.Len(t, levels, 4)
	require.Equal(t, time.Duration(math.MaxInt64), levels[3].Interval)
	for _, l := range levels {
		require.Positive(t, l.Interval)
	}
}

// What was pushed back has not left its level for a finer one.
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
		w := New(WithExecutor(Inline()), WithShards(1))
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

func TestLatenessRun(t *testing.T) {
	c := engine.NewClock(time.Millisecond)
	var h engine.Histogram
	run := engine.LatenessRun{Of: &h}
	require.EqualValues(t, -1, run.End())
	for _, deadline := range []int64{2, 2, 5, 20} {
		run.Record(deadline, &c, 10*time.Millisecond)
	}
	require.Equal(t, 8*time.Millisecond, run.End())
	require.EqualValues(t, 2*8+5, h.Sum/time.Millisecond, "nothing is early")
}
