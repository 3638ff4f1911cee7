package timingwheel

import "time"

// rate plans the runs of a job with a fixed rate or a fixed delay. Its times count
// from the wheel's start and are not rounded, so that nothing adds up: a rate of 1.5
// ticks runs after 2, 3, 5 and 6 ticks. All of it is guarded by shard.mu.
type rate struct {
	period  time.Duration
	delay   bool          // the period counts from the end of a run
	planned time.Duration // of the run that is next, or under way
}

// ScheduleAtFixedRate runs f first after the initial delay, which is zero if it is
// negative, and then every period. The times at which it is due are planned from the
// first on, and each run is no earlier and as late as one of [TimingWheel.Schedule];
// so a rate does not drift. When a run takes longer than the period, or the process
// is paused, the next runs are late or are left out, as [OnMissed] says, but never
// overlap. By default they catch up. Planned times are not rounded to ticks, so a period
// shorter than a tick has several runs follow one another at each tick.
//
// Runs are tasks on the executor like any other. ScheduleAtFixedRate panics on a
// period that is not positive and on a nil function, and returns [ErrStopped] on a
// stopped wheel. O(1), for each run too.
func (w *TimingWheel) ScheduleAtFixedRate(initial, period time.Duration, f func(), opts ...JobOption) (*Job, error) {
	return w.scheduleRate("ScheduleAtFixedRate", initial, &rate{period: period}, f, opts)
}

// ScheduleWithFixedDelay runs f first after the initial delay, which is zero if it
// is negative, and then again and again, each time the given delay after the run
// before has ended. Nothing can be missed, so that [OnMissed] panics.
//
// Runs are tasks on the executor like any other. ScheduleWithFixedDelay panics on a
// delay that is not positive and on a nil function, and returns [ErrStopped] on a
// stopped wheel. O(1), for each run too.
func (w *TimingWheel) ScheduleWithFixedDelay(initial, delay time.Duration, f func(), opts ...JobOption) (*Job, error) {
	return w.scheduleRate("ScheduleWithFixedDelay", initial, &rate{period: delay, delay: true}, f, opts)
}

func (w *TimingWheel) scheduleRate(name string, initial time.Duration, r *rate, f func(), opts []JobOption) (*Job, error) {
	j := w.newJob(name, f, opts)
	switch {
	case r.period <= 0 && r.delay:
		panic("timingwheel: " + name + ": non-positive delay")
	case r.period <= 0:
		panic("timingwheel: " + name + ": non-positive period")
	case r.delay && j.missedSet:
		panic("timingwheel: " + name + ": OnMissed, but nothing can be missed")
	}
	j.rate = r
	now := w.clock.now()
	r.planned = later(now, max(0, initial))
	return j.start(now, r.planned-now)
}

// next plans the run after the one that has just ended, and returns the time until
// then, which is not positive if it is due.
func (r *rate) next(now time.Duration, missed MissedPolicy) time.Duration {
	planned := later(r.planned, r.period)
	switch {
	case r.delay, missed == MissedDelay && planned < now:
		planned = later(now, r.period)
	case missed == MissedSkip && planned < now:
		planned += (now - planned + r.period - 1) / r.period * r.period
	}
	r.planned = planned
	return planned - now
}

// Reset changes the period of a fixed rate, or the delay of a fixed delay, in place,
// as if the job had been due just now: the next run is due a period from now, and
// the others follow from there. A run that has begun, or that waits in the executor's
// queue, goes on undisturbed. Reset returns false, and changes nothing, if the job
// has ended or follows a [Scheduler]. It panics on a period that is not positive.
func (j *Job) Reset(period time.Duration) bool {
	if period <= 0 {
		panic("timingwheel: non-positive period for Job.Reset")
	}
	now := j.wheel.clock.now()
	j.shard.lock()
	defer j.shard.mu.Unlock()
	if j.ended || j.rate == nil {
		return false
	}
	j.rate.period, j.rate.planned = period, now
	if j.shard.reset(j.handle, delay{now, period}) {
		j.rate.planned = later(now, period)
	}
	return true
}
