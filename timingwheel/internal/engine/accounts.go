package engine

import (
	"math"
	"math/bits"
	"time"

	"github.com/tickwheel/tickwheel/internal/wallclock"
)

// Counts are the accounts of a shard, or of all. They are timingwheel.Counts, whose
// documentation says what is counted where.
type Counts struct {
	Pending    int64
	Scheduled  int64
	Expired    int64
	Stopped    int64
	HandedBack int64
	Reset      int64
	Cascaded   int64
	Rejected   int64
}

// merge adds the accounts of a shard. In these, Pending and Cascaded are 0: other figures
// of the shard have them.
func (c *Counts) merge(o Counts) {
	c.Scheduled += o.Scheduled
	c.Expired += o.Expired
	c.Stopped += o.Stopped
	c.HandedBack += o.HandedBack
	c.Reset += o.Reset
	c.Rejected += o.Rejected
}

// LevelStats are timingwheel.LevelStats.
type LevelStats struct {
	Tick        time.Duration
	Interval    time.Duration
	Slots       int
	CurrentTime time.Duration
	Buckets     int
	Entries     int64
	Cascaded    int64
}

// Stats are what timingwheel.Stats says, whose documentation says it.
type Stats struct {
	Counts
	CallerRuns, Discarded, Refused int64
	Panicked                       int64
	Running, Waiting, Wakeups      int64
	HeldUp                         time.Duration
	HeldUpBy                       string
	Now, Tick                      time.Duration
	Shards, ProfileRate            int
	Closed, Precise, Suspends      bool
	Suspended                      time.Duration
	Capacity, Free                 int64 // of the arenas
	Lateness                       Histogram
	Levels                         []LevelStats
}

// Stats returns what the engine has done and what it holds.
func (e *Engine) Stats() Stats {
	running, last := &e.runner.Running, int64(-1)
	for {
		st := e.look()
		st.Running = running.Load() // after what is pending, since a task goes that way
		if st.Pending+st.Running > 0 || st.Scheduled+st.Expired == last {
			return st
		}
		// Nothing is left. But something may have come and gone, shard by shard, ahead of
		// the look. If it did not between two looks, there was nothing in between.
		last = st.Scheduled + st.Expired
	}
}

// look is stats but for running.
func (e *Engine) look() Stats {
	r := e.runner
	st := Stats{
		CallerRuns:  r.CallerRuns.Load(),
		Discarded:   r.Discarded.Load(),
		Refused:     r.Refused.Load(),
		Panicked:    r.Panicked.Load(),
		Wakeups:     e.driver.queue.Wakeups(),
		Precise:     e.driver.queue.Precise(),
		Tick:        e.clock.tick,
		Shards:      len(e.shards),
		ProfileRate: e.ProfileRate(),
	}
	st.Suspends = wallclock.MonotonicCounts
	if boot := e.clock.boot; boot != nil {
		st.Suspends, st.Suspended = true, boot.sleptSoFar()
	}
	st.HeldUp, st.HeldUpBy, _ = e.driver.handoff.present()
	for i := range e.shards {
		e.shards[i].addTo(&st)
	}
	st.Lateness.summarize()
	st.Now = e.clock.Now() // last, so that no CurrentTime is after it
	return st
}

// addTo adds the shard's figures.
func (s *shard) addTo(st *Stats) {
	s.lock()
	defer s.unlock()
	st.Counts.merge(s.counts)
	st.Pending += int64(s.arena.Len())
	st.Waiting += int64(s.entries[levelWaiting])
	s.history.addTo(st)
	st.Closed = st.Closed || s.closed
	st.Capacity += int64(s.arena.Cap())
	st.Free += int64(s.arena.Vacancy())
	for w := s.finest; w != nil; w = w.overflow {
		if len(st.Levels) == int(w.level) {
			st.Levels = append(st.Levels, LevelStats{})
		}
		s.addLevelTo(w, &st.Levels[w.level])
	}
}

// addLevelTo adds the figures of one wheel of the shard.
func (s *shard) addLevelTo(w *wheel, l *LevelStats) {
	l.Tick = s.clock.duration(w.tick)
	l.Interval = s.clock.duration(w.interval())
	l.Slots = w.last + 1
	l.CurrentTime = max(l.CurrentTime, s.clock.duration(w.currentTime))
	l.Buckets += w.cascade.openBuckets
	l.Entries += int64(s.entries[w.level])
	if s.history != nil {
		l.Cascaded += s.history.cascaded[w.level]
	}
}

func (h *history) addTo(st *Stats) {
	if h == nil {
		return
	}
	for _, n := range h.cascaded {
		st.Cascaded += n
	}
	st.Lateness.merge(&h.lateness)
}

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
