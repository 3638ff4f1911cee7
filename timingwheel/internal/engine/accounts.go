package engine

import (
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
	l.Slots = len(w.slots)
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
