package timingwheel

import (
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// rate plans the runs of a job with a fixed rate or a fixed delay. Its times count from
// the wheel's start and are not rounded, so that no error adds up: a rate of 1.5 ticks
// runs after 2, 3, 5 and 6 ticks. All of it is guarded by the lock of the job's shard.
type rate struct {
	period  time.Duration
	fromEnd bool          // a fixed delay: the period counts from the end of a run
	planned time.Duration // of the run that is next, or under way
	reset   time.Duration // when the period was last changed
}

// next plans the run after the one that has just ended. It returns the time until then,
// which is not positive if the run is due.
func (r *rate) next(now time.Duration, missed MissedPolicy) time.Duration {
	planned := engine.Later(max(r.planned, r.reset), r.period)
	switch {
	case r.fromEnd, missed == MissedDelay && planned < now:
		planned = engine.Later(now, r.period)
	case missed == MissedSkip && planned < now:
		planned += (now - planned + r.period - 1) / r.period * r.period
	}
	r.planned = planned
	return planned - now
}
