package timingwheel

import "time"

// Stats is what [TimingWheel.Stats] returns. It encodes to JSON; durations are
// nanoseconds there.
type Stats struct {
	Counts

	CallerRuns int64 // tasks that the driver ran itself because a [Pool] was full
	Discarded  int64 // tasks that a full Pool discarded; they count as Fired too
	Panicked   int64 // tasks whose panic was recovered, those of [Submit] included

	// Running counts the tasks that were handed to the executor and have not ended: those
	// that run, and those that wait in the executor's queue.
	Running int64

	// Waiting counts what is due, but waits for room in a [Pool] of [FullWait], or for an
	// executor that holds the driver up. It is a part of Pending.
	Waiting int64

	// HeldUp is for how long the executor has held the driver up: how long its present
	// function has run on the driver, or how long its present call has gone on if it is an
	// [Executor] of your own. HeldUpBy is that function, or else the executor, as far as
	// known. No other function fires meanwhile. Less than a millisecond is normal; then, and
	// when the wheel is driven by hand, it may be that of several functions in a row. Zero
	// means that there is no call; so it always is under [Goroutines] and under a Pool of
	// FullWait.
	HeldUp   time.Duration
	HeldUpBy string

	Wakeups int64 // how often the driver woke up from its sleep

	Now     time.Duration // since the wheel was made
	Tick    time.Duration // width of a tick, see [WithTick]
	Shards  int           // number of shards, a power of two, see [WithShards]
	Stopped bool          // Stop or Shutdown was called

	// Precise is true if the driver wakes up on time: [WithPreciseWakeups] was given, it
	// works, and Stop was not called.
	Precise bool

	Arena ArenaStats

	// Lateness is how late each of Fired was: from the tick to which its deadline rounds
	// up until the driver came to it. The driver looks at the clock once for up to 256
	// entries. So Lateness contains neither the rounding nor the time that an executor
	// takes to begin. What was due at once is measured from a tick as well, so its
	// lateness is mostly 0.
	Lateness Histogram

	// Levels are the levels of all shards together, the finest first. There are none
	// before the first task that is not due at once, and none after Stop.
	Levels []LevelStats
}

// ArenaStats is the memory for what is pending, in entries of 32 bytes.
type ArenaStats struct {
	Capacity int64 // entries for which there is room
	Free     int64 // of Capacity
}

// LevelStats describes a level: the wheels of one tick in all shards.
type LevelStats struct {
	Tick     time.Duration // width of a slot
	Interval time.Duration // width of the whole wheel: Tick times Slots, at most 292 years
	Slots    int           // number of slots of one wheel

	// CurrentTime is the clock of the wheel that is furthest ahead, since the TimingWheel
	// was made. It moves only when a bucket expires, so on an idle wheel it stands still.
	CurrentTime time.Duration

	Buckets int   // buckets in use, of all shards
	Entries int64 // entries in these, and in buckets of the level that are cascading

	Cascaded int64 // entries that have left the level for a finer one so far
}

// Stats returns what the wheel has done and what it holds. It may be called at any time,
// also on a stopped wheel. It takes the lock of each shard, and some microseconds. The
// figures of one shard were true at one moment; those of the next shard are a moment
// younger.
//
// But Pending and Running are both 0 only if at one moment nothing was pending and nothing
// ran: no task is missed on its way from one to the other.
func (w *TimingWheel) Stats() Stats {
	running, last := &w.runner.running, int64(-1)
	for {
		before := running.Load()
		st := w.look()
		// After what is pending, since a task goes that way; and before, since one that runs
		// may have put itself, or another, on the wheel before it has ended.
		st.Running = max(before, running.Load())
		if st.Pending+st.Running > 0 || st.Scheduled+st.Fired == last {
			return st
		}
		// Nothing is left. But something may have come and gone, shard by shard, ahead of
		// the look. If it did not between two looks, there was nothing in between.
		last = st.Scheduled + st.Fired
	}
}

// look is Stats but for Running.
func (w *TimingWheel) look() Stats {
	r := w.runner
	st := Stats{
		CallerRuns: r.callerRuns.Load(),
		Discarded:  r.discarded.Load(),
		Panicked:   r.panicked.Load(),
		Wakeups:    w.driver.queue.Wakeups(),
		Precise:    w.driver.queue.Precise(),
		Tick:       w.clock.tick,
		Shards:     len(w.shards),
	}
	st.HeldUp, st.HeldUpBy, _ = w.driver.handoff.present()
	for i := range w.shards {
		w.shards[i].addTo(&st)
	}
	st.Lateness.summarize()
	st.Now = w.clock.now() // last, so that no CurrentTime is after it
	return st
}

// addTo adds the shard's figures.
func (s *shard) addTo(st *Stats) {
	s.lock()
	defer s.unlock()
	st.Counts.add(s.counts)
	st.Pending += int64(s.arena.Len())
	st.Waiting += int64(s.entries[levelWaiting])
	s.history.addTo(st)
	st.Stopped = st.Stopped || s.closed
	st.Arena.Capacity += int64(s.arena.Cap())
	st.Arena.Free += int64(s.arena.Vacancy())
	for w := s.finest; w != nil; w = w.overflow {
		if len(st.Levels) == int(w.level) {
			st.Levels = append(st.Levels, LevelStats{})
		}
		w.addTo(&st.Levels[w.level])
	}
}

func (w *wheel) addTo(l *LevelStats) {
	s := w.shard
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

func (h *history) addTo(st *Stats) {
	if h == nil {
		return
	}
	for _, n := range h.cascaded {
		st.Cascaded += n
	}
	st.Lateness.merge(&h.lateness)
}
