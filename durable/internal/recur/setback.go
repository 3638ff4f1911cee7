package recur

import "time"

// smallStep is how far the engine's clock may be set back so that schedules wait for it, as
// with a job of package timingwheel: no occurrence runs twice, and none is lost. After a
// larger step the clock was wrong, and schedules go on at once, by the right one.
const smallStep = 90 * time.Minute

// setback is what a Calendar knows of steps of the engine's clock. It is guarded by the
// Calendar's lock.
type setback struct {
	latest time.Time     // that the clock has shown since it was last put right
	wrong  time.Time     // the latest when it was; zero: it never was
	by     time.Duration // by how much
}

// Saw takes a reading of the engine's clock, and the time that it would have shown if it had not
// been set since the last call. Saw reports whether the clock was put right after it was ahead.
// Small steps count together until the clock has caught up.
func (c *Calendar) Saw(now, expected time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range []time.Time{now, expected} {
		if t.After(c.latest) {
			c.latest = t
		}
	}
	back := c.latest.Sub(now)
	if back <= smallStep {
		return false
	}
	c.setback = setback{latest: now, wrong: c.latest, by: back}
	return true
}

// counts reports whether something that has happened at t, by the engine's clock, did not happen by a
// wrong clock. If this process has not seen the step, the time from now to t tells.
func (c *Calendar) counts(t, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !t.After(now) || t.After(c.wrong) && t.Sub(now) <= smallStep
}

// resume returns the time after which a schedule goes on now: now, or the last occurrence if that is
// later and counts. It also counts if it is the only one that would run again and
// if the one after it is so much later that to leave it out is nearer to the schedule.
func (c *Calendar) resume(next times, last, now time.Time) time.Time {
	if !last.After(now) {
		return now
	}
	if c.counts(last, now) {
		return last
	}
	c.mu.Lock()
	back := last.Sub(now)
	if !last.After(c.wrong) {
		back = c.by
	}
	c.mu.Unlock()
	if next(now).Equal(last) {
		if following := next(last); following.IsZero() || following.Sub(last)/2 > back {
			return last
		}
	}
	return now
}

// IsAhead reports whether an occurrence that waits until due has to be replaced, since an earlier
// one is next by now. It may be wrong if the occurrence was rescheduled.
func (c *Calendar) IsAhead(name string, s *Schedule, last, due time.Time) bool {
	t, err := c.timesOf(s)
	if err != nil {
		return false
	}
	at := t(c.resume(t, last, c.now()))
	return !at.IsZero() && due.After(s.due(name, at))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
