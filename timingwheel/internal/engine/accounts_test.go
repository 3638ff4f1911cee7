package engine

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Stats shows a task on its way from the wheel to the executor, and one that comes back.
func TestStatsMissesNoTask(t *testing.T) {
	needsProcessors(t)
	rounds := unlessShort(500, 100)
	for range rounds {
		w := newTestWheel(withShards(256))
		var ran atomic.Bool
		release := make(chan struct{})
		addFunction(&w.shards[0], 0, func() { <-release })
		addFunction(&w.shards[255], 0, func() { ran.Store(true) })
		for {
			st, over := w.Stats(), ran.Load()
			if over {
				break
			}
			require.GreaterOrEqual(t, st.Pending+st.Running, int64(2))
			require.LessOrEqual(t, st.Waiting, st.Pending)
		}
		close(release)
		w.Stop()
	}
	w := newTestWheel(withShards(256), withTick(time.Microsecond))
	defer w.Stop()
	var again func()
	again = func() { w.Schedule(0, again) }
	again()
	for range 10 * rounds {
		st := w.Stats()
		require.Positive(t, st.Pending+st.Running)
	}
}

// Stats counts an entry on its way from one shard to another, also if nothing is left on the shards
// that Stats has not reached.
func TestStatsMissesNothingThatChangesShards(t *testing.T) {
	w := newTestWheel(withManualDrive(), withShards(2))
	defer w.Stop()
	first, last := &w.shards[0], &w.shards[1]
	timeout := func(s *shard) ref {
		h, err := s.accept(Delay{Now: 0, D: time.Hour}, mustNotRun, OneShot)
		require.NoError(t, err)
		return h
	}
	last.lock()
	h := timeout(last)
	looked := make(chan Stats)
	go func() { looked <- w.Stats() }()
	waitUntil(t, last.fairness.atTurnstile.Load) // it has seen the first shard
	first.lock()
	timeout(first)
	first.unlock()
	require.True(t, last.cancel(h))
	last.unlock()
	require.EqualValues(t, 1, (<-looked).Pending)
}

// verifyStats compares Stats with a walk of the real structure, and returns it. The
// driver must be asleep, or the drive manual, and no call under way.
func (w *testWheel) verifyStats(t testing.TB) Stats {
	t.Helper()
	got := w.Stats()
	var pending, due int64
	var walked []LevelStats
	walk := func(s *shard) {
		s.mu.Lock() // the driver may be asleep in the middle of a task, and go on any time
		defer s.mu.Unlock()
		if s.stopped && s.arena.Chunks() == 0 { // its buckets refer to an arena that is gone
			require.Equal(t, [levels]int32{}, s.entries)
			require.Zero(t, s.arena.Cap())
			return
		}
		pending += int64(s.arena.Len())
		ofDue := countIn(s, &s.overdue.Bucket) + countIn(s, &s.overdueCascade.ring)
		require.EqualValues(t, ofDue, s.entries[levelDue], "due entries")
		require.Equal(t, countOneShots(s), s.oneShots, "one-shots")
		ofWaiting := countIn(s, &s.waiting)
		require.EqualValues(t, ofWaiting, s.entries[levelWaiting], "waiting entries")
		due += ofDue + ofWaiting
		for l := s.finest; l != nil; l = l.overflow {
			if int(l.level) == len(walked) {
				walked = append(walked, LevelStats{})
			}
			walk(s, l, &walked[l.level])
		}
	}
	for i := range w.shards {
		walk(&w.shards[i])
	}
	require.Equal(t, walked, got.Levels)
	inLevels := int64(0)
	for _, l := range walked {
		inLevels += l.Entries
	}
	require.Equal(t, pending, got.Pending)
	require.Equal(t, pending, inLevels+due, "an entry is either due, or waits, or is on a level")
	require.Equal(t, got.Capacity-got.Free, pending)
	return got
}

// walk adds what the wheel holds, by counting it.
func walk(s *shard, w *wheel, l *LevelStats) {
	tick := uint64(s.clock.tick)
	l.Tick = saturated(tick, 1<<(uint(w.level)*s.hub.bits))
	l.Interval = saturated(tick, math.MaxUint64)
	if shift := (w.level + 1) * s.hub.bits; shift < 64 {
		l.Interval = saturated(tick, 1<<shift)
	}
	l.Slots = 1 << s.hub.bits
	l.CurrentTime = max(l.CurrentTime, saturated(tick, uint64(w.currentTime)))
	l.Entries += countIn(s, &w.cascade.ring)
	for _, b := range w.slots() {
		if b.IsOpen() {
			l.Buckets++
			l.Entries += countIn(s, &b.Bucket)
		}
	}
	if s.history != nil {
		l.Cascaded += s.history.cascaded[w.level] // nothing is left to count
	}
}

func saturated(a, b uint64) time.Duration {
	if high, low := bits.Mul64(a, b); high == 0 && low <= math.MaxInt64 {
		return time.Duration(low)
	}
	return math.MaxInt64
}

func countIn(s *shard, b *bucket.Bucket) (n int64) {
	for range b.All(&s.arena) {
		n++
	}
	return n
}

func countOneShots(s *shard) (n int64) {
	for i := range s.arena.All() {
		if s.arena.Tag(i)&OneShot != 0 {
			n++
		}
	}
	return n
}

// newManualWheel returns a wheel that moves only in Drive, with tasks that have run when Drive
// returns.
func newManualWheel(opts ...option) *testWheel {
	return newTestWheel(append([]option{withManualDrive(), withExecutor(run.Inline{})}, opts...)...)
}

func TestStatsOfAnUnusedAndOfAStoppedWheel(t *testing.T) {
	w := newTestWheel(withTick(2*time.Millisecond), withShards(4))
	st := w.verifyStats(t)
	require.Positive(t, st.Now)
	st.Now = 0
	require.Equal(t, Stats{Tick: 2 * time.Millisecond, Shards: 4}, st)

	for range 10 {
		w.AfterFunc(time.Hour, noop)
	}
	w.After(time.Hour)
	w.AfterFunc(time.Hour, noop).Stop()
	require.Len(t, w.Stop(), 10)
	st = w.verifyStats(t)
	require.True(t, st.Closed)
	require.Equal(t, Counts{Scheduled: 12, Stopped: 1, HandedBack: 11}, st.Counts)
	require.Zero(t, st.Capacity)
	require.Empty(t, st.Levels)

	w.AfterFunc(time.Hour, noop).Reset(time.Hour)
	w.Stop()
	require.Equal(t, st.Counts, w.verifyStats(t).Counts, "a stopped wheel counts no more")
}

// A known sequence of calls, and what each figure must be after it.
func TestStatsByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManualWheel(withTick(time.Millisecond), withWheelSize(8), withShards(1), withMaxPending(3))
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
		require.Equal(t, Counts{Pending: 2, Scheduled: 3, Stopped: 1, Reset: 1, Rejected: 1}, st.Counts)
		require.Equal(t, LevelStats{Tick: time.Millisecond, Interval: 8 * time.Millisecond, Slots: 8}, st.Levels[0],
			"the bucket of what was canceled is dropped")
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
		require.Equal(t, Counts{Pending: 1, Scheduled: 3, Expired: 1, Stopped: 1, Reset: 1, Cascaded: 2, Rejected: 1}, st.Counts)
		require.Equal(t, 700*time.Microsecond, st.Lateness.Max, "since its tick")
		require.Equal(t, 700*time.Microsecond, st.Lateness.P999)

		require.False(t, canceled.Cancel())
		w.AfterFunc(0, noop)
		w.Drive(0)
		st = w.verifyStats(t)
		require.EqualValues(t, 2, st.Expired)
		require.EqualValues(t, 1, st.Lateness.Counts[0], "due at once, before the tick")
		require.EqualValues(t, 100*time.Millisecond+700*time.Microsecond, st.Now)
	})
}

func TestStatsOfFiftyFourLevels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManualWheel(withTick(time.Microsecond), withWheelSize(2), withShards(1))
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
		require.EqualValues(t, 43, w.verifyStats(t).Expired, "delays of 2^0 to 2^41 ns, and 0")
	})
}

// Shards make their levels when they need them. Their clocks stand where their last
// bucket has expired.
func TestStatsOfShardsThatDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newManualWheel(withWheelSize(4), withShards(8))
		defer w.Stop()
		for i := range 7 { // the last one has none
			for range i + 1 {
				addFunction(&w.shards[i], time.Millisecond<<(2*i), noop)
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
		w := newManualWheel(withWheelSize(8), withShards(1))
		defer w.Stop()
		for i := range 3 * SliceLen {
			w.AfterFunc(64*time.Millisecond+time.Duration(i%60)*time.Millisecond, noop)
		}
		w.AfterFunc(66*time.Millisecond, noop)
		w.AfterFunc(200*time.Millisecond, noop) // of the level, and not in the cascade
		time.Sleep(64 * time.Millisecond)
		d := &w.driver
		b, ok := d.queue.Poll()
		require.True(t, ok)
		d.flushFirst(b)
		d.handOver()
		for range 2 {
			st := w.verifyStats(t)
			require.Positive(t, st.Levels[2].Entries)
			sn := w.verifySnapshot(t, 10)
			require.Equal(t, st.Levels[2].Entries-1, sn.Cascading)
			d.flushNext()
			require.True(t, d.sliced, "it has more")
		}
		d.flushRest()
		require.Zero(t, w.verifySnapshot(t, 10).Cascading)
		require.EqualValues(t, 3*SliceLen+2, w.verifyStats(t).Scheduled)
	})
}

func TestLatenessRun(t *testing.T) {
	c := newClock(time.Millisecond, time.Now(), false)
	var h Histogram
	run := latenessRun{of: &h}
	require.EqualValues(t, -1, run.done())
	for _, deadline := range []int64{2, 2, 5, 20} {
		run.record(deadline, &c, 10*time.Millisecond)
	}
	require.Equal(t, 8*time.Millisecond, run.done())
	require.EqualValues(t, 2*8+5, h.Sum/time.Millisecond, "nothing is early")
}

func histogramOf(ds []time.Duration) *Histogram {
	h := new(Histogram)
	for _, d := range ds {
		h.record(d, 1)
	}
	return h
}

// mostly small, now and then of any magnitude.
func randomDuration(r *rand.Rand) time.Duration {
	return time.Duration(r.Int64N(1 << (1 + r.IntN(62))))
}

func TestHistogramBuckets(t *testing.T) {
	h := Histogram{Max: time.Hour}
	for i := range histogramBuckets - 1 {
		bound := h.UpperBound(i)
		require.Equal(t, i, bucketOf(bound-1), "below the bound of its bucket")
		require.Equal(t, i+1, bucketOf(bound), "a bound is the next bucket's")
	}
	require.Equal(t, time.Microsecond, h.UpperBound(0))
	require.Equal(t, time.Hour+1, h.UpperBound(histogramBuckets-1))
	require.Equal(t, histogramBuckets-1, bucketOf(math.MaxInt64))
	require.Zero(t, bucketOf(0))
	require.Zero(t, bucketOf(math.MinInt64))
	h.Max = math.MaxInt64
	require.EqualValues(t, int64(math.MaxInt64), h.UpperBound(histogramBuckets-1))
}

// Every quantile is that of the sorted durations, rounded up as promised.
func TestHistogramQuantiles(t *testing.T) {
	r := newRandForTest(t)
	for range 2000 {
		ds := make([]time.Duration, 1+r.IntN(200))
		for i := range ds {
			ds[i] = randomDuration(r)
		}
		h := histogramOf(ds)
		slices.Sort(ds)
		require.EqualValues(t, len(ds), h.Total())
		require.Equal(t, ds[len(ds)-1], h.Max)
		for range 10 {
			q := r.Float64()
			rank := 1 // the least of which so many are a fraction q
			for float64(rank) < q*float64(len(ds)) {
				rank++
			}
			checkQuantile(t, h, q, ds[rank-1])
		}
		checkQuantile(t, h, 0, ds[0])
		checkQuantile(t, h, 1, ds[len(ds)-1])
	}
}

func checkQuantile(t *testing.T, h *Histogram, q float64, exact time.Duration) {
	t.Helper()
	got := h.Quantile(q)
	require.GreaterOrEqual(t, got, exact, "quantile %v", q)
	require.LessOrEqual(t, got, h.Max)
	if exact < h.UpperBound(histogramBuckets-2) {
		require.LessOrEqual(t, got, max(2*exact, time.Microsecond), "quantile %v", q)
	}
}

func TestHistogramEdges(t *testing.T) {
	for _, q := range []float64{-1, 0, 0.5, 1, 2, math.NaN(), math.Inf(1), math.Inf(-1), math.SmallestNonzeroFloat64} {
		require.Zero(t, new(Histogram).Quantile(q), "empty, quantile %v", q)
		require.Equal(t, 3*time.Microsecond, histogramOf([]time.Duration{3 * time.Microsecond}).Quantile(q), "one, quantile %v", q)
	}
	h := histogramOf([]time.Duration{-time.Second, 3 * time.Millisecond, time.Hour, math.MaxInt64})
	require.Equal(t, time.Microsecond, h.Quantile(-1), "as 0")
	require.Equal(t, time.Microsecond, h.Quantile(math.Inf(-1)))
	require.Equal(t, time.Microsecond, h.Quantile(math.NaN()))
	require.Equal(t, time.Microsecond, h.Quantile(0.25))
	require.Equal(t, 4096*time.Microsecond, h.Quantile(0.26), "more than a quarter is two")
	require.EqualValues(t, int64(math.MaxInt64), h.Quantile(0.75), "the last bucket has no bound but Max")
	require.EqualValues(t, int64(math.MaxInt64), h.Quantile(1))
	require.EqualValues(t, int64(math.MaxInt64), h.Quantile(2), "as 1")
	require.EqualValues(t, int64(math.MaxInt64), h.Sum, "saturates")
	require.Equal(t, histogramOf([]time.Duration{0}), histogramOf([]time.Duration{-1}))
}

// To merge is to have counted it all in one.
func TestHistogramMerge(t *testing.T) {
	r := newRandForTest(t)
	for range 200 {
		var all []time.Duration
		merged := new(Histogram)
		for range r.IntN(5) {
			var ds []time.Duration
			for range r.IntN(50) {
				ds = append(ds, randomDuration(r)>>10)
			}
			merged.merge(histogramOf(ds))
			all = append(all, ds...)
		}
		whole := histogramOf(all)
		require.Equal(t, whole, merged)
		merged.summarize()
		require.Equal(t, []time.Duration{whole.Quantile(0.5), whole.Quantile(0.9), whole.Quantile(0.99), whole.Quantile(0.999)},
			[]time.Duration{merged.P50, merged.P90, merged.P99, merged.P999})
	}
}

// The difference counts the values in between, except that Max may be rounded up.
func TestHistogramSub(t *testing.T) {
	r := newRandForTest(t)
	for range 2000 {
		var before, between []time.Duration
		for range r.IntN(20) {
			before = append(before, randomDuration(r)>>10)
		}
		for range 1 + r.IntN(20) {
			between = append(between, randomDuration(r)>>10)
		}
		earlier, want := histogramOf(before), histogramOf(between)
		h := histogramOf(append(before, between...))
		d := h.Sub(*earlier)
		require.Equal(t, want.Counts, d.Counts)
		require.Equal(t, want.Sum, d.Sum)
		slices.Sort(between)
		largest := between[len(between)-1]
		if largest > earlier.Max {
			require.Equal(t, largest, d.Max)
		}
		require.GreaterOrEqual(t, d.Max, largest)
		require.LessOrEqual(t, d.Max, h.Max)
		if largest < h.UpperBound(histogramBuckets-2) {
			require.LessOrEqual(t, d.Max, max(2*largest, time.Microsecond))
		}
		for q, got := range map[float64]time.Duration{0.5: d.P50, 0.9: d.P90, 0.99: d.P99, 0.999: d.P999} {
			rank := int(math.Ceil(q * float64(len(between))))
			checkQuantile(t, &d, q, between[rank-1])
			require.Equal(t, d.Quantile(q), got)
		}
	}
	h := histogramOf([]time.Duration{time.Millisecond, time.Hour})
	require.Zero(t, h.Sub(*h))
	require.Zero(t, Histogram{}.Sub(*h), "the wrong way round")
}
