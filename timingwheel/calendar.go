package timingwheel

import (
	"errors"
	"fmt"
	"time"
)

// Scheduler says when a job of [TimingWheel.ScheduleFunc] runs: Next returns the
// first time after prev at which it is to run, or the zero time if there is none. The
// schedules of cron libraries fit as they are, that of github.com/robfig/cron/v3
// among them. For one job Next is called by one goroutine at a time. But for the first
// time it is called on the executor, at the end of a run and as a part of it.
type Scheduler interface {
	Next(prev time.Time) time.Time
}

// lookInterval is how often a job looks at the wall clock while it waits: as often as
// cron does.
const lookInterval = time.Minute

// calendar plans the runs of a job by a Scheduler, on the wall clock.
type calendar struct {
	scheduler Scheduler // nil once the job is over
	planned   time.Time // of the run that is next, or under way; guarded by shard.mu
	wall      func() time.Time
}

// ScheduleFunc runs f at the times of a [Scheduler], which is asked for the first
// with the present time and for each one after with the planned time before, when
// that run has ended. When it answers with the zero time the job ends, with a nil
// Err. One that is not later than the time it was asked with ends the job with an
// error, or is returned as an error if it is the first. Planned times that have passed
// by then are left out, unless [OnMissed] says otherwise; to find the first that is
// still to come, Next is called once for each.
//
// The times are those of the wall clock, other than everywhere else in this package. The
// wheel sleeps for at most a minute (or a tick, if that is longer) toward one before it
// looks at the wall clock again. So a daily job runs when the wall clock says so, and at
// most a minute later after the clock was set forward or the machine was suspended; when
// it was set back, the job waits again.
//
// Runs are tasks on the executor like any other, as late as one of
// [TimingWheel.Schedule] and never early by the wall clock. ScheduleFunc panics on a
// nil Scheduler or function, and returns [ErrStopped] on a stopped wheel. O(1), and
// what Next costs.
func (w *TimingWheel) ScheduleFunc(s Scheduler, f func(), opts ...JobOption) (*Job, error) {
	if s == nil {
		panic("timingwheel: ScheduleFunc: nil Scheduler")
	}
	if w.ctx.Err() != nil {
		return nil, ErrStopped
	}
	j := w.newJob("ScheduleFunc", f, append([]JobOption{OnMissed(MissedSkip)}, opts...))
	j.calendar = &calendar{scheduler: s, wall: w.wall}
	first, err := j.calendar.ask(j.calendar.now())
	if err != nil {
		return nil, err
	}
	if first.IsZero() {
		j.shard = &w.shards[0]
		j.end(nil)
		return j, nil
	}
	j.calendar.planned = first
	return j.start(w.clock.now(), j.calendar.wait())
}

// now returns the time of the wall clock, without the monotonic reading, or else
// times would be compared by that.
func (c *calendar) now() time.Time { return c.wall().Round(0) }

// wait returns how long to sleep until the planned time, or until the next look at
// the clock; not more than zero if it has come.
func (c *calendar) wait() time.Duration {
	return min(c.planned.Sub(c.now()), lookInterval)
}

// ask returns what comes after prev.
func (c *calendar) ask(prev time.Time) (time.Time, error) {
	next := c.scheduler.Next(prev).Round(0)
	if !next.IsZero() && !next.After(prev) {
		return next, fmt.Errorf("timingwheel: %w: Next(%v) returned %v", errNotLater, prev, next)
	}
	return next, nil
}

var errNotLater = errors.New("the Scheduler does not advance")

// next returns the planned time of the run after the one that has just ended, and
// zero if there is none, or the job has ended meanwhile. Only the goroutine of that
// run changes planned.
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
