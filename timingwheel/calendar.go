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
// The prev of one call may be any time: the clock may have been set, forward or back,
// since the call before. So Next should depend on prev alone. A Scheduler that adds a
// fixed interval to prev keeps its phase, except when the clock was set back: then it
// counts from the right time.
//
// For one job, one goroutine at a time calls Next. The first call comes from
// ScheduleFunc. The others come from the executor, most of them at the end of a run and as
// a part of it. Next is called once for a run. It is called at most six times for one with
// missed times behind it, however many these are, and at most twice when the clock is
// found to have been set back.
type Scheduler interface {
	Next(prev time.Time) time.Time
}

const (
	// smallStep is how far the wall clock may be set back so that the job waits for it, as
	// cron(8) does: no time comes twice, and none is lost. Larger steps mean that the clock
	// was wrong. It is more than the hour by which a clock is set at the end of summer, and
	// less than the two hours that a machine is ahead whose clock shows the summer time of
	// Central Europe and is read as UTC. (That is three hours in some crons, which tell jobs
	// of each hour from the others. A Scheduler does not say which it is.)
	smallStep = 90 * time.Minute

	// singleSteps is how many missed times MissedSkip goes through one by one. Only beyond
	// them the phase of a Scheduler may be lost that neither has times of its own nor adds a
	// fixed interval.
	singleSteps = 4
)

// calendar plans the runs of a job by a Scheduler, on the wall clock.
type calendar struct {
	scheduler Scheduler // nil once the job is over
	jitter    time.Duration
	wall      func() time.Time
	wheel     func() time.Duration // the wheel's clock, which nobody sets

	// Guarded by the job's lock. Only the goroutine of a run changes the plan.
	plan
	look time.Duration // how long to wait at the most
	seen time.Duration // when the clock was last looked at before the wait, by the wheel's
}

// plan is the next run. The job has nothing to do at a time between after and planned: so
// the plan is right until the clock shows planned, unless it is set back before after.
type plan struct {
	planned time.Time // of the run that is next, or under way
	after   time.Time // Next of this is planned
	last    time.Time // planned before the last run; zero if there is none that counts
	start   time.Time // what the wall clock said at the wheel's start, as seen with this plan
}

// now returns the time of the wall clock. It drops the monotonic reading, since times
// that have one are compared by it.
func (c *calendar) now() time.Time { return c.wall().Round(0) }

// read returns the time of the wall clock, and what that said at the wheel's start if it was
// not set since.
func (c *calendar) read() (now, start time.Time) {
	now = c.now()
	return now, now.Add(-c.wheel())
}

// wait returns how long to sleep until the planned time or until the next look at the
// clock, whichever is earlier. It is not positive once the planned time has come. It reports
// isBehind if the clock was set back so that another run may be next, and the wait is zero.
func (c *calendar) wait() (wait time.Duration, isBehind bool) {
	now, start := c.read()
	if c.resume(now, start).Before(c.after) {
		return 0, true
	}
	return min(c.planned.Sub(now), c.look), false
}

// resume returns the time after which the job goes on at a reading of the clock. After a
// small step back, that is not before the last run.
func (p *plan) resume(now, start time.Time) time.Time {
	if p.last.After(now) && p.start.Sub(start) <= smallStep {
		return p.last
	}
	return now
}

// ask returns the first time after prev. Only here are times without the jitter: all planned
// times have it, so that no other rule needs to know of it.
func (c *calendar) ask(prev time.Time) (time.Time, error) {
	prev = prev.Add(-c.jitter)
	next := c.scheduler.Next(prev).Round(0)
	if !next.IsZero() && !next.After(prev) {
		return next, fmt.Errorf("timingwheel: %w: Next(%v) returned %v", errNotLater, prev, next)
	}
	if next.IsZero() {
		return next, nil
	}
	return next.Add(c.jitter), nil
}

// The plans that the methods below return have no planned time if no run follows, or if the job
// has ended meanwhile.

// first plans the first run.
func (c *calendar) first() (p plan, err error) {
	p.after, p.start = c.read()
	p.planned, err = c.ask(p.after)
	return p, err
}

// next plans the run after the one that has just ended.
func (c *calendar) next(missed MissedPolicy, hasEnded func() bool) (p plan, err error) {
	if hasEnded() {
		return plan{}, nil
	}
	now, start := c.read()
	p = c.plan
	p.last, p.after = p.planned, p.planned
	if p.resume(now, start).Before(p.after) {
		return c.goBack(p, now, start)
	}
	p.start = start
	p.planned, err = c.ask(p.after)
	switch late := err == nil && !p.planned.IsZero() && p.planned.Before(now); {
	case late && missed == MissedDelay:
		p.after = now
		p.planned, err = c.ask(now)
	case late && missed == MissedSkip:
		return c.skip(p, now, hasEnded)
	}
	return p, err
}

// skip plans the first run that is not before now, where the plan has one that is. After a few
// single steps it leaps, by as many times the last step as end before now: this keeps the
// phase of a fixed interval. If the time after that is not late enough, the steps differ, and
// Next gets the present time.
func (c *calendar) skip(p plan, now time.Time, hasEnded func() bool) (_ plan, err error) {
	for step := 2; !p.planned.IsZero() && p.planned.Before(now); step++ {
		if hasEnded() {
			return plan{}, nil
		}
		interval := p.planned.Sub(p.after)
		p.after = p.planned
		if step == singleSteps+1 {
			p.after = p.after.Add((now.Sub(p.after) - 1) / interval * interval)
		}
		if step > singleSteps+1 {
			p.after = now.Add(-1) // a time that has just come is not missed
		}
		if p.planned, err = c.ask(p.after); err != nil {
			return p, err
		}
	}
	return p, nil
}

// replan plans the next run anew after wait has reported isBehind.
func (c *calendar) replan(hasEnded func() bool) (plan, error) {
	if hasEnded() {
		return plan{}, nil
	}
	now, start := c.read()
	if !c.resume(now, start).Before(c.after) {
		return c.plan, nil // it was set forward again
	}
	// Without a notice, nobody has seen since then which times the right clock has shown.
	unseen := min(c.wheel()-c.seen, lookInterval)
	return c.goBack(c.plan, now.Add(-unseen), start)
}

// goBack returns the plan after the clock was set back to now. After a large step the runs
// that have come by the wrong clock do not count, with one exception: the last one does if
// it is the only one that would come again, and if the one after it is so much later that to
// leave it out is nearer to the schedule. So a yearly job does not run twice if the clock is
// set back by a day.
func (c *calendar) goBack(p plan, now, start time.Time) (_ plan, err error) {
	back := p.start.Sub(start)
	p.after = p.resume(now, start)
	if p.planned, err = c.ask(p.after); err != nil || back <= smallStep {
		return p, err // start stays, so that small steps add up
	}
	p.start = start
	if !p.planned.Equal(p.last) {
		p.last = time.Time{}
		return p, nil
	}
	following, err := c.ask(p.last)
	if err != nil || following.IsZero() || following.Sub(p.last) > 2*back {
		p.planned, p.after = following, p.last
		return p, err
	}
	p.last = time.Time{}
	return p, nil
}
