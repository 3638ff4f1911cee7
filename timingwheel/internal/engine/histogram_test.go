package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
