package timingwheel

import (
	"fmt"
	"time"
)

// Scheduler says when a job of [TimingWheel.ScheduleFunc] runs. Next returns the first
// time after prev at which the job is to run, or the zero time if no run follows. The
// schedules of cron libraries fit as they are, for example those of
// github.com/netresearch/go-cron.
//
// For one job, one goroutine at a time calls Next. The first call comes from
// ScheduleFunc; the others come from the executor, at the end of a run and as a part of
// it.
type Scheduler interface {
	Next(prev time.Time) time.Time
}

// calendar plans the runs of a job by a Scheduler, on the wall clock.
type calendar struct {
	scheduler Scheduler // nil once the job is over
	planned   time.Time // of the run that is next, or under way; guarded by the job's lock
	wall      func() time.Time
	look      time.Duration // how long to wait at the most; guarded by the job's lock
}

// now returns the time of the wall clock. It drops the monotonic reading, since times
// that have one are compared by it.
func (c *calendar) now() time.Time { return c.wall().Round(0) }

// wait returns how long to sleep until the planned time or until the next look at the
// clock, whichever is earlier. It is not positive once the planned time has come.
func (c *calendar) wait() time.Duration {
	return min(c.planned.Sub(c.now()), c.look)
}

// ask returns what comes after prev.
func (c *calendar) ask(prev time.Time) (time.Time, error) {
	next := c.scheduler.Next(prev).Round(0)
	if !next.IsZero() && !next.After(prev) {
		return next, fmt.Errorf("timingwheel: %w: Next(%v) returned %v", errNotLater, prev, next)
	}
	return next, nil
}

// next returns the planned time of the run after the one that has just ended. It returns
// the zero time if there is none, or if the job has ended meanwhile. Only the goroutine
// of that run changes planned.
func (c *calendar) next(missed MissedPolicy, hasEnded func() bool) (next time.Time, err error) {
	if hasEnded() {
		return time.Time{}, nil
	}
	next, err = c.ask(c.planned)
	now := c.now()
	late := func() bool { return err == nil && !next.IsZero() && next.Before(now) }
	if missed == MissedDelay && late() {
		return c.ask(now)
	}
	for missed == MissedSkip && late() {
		if hasEnded() {
			return time.Time{}, nil
		}
		next, err = c.ask(next)
	}
	return next, err
}
