package engine

import (
	"math"
	"math/bits"
	"time"
)

const histogramBuckets = 28

// Histogram counts durations, in buckets whose bounds are powers of two: the first counts
// what is less than 1us. It is timingwheel.Histogram, whose documentation says the rest.
type Histogram struct {
	Counts [histogramBuckets]int64
	Sum    time.Duration // saturating
	Max    time.Duration

	P50, P90, P99, P999 time.Duration // set by summarize
}

// bucketOf returns the number of the bucket for d. A negative d counts as zero.
func bucketOf(d time.Duration) int {
	us := uint64(max(0, d) / time.Microsecond)
	return min(bits.Len64(us), histogramBuckets-1)
}

// record counts d so many times.
func (h *Histogram) record(d time.Duration, n int64) {
	d = max(0, d)
	h.Counts[bucketOf(d)] += n
	if high, sum := bits.Mul64(uint64(d), uint64(n)); high > 0 || sum > math.MaxInt64 {
		h.Sum = math.MaxInt64
	} else {
		h.Sum = Later(h.Sum, time.Duration(sum))
	}
	h.Max = max(h.Max, d)
}

func (h *Histogram) merge(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum = Later(h.Sum, o.Sum)
	h.Max = max(h.Max, o.Max)
}

// Sub returns what h has counted since earlier.
func (h Histogram) Sub(earlier Histogram) Histogram {
	var d Histogram
	for i, n := range h.Counts {
		if d.Counts[i] = max(0, n-earlier.Counts[i]); d.Counts[i] > 0 {
			d.Max = min(h.UpperBound(i), h.Max)
		}
	}
	if h.Max > earlier.Max && d.Max > 0 {
		d.Max = h.Max
	}
	d.Sum = max(0, h.Sum-earlier.Sum)
	d.summarize()
	return d
}

func (h *Histogram) summarize() {
	h.P50, h.P90, h.P99, h.P999 = h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Quantile(0.999)
}

// UpperBound returns the exclusive upper bound of Counts[i].
func (h *Histogram) UpperBound(i int) time.Duration {
	if i >= histogramBuckets-1 {
		return Later(h.Max, 1)
	}
	return time.Microsecond << i
}

// Total returns how many were counted.
func (h *Histogram) Total() int64 {
	n := int64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Quantile returns a duration that at least the fraction q of what was counted does not
// exceed. It is at most twice too large.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.Total()
	rank := int64(0) // also for NaN, which converts to no integer
	if q >= 1 {
		rank = total
	} else if q > 0 {
		rank = int64(math.Ceil(q * float64(total)))
	}
	seen := int64(0)
	for i, c := range h.Counts {
		if seen += c; c > 0 && seen >= rank {
			return min(h.UpperBound(i), h.Max)
		}
	}
	return 0
}
