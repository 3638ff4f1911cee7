// Package recur knows when the occurrences of schedules are, and which follows which.
package recur

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/cron"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// The next occurrence is stored with the end of the one before, in one commit, on the condition that
// the schedule is as it was when what follows was made. So there is always one occurrence
// that waits or runs, whatever happens, and a schedule that was changed, paused or deleted
// meanwhile is followed as it is.
//
// An occurrence runs once by its time, and a change that keeps the times keeps each that has
// not run. For that, the times of occurrences only grow: each is after the one that it
// follows, and after the Last of the schedule. A change replaces the one that waits by one of
// the same time, if that is one of the schedule's (replacement). And what was missed before a
// change is made up for, if the change has kept the times (Schedule.Since).
//
// There is one exception: an engine's clock that was wrong, and is put right. Occurrences that have
// run by the wrong clock do not count, and the one that waits is made anew (setback.go).

// Calendar knows the times of schedules, and which occurrence follows which. Its methods may be
// called by several goroutines at once.
type Calendar struct {
	engine driver.Engine
	log    *slog.Logger
	now    func() time.Time // by the engine's clock
	added  *atomic.Int64    // occurrences that Store has added

	mu    sync.Mutex
	specs map[string]*cron.Spec // those that were read; nil: one that cannot be read
	setback
}

// NewCalendar returns a Calendar of the schedules of an engine; now is by its clock. It adds to added the
// occurrences that Store adds.
func NewCalendar(e driver.Engine, log *slog.Logger, now func() time.Time, added *atomic.Int64) *Calendar {
	return &Calendar{engine: e, log: log, now: now, added: added, specs: map[string]*cron.Spec{}}
}

// ErrUnreadable is the error of a schedule that a newer release has stored.
var ErrUnreadable = fmt.Errorf("%w: this version cannot read the spec", driver.ErrInvalid)

// timesOf returns the times of a schedule.
func (c *Calendar) timesOf(s *Schedule) (times, error) {
	spec := c.spec(s.Spec)
	if spec == nil {
		return nil, fmt.Errorf("%w: %.300q", ErrUnreadable, s.Spec)
	}
	start, end := FromMicros(s.Start), FromMicros(s.End)
	from := func(prev time.Time) time.Time { return spec.NextFrom(start, prev) }
	if start.IsZero() {
		from = spec.Next // whose intervals count from 1970
	}
	return func(prev time.Time) time.Time {
		at := from(prev)
		if at.IsZero() || !end.IsZero() && !at.Before(end) {
			return time.Time{}
		}
		return clock.WholeMicros(at)
	}, nil
}

// maxSpecs is how many specs are kept that were read.
const maxSpecs = 4096

// spec reads a spec, and keeps it; nil if it cannot be read here.
func (c *Calendar) spec(text string) *cron.Spec {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.specs[text]
	if !ok {
		s, _ = cron.Parse(text)
		if len(c.specs) >= maxSpecs {
			clear(c.specs)
		}
		c.specs[text] = s
	}
	return s
}

// MayFollow reports whether an occurrence, by its text, may end here. If its spec cannot be read,
// a release that can read it has to store the next one.
func (c *Calendar) MayFollow(occurrence string) bool {
	return c.spec(DecodeOccurrence(occurrence).Spec) != nil
}

// Replacement is the [driver.Replace] of a schedule: the first occurrence from now on, unless the
// one that waits is before that and at one of the schedule's times.
func (c *Calendar) Replacement(name string, s *Schedule, revision int64, last time.Time, waits *driver.Record) (*driver.Record, error) {
	t, err := c.timesOf(s)
	if err != nil {
		return nil, err
	}
	now := c.now()
	if waits != nil && !waits.Due.After(now) && c.MayFollow(waits.Occurrence) {
		return waits, nil // it may begin at any moment, and its end is followed by the schedule
	}
	at := t(c.resume(t, last, now))
	due := s.due(name, at)
	if waits != nil {
		was, kept := DecodeOccurrence(waits.Occurrence), Occurred(waits)
		if again := t(kept.Add(-time.Microsecond)); !was.Pass && again.Equal(kept) && (at.IsZero() || !kept.After(at)) {
			if at, due = kept, s.due(name, kept); !waits.Due.Equal(was.due(name, kept)) && !waits.Due.Equal(madeAt(waits.ID)) {
				due = waits.Due // it was rescheduled, or snoozed, and not overdue when it was made
			}
		}
	}
	if at.IsZero() {
		return nil, nil
	}
	return s.occurrence(name, revision, t, s.Job, at, due, now)
}

// MayBeMissed reports whether a record is an occurrence that is missed if it begins too late. One that has begun before, or
// was rescheduled, is not.
func MayBeMissed(r *driver.Record) bool {
	return r.IsOccurrence() && r.Version == 0 && r.Attempt == 0 && r.Crashes == 0
}

// IsLeftOut reports whether a record that begins is an occurrence that MissedEach(n) leaves out: it was
// missed, and so were n later ones.
func (c *Calendar) IsLeftOut(r *driver.Record, began time.Time) bool {
	if !MayBeMissed(r) {
		return false
	}
	o, at := DecodeOccurrence(r.Occurrence), Occurred(r)
	if o.Missed <= 0 || !r.Due.Equal(o.due(r.Schedule, at)) && !r.Due.Equal(madeAt(r.ID)) {
		return false
	}
	t, err := c.timesOf(&o.Schedule)
	if err != nil {
		return false
	}
	// n later times take at least n steps, each of at least a second, or of the interval of @every.
	// With a large n this saves the search for each of many that were missed.
	step := cmp.Or(c.spec(o.Spec).Interval(), time.Second)
	return began.Sub(at)/step >= time.Duration(o.Missed) && lastOf(t, at.Add(-time.Microsecond), began, o.Missed).After(at)
}

// Follow sets what follows an occurrence that has begun and now ends, by the schedule
// that came with it.
func (c *Calendar) Follow(out *driver.Completion, began time.Time) {
	r := &out.Delivery.Record
	if !r.IsOccurrence() || out.End == driver.Retry {
		return
	}
	o := DecodeOccurrence(r.Occurrence)
	out.Revision = o.Revision
	if !out.Uncounted && !o.Pass {
		out.Occurred = Occurred(r)
	}
	if r.Version > 0 {
		out.Revision = noRevision // it may have been dead, and others have run since: FollowAgain knows
		return
	}
	out.Next = c.successor(r, &o.Schedule, o.Revision, TemplateOf(&r.Job), began, Occurred(r))
}

// Tries bounds how often a change is tried because others change the schedule, or the limits.
const Tries = 100

// noRevision is the revision of no schedule.
const noRevision = -1

// successor makes the record of the occurrence that follows one at a time; nil if there is
// none. Where the spec cannot be read it makes a placeholder, and a release that can read it
// makes the next one.
func (c *Calendar) successor(r *driver.Record, s *Schedule, revision int64, j *Template, began, at time.Time) (next *driver.Record) {
	now := c.now()
	t, err := c.timesOf(s)
	switch {
	case errors.Is(err, ErrUnreadable):
		next, err = s.occurrence(r.Schedule, revision, nil, j, at, s.due(r.Schedule, at), now)
	case err == nil:
		if from := earlier(FromMicros(s.Since), now); at.Before(from) {
			at = from
		}
		if !c.counts(began, now) {
			at, began = c.resume(t, at, now), now // the clock was put right while it ran
		}
		if at = s.after(t, at, began, now); !at.IsZero() {
			next, err = s.occurrence(r.Schedule, revision, t, j, at, s.due(r.Schedule, at), now)
		}
	}
	if err != nil {
		c.log.Error("durable: a schedule ends; no occurrence can follow", "name", r.Schedule, "error", err)
		return nil
	}
	return next
}

// FollowAgain is follow by the schedule as it is stored now.
func (c *Calendar) FollowAgain(ctx context.Context, out *driver.Completion, began time.Time) error {
	r := &out.Delivery.Record
	stored, err := c.engine.Schedule(ctx, r.Schedule)
	if err != nil && !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	out.Next, out.Revision = nil, stored.Revision
	at := Occurred(r)
	if !at.After(stored.Last) && c.counts(stored.Last, c.now()) { // it was redriven
		at, out.Occurred = stored.Last, time.Time{}
	}
	s, j := DecodeSchedule(stored.Definition), TemplateOf(&r.Job)
	if s.Job != nil {
		j = s.Job
	}
	if stored.Definition != "" && !s.Paused {
		out.Next = c.successor(r, s, stored.Revision, j, began, at)
	}
	return nil
}
