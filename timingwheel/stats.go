package timingwheel

import "time"

// Stats is what [TimingWheel.Stats] returns. It encodes to JSON as it is; durations
// are nanoseconds then.
type Stats struct {
	Counts

	CallerRuns int64 // tasks that the driver ran itself because a [Pool] was full
	Discarded  int64 // tasks that a full Pool has discarded; a part of Fired
	Panicked   int64 // tasks that panicked and were recovered, those of [Submit] too

	// Running counts the tasks that were handed to the executor and have not ended: those
	// that run, and those that wait in its queue.
	Running int64

	// Waiting counts those of Pending that are due, and wait for room in a [Pool] of
	// [FullWait], or for an executor that holds the driver up.
	Waiting int64

	// HeldUp is for how long the executor has been in its present call, and HeldUpBy the
	// function that it runs on the driver, or else the executor, as far as known. A call of
	// less than a millisecond is normal; zero means that there is none, as always under
	// [Goroutines] and under a Pool of FullWait. No function fires meanwhile.
	HeldUp   time.Duration
	HeldUpBy string

	Wakeups int64 // of the driver, from its sleep

	Now     time.Duration // since the wheel was made
	Tick    time.Duration // as [WithTick] has set it
	Shards  int           // as [WithShards] has set it, rounded up
	Stopped bool          // Stop was called, or Shutdown

	// Precise is true if the driver is woken on time: there is [WithPreciseWakeups], it
	// works, and Stop was not called.
	Precise bool

	Arena ArenaStats

	// Lateness is by how much each of Fired was late: from the tick to which its deadline
	// rounds up until the driver came to it, looking at the clock once for 256. So the
	// rounding is not in it, nor the time that an executor takes to begin. What was due at
	// once is reckoned from a tick as well, and so is mostly 0.
	Lateness Histogram

	// Levels are those of all shards together, the finest first. There are none before the
	// first task that is not due at once, and none after Stop.
	Levels []LevelStats
}

// ArenaStats is the memory of the pending, in entries of 32 bytes.
type ArenaStats struct {
	Capacity int64 // entries that there is room for
	Free     int64 // of Capacity
}

// LevelStats describes a level: the wheels of that tick in all shards.
type LevelStats struct {
	Tick     time.Duration // width of a slot
	Interval time.Duration // of the whole wheel: Tick times its slots, no more than 292 years
	Slots    int           // of one wheel

	// CurrentTime is that of the wheel that is furthest, since the making of the
	// TimingWheel. It moves when a bucket expires, so on an idle wheel it stands.
	CurrentTime time.Duration

	Buckets int   // that are in use, of all shards
	Entries int64 // in them, and in a bucket of the level that is cascading

	Cascaded int64 // entries that have left the level for a finer one, since the start
}

// Stats returns what the wheel has done and what it holds. It may be called at any time,
// on a stopped wheel too, and costs a lock of each shard, some microseconds. The figures of
// one shard belong together; those of another are a moment younger.
func (w *TimingWheel) Stats() Stats {
	r := w.runner
	st := Stats{
		CallerRuns: r.callerRuns.Load(),
		Discarded:  r.discarded.Load(),
		Panicked:   r.panicked.Load(),
		Running:    r.running.count(),
		Waiting:    w.driver.waiting.Load(),
		HeldUp:     w.driver.caller.heldUp(),
		Wakeups:    w.driver.queue.Wakeups(),
		Precise:    w.driver.queue.Precise(),
		Tick:       w.clock.tick,
		Shards:     len(w.shards),
	}
	if st.HeldUp > 0 {
		st.HeldUpBy = w.driver.caller.culprit()
	}
	for i := range w.shards {
		w.shards[i].addTo(&st)
	}
	st.Lateness.summarize()
	st.Now = w.clock.now() // last, since the driver moves on: no CurrentTime is after it
	return st
}

// addTo adds the shard's figures.
func (s *shard) addTo(st *Stats) {
	s.lock()
	defer s.unlock()
	st.Counts.add(s.counts)
	st.Pending += int64(s.arena.Len())
	for _, n := range s.cascaded {
		st.Cascaded += n
	}
	st.Stopped = st.Stopped || s.closed
	st.Arena.Capacity += int64(s.arena.Cap())
	st.Arena.Free += int64(s.arena.Vacancy())
	st.Lateness.merge(&s.lateness)
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
	l.Cascaded += s.cascaded[w.level]
}
