package timingwheel

import "time"

// counts are the accounts of a shard, or of all. They are timingwheel.Counts, whose
// documentation says what is counted where.
type counts struct {
	Pending    int64
	Scheduled  int64
	Fired      int64
	Canceled   int64
	HandedBack int64
	Reset      int64
	Cascaded   int64
	Rejected   int64
}

// add adds the accounts of a shard. In these, Pending and Cascaded are 0: other figures
// of the shard have them.
func (c *counts) add(o counts) {
	c.Scheduled += o.Scheduled
	c.Fired += o.Fired
	c.Canceled += o.Canceled
	c.HandedBack += o.HandedBack
	c.Reset += o.Reset
	c.Rejected += o.Rejected
}

// levelStats are timingwheel.LevelStats.
type levelStats struct {
	Tick        time.Duration
	Interval    time.Duration
	Slots       int
	CurrentTime time.Duration
	Buckets     int
	Entries     int64
	Cascaded    int64
}

// engineStats are what timingwheel.Stats says, whose documentation says it.
type engineStats struct {
	counts
	callerRuns, discarded, panicked int64
	running, waiting, wakeups       int64
	heldUp                          time.Duration
	heldUpBy                        string
	now, tick                       time.Duration
	shards                          int
	stopped, precise                bool
	capacity, free                  int64 // of the arenas
	lateness                        histogram
	levels                          []levelStats
}

// stats returns what the engine has done and what it holds.
func (e *engine) stats() engineStats {
	running, last := &e.runner.running, int64(-1)
	for {
		before := running.Load()
		st := e.look()
		// After what is pending, since a task goes that way; and before, since one that runs
		// may have put itself, or another, on the wheel before it has ended.
		st.running = max(before, running.Load())
		if st.Pending+st.running > 0 || st.Scheduled+st.Fired == last {
			return st
		}
		// Nothing is left. But something may have come and gone, shard by shard, ahead of
		// the look. If it did not between two looks, there was nothing in between.
		last = st.Scheduled + st.Fired
	}
}

// look is stats but for running.
func (e *engine) look() engineStats {
	r := e.runner
	st := engineStats{
		callerRuns: r.callerRuns.Load(),
		discarded:  r.discarded.Load(),
		panicked:   r.panicked.Load(),
		wakeups:    e.driver.queue.Wakeups(),
		precise:    e.driver.queue.Precise(),
		tick:       e.clock.tick,
		shards:     len(e.shards),
	}
	st.heldUp, st.heldUpBy, _ = e.driver.handoff.present()
	for i := range e.shards {
		e.shards[i].addTo(&st)
	}
	st.lateness.summarize()
	st.now = e.clock.now() // last, so that no CurrentTime is after it
	return st
}

// addTo adds the shard's figures.
func (s *shard) addTo(st *engineStats) {
	s.lock()
	defer s.unlock()
	st.counts.add(s.counts)
	st.Pending += int64(s.arena.Len())
	st.waiting += int64(s.entries[levelWaiting])
	s.history.addTo(st)
	st.stopped = st.stopped || s.closed
	st.capacity += int64(s.arena.Cap())
	st.free += int64(s.arena.Vacancy())
	for w := s.finest; w != nil; w = w.overflow {
		if len(st.levels) == int(w.level) {
			st.levels = append(st.levels, levelStats{})
		}
		s.addLevelTo(w, &st.levels[w.level])
	}
}

// addLevelTo adds the figures of one wheel of the shard.
func (s *shard) addLevelTo(w *wheel, l *levelStats) {
	l.Tick = s.clock.duration(w.tick)
	l.Interval = s.clock.duration(w.interval())
	l.Slots = len(w.slots)
	l.CurrentTime = max(l.CurrentTime, s.clock.duration(w.currentTime))
	l.Buckets += w.cascade.open
	l.Entries += int64(s.entries[w.level])
	if s.history != nil {
		l.Cascaded += s.history.cascaded[w.level]
	}
}

func (h *history) addTo(st *engineStats) {
	if h == nil {
		return
	}
	for _, n := range h.cascaded {
		st.Cascaded += n
	}
	st.lateness.merge(&h.lateness)
}
