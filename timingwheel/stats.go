package timingwheel

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Counts are the totals of a wheel since it was made. They cover all entries of the
// wheel: functions, channel timers, tickers, the deadlines of contexts, and the runs of
// jobs. At any time
//
//	Scheduled = Expired + Stopped + HandedBack + Pending
//
// The words are those of golang/go#75956, which proposes such metrics for package time, where
// both mean the same: pending, expired, stopped and resets; Scheduled is its total. HandedBack,
// Cascaded and Rejected have no counterpart there.
type Counts struct {
	Pending int64 // The number pending now, as [TimingWheel.Len] returns it.

	// Scheduled counts accepted entries. Arming a timer that is not pending counts, and
	// so does each run of a job.
	Scheduled int64

	Expired    int64 // Came due: handed to the executor, sent, or ended a context.
	Stopped    int64 // Canceled or stopped while pending.
	HandedBack int64 // Returned by Stop, moved to package time, or ended with the wheel.

	// Reset counts moves to another time while pending. A Timer's resets to a later time
	// take no lock, from the second on. These are counted when the wheel next comes to
	// the Timer: when it fires or is stopped, at other resets, and at every 1024th.
	Reset int64

	Cascaded int64 // Moves to a finer level. One entry may move several times.
	Rejected int64 // Refused with ErrTooManyPending.
}

// Stats has the figures of a wheel, as [TimingWheel.Stats] returns them. It encodes to
// JSON; durations are nanoseconds there.
type Stats struct {
	Counts

	CallerRuns int64 // Tasks that the driver ran itself because a pool.Pool was full.
	Discarded  int64 // Tasks that a full Pool discarded. Expired counts them, too.
	Refused    int64 // Tasks that the executor refused, see [SubmitFunc]. Expired counts them, too.
	Panicked   int64 // Tasks whose panic was recovered, including those of [Submit].

	// Running counts the tasks that were handed to the executor and have not ended: those
	// that run, and those that wait in the executor's queue.
	Running int64

	// Waiting counts entries that are due, but wait for room in a pool.Pool of pool.Wait,
	// or for an executor that holds the driver up. It is a part of Pending.
	Waiting int64

	// HeldUp is for how long the executor has held the driver up: how long its present
	// function has run on the driver, or how long its present call has gone on if it is
	// an [Executor] of your own. HeldUpBy is that function, or else the executor, as far
	// as known. No other function fires meanwhile. Less than a millisecond is normal;
	// then, and when the wheel is driven by hand, it may be that of several functions in
	// a row. Zero means that there is no call; it is always zero under [Goroutines] and
	// under a Pool of pool.Wait.
	HeldUp   time.Duration
	HeldUpBy string

	Wakeups int64 // The number of times that the driver woke up from its sleep.

	Now    time.Duration // Since the wheel was made.
	Tick   time.Duration // The width of a tick, see [WithTick].
	Shards int           // The number of shards, used or not: a power of two, see [WithShards].
	Closed bool          // Stop or Shutdown was called

	// Precise is true if the driver wakes up on time: [WithPreciseWakeups] was given, it
	// works, and Stop was not called.
	Precise bool

	ProfileRate int // The rate of [WithProfileRate]; 0 without a profile.

	// CountsSuspends is true if deadlines count the time for which the machine is suspended:
	// on Linux if [WithSuspendedTime] was given and works, and on Windows. Suspended is that
	// time since the wheel was made; on Windows it is not known, and zero.
	CountsSuspends bool
	Suspended      time.Duration

	Arena ArenaStats

	// Lateness is how late each of Expired was: from the tick to which its deadline
	// rounds up until the driver came to it. The driver reads the clock once for up to
	// 256 entries. So Lateness contains neither the rounding nor the time that an
	// executor takes to begin. A task that was due at once is measured from a tick as
	// well, so its lateness is mostly 0.
	Lateness Histogram

	// Levels are the levels of all shards together, the finest first. It is empty before
	// the first task that is not due at once, and after Stop.
	Levels []LevelStats
}

// ArenaStats is the memory for pending entries, in units of 32 bytes.
type ArenaStats struct {
	Capacity int64 // Entries for which there is room.
	Free     int64 // The free entries of Capacity.
}

// LevelStats describes a level: the wheels of one tick in all shards.
type LevelStats struct {
	Tick     time.Duration // The width of a slot.
	Interval time.Duration // The width of the whole wheel: Tick times Slots, at most 292 years.
	Slots    int           // The number of slots of one wheel.

	// CurrentTime is the clock of the wheel that is furthest ahead, since the TimingWheel
	// was made. It moves when a bucket expires, and mostly when something is added after
	// an idle stretch. So on an idle wheel it stands still.
	CurrentTime time.Duration

	Buckets int   // Buckets in use, of all shards.
	Entries int64 // Entries in these, and in buckets of the level that are cascading.

	Cascaded int64 // Entries that have left the level for a finer one so far.
}

// Stats returns what the wheel has done and what it holds. It may be called at any time,
// also on a stopped wheel. It takes the lock of each shard, and some microseconds. The
// figures of one shard were true at one moment; those of the next shard are a moment
// younger.
//
// But Pending and Running are both 0 only if at one moment nothing was pending and nothing
// ran: no task is missed on its way from one to the other.
func (w *TimingWheel) Stats() Stats { return newStats(w.engine().Stats()) }

func newStats(s engine.Stats) Stats {
	st := Stats{
		Counts:      Counts(s.Counts),
		CallerRuns:  s.CallerRuns,
		Discarded:   s.Discarded,
		Refused:     s.Refused,
		Panicked:    s.Panicked,
		Running:     s.Running,
		Waiting:     s.Waiting,
		HeldUp:      s.HeldUp,
		HeldUpBy:    s.HeldUpBy,
		Wakeups:     s.Wakeups,
		Now:         s.Now,
		Tick:        s.Tick,
		Shards:      s.Shards,
		Closed:      s.Closed,
		Precise:     s.Precise,
		ProfileRate: s.ProfileRate,
		Arena:       ArenaStats{Capacity: s.Capacity, Free: s.Free},
		Lateness:    Histogram(s.Lateness),

		CountsSuspends: s.Suspends,
		Suspended:      s.Suspended,
	}
	for _, l := range s.Levels {
		st.Levels = append(st.Levels, LevelStats(l))
	}
	return st
}

// Snapshot describes the pending entries by slot, as [TimingWheel.Snapshot] returns them.
// It encodes to JSON, where durations are nanoseconds, if JSON can have the times of Next: a
// wheel of [WithManualClock] may have years after 9999.
type Snapshot struct {
	Now       time.Duration    // Since the wheel was made.
	Pending   int64            // The sum of Due, Waiting, Cascading and all of Occupied.
	Due       int64            // Due at once, and not yet handed on by the driver.
	Waiting   int64            // As in [Stats].
	Cascading int64            // In buckets of the levels that are being flushed.
	Levels    []LevelOccupancy // The levels of all shards together, the finest first.
	Next      []time.Time      // The next deadlines, rounded up to a tick, the earliest first.
}

// LevelOccupancy describes a level and how much each of its slots holds.
type LevelOccupancy struct {
	LevelStats
	Hand int // The number of the slot of CurrentTime.

	// Occupied has the number of entries of each slot. A level holds the entries that are
	// due before its next revolution; the coarser levels have the rest. So the slots up
	// to the Hand are empty, except for entries that have expired and wait to be flushed.
	// An entry that was pushed back is counted in the slot of its new deadline, also
	// while it waits in an earlier one.
	Occupied []int32
}

// Snapshot returns how many entries wait in each slot, and the next deadlines, as many as
// next says. It returns no deadlines if next is not positive. It is for debugging. It may
// be called at any time, and by several goroutines. On a stopped wheel all but Now is
// zero.
//
// It passes over all that is pending, at a few nanoseconds each. (With a large next it
// takes more, since the deadlines are sorted.) After every 1024 entries it releases the
// lock, so it delays no other call for long. An entry that is added, fires or moves to a
// finer level meanwhile may be counted or not. The same is true of entries that the wheel
// moves in memory because it has become much emptier. Each entry is counted at most once,
// so Pending is the sum of Due, Waiting, Cascading and all of Occupied. (A timer that
// fires and is armed again is another entry then.)
func (w *TimingWheel) Snapshot(next int) Snapshot {
	s := w.engine().Snapshot(next)
	sn := Snapshot{Now: s.Now, Pending: s.Pending, Due: s.Due, Waiting: s.Waiting, Cascading: s.Cascading, Next: s.Next}
	for _, l := range s.Levels {
		sn.Levels = append(sn.Levels, LevelOccupancy{LevelStats: LevelStats(l.LevelStats), Hand: l.Hand, Occupied: l.Occupied})
	}
	return sn
}

// HistogramBuckets is the number of buckets of a [Histogram].
const HistogramBuckets = 28

// Histogram counts durations, in buckets whose bounds are powers of two.
type Histogram struct {
	// Counts[0] counts what is less than 1us. Counts[i] counts what is at least 2^(i-1)
	// us and less than 2^i us. The last one, from 67 s, has no upper bound.
	Counts [HistogramBuckets]int64
	Sum    time.Duration // The sum of all durations, at most 292 years.
	Max    time.Duration

	// P50 to P999 are the quantiles 0.5 to 0.999. Stats fills them in.
	P50, P90, P99, P999 time.Duration
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
	return Histogram(engine.Histogram(h).Sub(engine.Histogram(earlier)))
}

// UpperBound returns the exclusive upper bound of Counts[i]. The last one has no bound:
// for it, UpperBound returns Max plus 1ns. It panics on a negative i. An i that is too
// large counts as the last.
func (h *Histogram) UpperBound(i int) time.Duration { return (*engine.Histogram)(h).UpperBound(i) }

// Total returns how many were counted.
func (h *Histogram) Total() int64 { return (*engine.Histogram)(h).Total() }

// Quantile returns a duration that at least the fraction q of the counted durations does
// not exceed. It returns the upper bound of a bucket, or Max if that is less. So the
// result is at most twice too large (or 1us, in the first bucket); beyond 67 s it is Max.
//
// It returns 0 if nothing was counted. A q below 0 and NaN count as 0, whose result is
// that of the shortest duration. A q above 1 counts as 1.
func (h *Histogram) Quantile(q float64) time.Duration { return (*engine.Histogram)(h).Quantile(q) }
