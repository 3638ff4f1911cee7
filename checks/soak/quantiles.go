package main

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// quantiles counts durations in buckets. A bucket is an eighth of a power of two wide.
type quantiles struct {
	counts [64 * 8]atomic.Int64
	max    atomic.Int64
}

func (q *quantiles) add(d time.Duration) {
	n := uint64(max(8, d))
	log := bits.Len64(n) - 1
	q.counts[log*8+int(n>>(log-3)&7)].Add(1)
	for most := q.max.Load(); int64(d) > most && !q.max.CompareAndSwap(most, int64(d)); most = q.max.Load() {
	}
}

// at returns the upper bound of the bucket that holds the quantile p.
func (q *quantiles) at(p float64) time.Duration {
	total := int64(0)
	for i := range q.counts {
		total += q.counts[i].Load()
	}
	seen := int64(0)
	for i := range q.counts {
		if seen += q.counts[i].Load(); seen > 0 && float64(seen) >= p*float64(total) {
			return min(time.Duration(9+i%8)<<(i/8-3), time.Duration(q.max.Load()))
		}
	}
	return 0
}

func (q *quantiles) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, p99.9 %s, max %s",
		ms(q.at(0.5)), ms(q.at(0.99)), ms(q.at(0.999)), ms(time.Duration(q.max.Load())))
}
