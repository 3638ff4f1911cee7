package main

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"
)

// quantiles counts durations, in buckets that are an eighth of a power of two wide.
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

// at returns the upper bound of the bucket in which the quantile is.
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
	return fmt.Sprintf("p50 %s, p99 %s, p99.9 %s, max %s", ms(q.at(0.5)), ms(q.at(0.99)), ms(q.at(0.999)), ms(time.Duration(q.max.Load())))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
func mb(n uint64) string        { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// progress prints a line.
func (s *soak) progress(pending int64, m sample) {
	n, first := s.violations.get()
	fmt.Fprintf(s.out, "%4ds  wheels %d of %d  tasks %d  pending %d  late %v  heap %s  goroutines %d  violations %d\n",
		int(s.now().Seconds()), len(s.all()), s.wheels.Load(), s.tasks.Load(), pending, &s.late, mb(m.heap), m.goroutines, n)
	if n > 0 {
		fmt.Fprintf(s.out, "       first: %s\n", first[0])
	}
}

// report prints what has been, and reports whether all is well.
func (s *soak) report() bool {
	c, seconds := s.counts, s.took.Seconds()
	rate := func(name string, n int64) { fmt.Fprintf(s.out, "  %-28s %12d %10.0f/s\n", name, n, float64(n)/seconds) }
	fmt.Fprintf(s.out, "\n%v, %d wheels\n", s.took.Round(time.Millisecond), s.wheels.Load())
	rate("functions armed", s.tasks.Load())
	rate("  ran", s.ran.Load())
	rate("  cancelled", s.cancelled.Load())
	rate("  handed back", s.handedBack.Load())
	rate("  discarded", s.discarded.Load())
	rate("  refused", s.refused.Load())
	rate("runs of jobs", s.runs.Load())
	rate("futures", s.futures.Load())
	rate("contexts", s.contexts.Load())
	rate("timers with a channel", s.timers.Load())
	rate("ticks", s.ticks.Load())
	rate("panics", s.panics.Load())
	rate("entries scheduled", c.Scheduled)
	rate("  fired", c.Fired)
	rate("  cancelled", c.Canceled)
	rate("  handed back", c.HandedBack)
	rate("  reset", c.Reset)
	rate("  rejected", c.Rejected)
	fmt.Fprintf(s.out, "  lateness, on Goroutines: %v\n", &s.late)
	fmt.Fprintf(s.out, "  lateness of time.AfterFunc beside it: %v\n", &s.control)
	fmt.Fprintf(s.out, "  heap in use: %s at the begin, %s at the end\n", mb(s.steady.begin.heap), mb(s.steady.end.heap))
	if n := len(s.steady.samples); n >= leastSamples {
		before, after := floor(s.steady.samples[n/4:n/2]), floor(s.steady.samples[n*3/4:])
		fmt.Fprintf(s.out, "  at least, in the second and the last quarter: %s and %s, %d and %d goroutines\n",
			mb(before.heap), mb(after.heap), before.goroutines, after.goroutines)
	}
	fmt.Fprintf(s.out, "  goroutines: %d at the begin, %d at the end; open files: %d and %d\n",
		s.steady.begin.goroutines, s.steady.end.goroutines, s.steady.begin.files, s.steady.end.files)
	n, first := s.violations.get()
	fmt.Fprintf(s.out, "  violations: %d\n", n)
	for _, v := range first {
		fmt.Fprintf(s.out, "    %s\n", v)
	}
	return n == 0
}
