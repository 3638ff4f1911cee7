package timingwheel

import (
	"math"
	"math/bits"
	"time"
)

const histogramBuckets = 28

// histogram counts durations, in buckets whose bounds are powers of two: the first counts
// what is less than 1us. It is timingwheel.Histogram, whose documentation says the rest.
type histogram struct {
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

// add counts d so many times.
func (h *histogram) add(d time.Duration, n int64) {
	d = max(0, d)
	h.Counts[bucketOf(d)] += n
	if high, sum := bits.Mul64(uint64(d), uint64(n)); high > 0 || sum > math.MaxInt64 {
		h.Sum = math.MaxInt64
	} else {
		h.Sum = later(h.Sum, time.Duration(sum))
	}
	h.Max = max(h.Max, d)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum = later(h.Sum, o.Sum)
	h.Max = max(h.Max, o.Max)
}

// sub returns what h has counted since earlier.
func (h histogram) sub(earlier histogram) histogram {
	var d histogram
	for i, n := range h.Counts {
		if d.Counts[i] = max(0, n-earlier.Counts[i]); d.Counts[i] > 0 {
			d.Max = min(h.upperBound(i), h.Max)
		}
	}
	if h.Max > earlier.Max && d.Max > 0 {
		d.Max = h.Max
	}
	d.Sum = max(0, h.Sum-earlier.Sum)
	d.summarize()
	return d
}

func (h *histogram) summarize() {
	h.P50, h.P90, h.P99, h.P999 = h.quantile(0.5), h.quantile(0.9), h.quantile(0.99), h.quantile(0.999)
}

// upperBound returns the exclusive upper bound of Counts[i].
func (h *histogram) upperBound(i int) time.Duration {
	if i >= histogramBuckets-1 {
		return later(h.Max, 1)
	}
	return time.Microsecond << i
}

// total returns how many were counted.
func (h *histogram) total() int64 {
	n := int64(0)
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// quantile returns a duration that at least the fraction q of what was counted does not
// exceed. It is at most twice too large.
func (h *histogram) quantile(q float64) time.Duration {
	total := h.total()
	rank := int64(0) // also for NaN, which converts to no integer
	if q >= 1 {
		rank = total
	} else if q > 0 {
		rank = int64(math.Ceil(q * float64(total)))
	}
	seen := int64(0)
	for i, c := range h.Counts {
		if seen += c; c > 0 && seen >= rank {
			return min(h.upperBound(i), h.Max)
		}
	}
	return 0
}
