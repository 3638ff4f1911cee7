package timingwheel

import (
	"math"
	"math/bits"
	"time"
)

// HistogramBuckets is the number of buckets of a [Histogram].
const HistogramBuckets = 28

// Histogram counts durations, in buckets whose bounds are powers of two.
type Histogram struct {
	// Counts[0] counts what is less than 1us. Counts[i] counts what is at least 2^(i-1)
	// us and less than 2^i us. The last one, from 67 s, has no upper bound.
	Counts [HistogramBuckets]int64
	Sum    time.Duration // of all that was counted, saturating at 292 years
	Max    time.Duration

	// P50 to P999 are the quantiles 0.5 to 0.999. Stats fills them in.
	P50, P90, P99, P999 time.Duration
}

// bucketOf returns the number of the bucket for d. A negative d counts as zero.
func bucketOf(d time.Duration) int {
	us := uint64(max(0, d) / time.Microsecond)
	return min(bits.Len64(us), HistogramBuckets-1)
}

// add counts d so many times.
func (h *Histogram) add(d time.Duration, n int64) {
	d = max(0, d)
	h.Counts[bucketOf(d)] += n
	if high, sum := bits.Mul64(uint64(d), uint64(n)); high > 0 || sum > math.MaxInt64 {
		h.Sum = math.MaxInt64
	} else {
		h.Sum = later(h.Sum, time.Duration(sum))
	}
	h.Max = max(h.Max, d)
}

func (h *Histogram) merge(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum = later(h.Sum, o.Sum)
	h.Max = max(h.Max, o.Max)
}

// Sub returns what h has counted since earlier, which must be an older value of the same
// histogram. Two values of [Stats] give the lateness of the time between them:
//
//	recent := now.Lateness.Sub(before.Lateness)
//
// The result's Max is exact if h.Max is larger than earlier.Max. Otherwise the largest
// duration of that time is not known, and Max is the upper bound of its bucket, but at
// most h.Max. Sum is too small if h.Sum has reached its limit. P50 to P999 are set.
//
// If earlier is not older than h, a difference that would be negative is zero. O(1).
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

// UpperBound returns the exclusive upper bound of Counts[i]. The last one has no bound:
// for it, UpperBound returns Max plus 1ns. It panics on a negative i. An i that is too
// large counts as the last.
func (h *Histogram) UpperBound(i int) time.Duration {
	if i >= HistogramBuckets-1 {
		return later(h.Max, 1)
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
// exceed. It returns the upper bound of a bucket, or Max if that is less. So the result
// is at most twice too large (or 1us, in the first bucket); beyond 67 s it is Max.
//
// It returns 0 if nothing was counted. A q below 0 counts as 0, for which the result is
// that of the shortest duration; so does NaN. A q above 1 counts as 1.
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
