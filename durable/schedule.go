package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/cron"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/valid"
)

// ScheduleOption sets how [Queue.SetSchedule] makes occurrences.
type ScheduleOption func(*recur.Schedule) error

// MissedPolicy decides about missed occurrences: their time has passed while no worker was
// there, or while the one before ran or waited for its next attempt.
type MissedPolicy int

// The policies for missed occurrences; [MissedEach] is another.
const (
	MissedOnce MissedPolicy = 0 // One occurrence runs at once, for all that were missed.

	// MissedSkip leaves out an occurrence that has not begun a minute after its time, or when the next is due. No later
	// attempt begins after that time either: an occurrence that has begun, or was rescheduled, is then dead with
	// [ErrExpired].
	MissedSkip MissedPolicy = -1
)

// MissedEach runs each of the last n missed occurrences, one after the other. Earlier ones
// are left out, also the one that waited, unless an attempt of it has begun or it was
// rescheduled.
func MissedEach(n int) MissedPolicy { return MissedPolicy(n) }

// OnMissed sets the policy for missed occurrences. The default is MissedOnce.
func OnMissed(m MissedPolicy) ScheduleOption {
	return func(p *recur.Schedule) error {
		if m < MissedSkip || m > 1<<20 {
			return fmt.Errorf("%w: OnMissed(%d)", ErrInvalid, m)
		}
		p.Missed = int(m)
		return nil
	}
}

// SkipOverlap leaves out an occurrence whose time comes while the one before runs. By default it
// begins when that has ended, and [MissedPolicy] decides about several. Two never run at the same time.
func SkipOverlap() ScheduleOption {
	return func(p *recur.Schedule) error {
		p.Skip = true
		return nil
	}
}

// Jitter delays each occurrence by a random time of less than d, evenly spread, so that
// many schedules of one time do not begin at once. d should be less than the time between
// two occurrences. Less than a microsecond is 0, which delays nothing, and a negative d is
// [ErrInvalid].
func Jitter(d time.Duration) ScheduleOption {
	return func(p *recur.Schedule) error {
		if d < 0 {
			return fmt.Errorf("%w: Jitter(%v)", ErrInvalid, d)
		}
		p.Jitter = d.Microseconds()
		return nil
	}
}

// StartAt sets a time before which no occurrence comes. The intervals of @every are
// counted from it, and it is the first of them. The zero time, as without StartAt, counts
// them from 1970. A time before the year 1, or beyond the year 9999, is refused.
func StartAt(t time.Time) ScheduleOption {
	return func(p *recur.Schedule) (err error) {
		p.Start, err = moment(t)
		return err
	}
}

// moment returns a time in whole microseconds, rounded up. Earlier times than the zero time
// would overflow at some point.
func moment(t time.Time) (int64, error) {
	t = clock.WholeMicros(t)
	err := valid.Time(t)
	if t.Before(time.Time{}) {
		err = fmt.Errorf("the time %v is before the year 1", t)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return t.UnixMicro(), nil
}

// EndAt sets a time from which on no occurrence comes. The zero time sets no end, as without
// EndAt. A time before the year 1, or beyond the year 9999, is refused.
func EndAt(t time.Time) ScheduleOption {
	return func(p *recur.Schedule) (err error) {
		p.End, err = moment(t)
		if err == nil && p.End == 0 {
			p.End = -1 // the start of 1970: 0 is no end. The times of a spec are whole milliseconds
		}
		return err
	}
}

// SetSchedule stores a schedule under a name: the job recurs at the times of spec, until it
// is paused or deleted. At, After, Key and Expires of j are not used. The spec is a cron
// expression, with a time zone if it does not mean UTC, or an interval, such as
//
//	"30 8 * * MON-FRI"   "CRON_TZ=Europe/Berlin @daily"   "@every 15s"
//
// Package cron documents the syntax, and what happens when clocks are set. Since the
// schedule is stored, each process that has a handler for the job can run its
// occurrences, whether or not it knows the schedule, also a process of an older or newer
// release. The worker that ran an occurrence stores the next one with its end, in one
// commit.
//
// Any number of processes may call SetSchedule when they start: one schedule is made. If the
// stored schedule of the name is the same, nothing changes; otherwise SetSchedule changes
// it. An occurrence that runs or is due is followed by the new ones. A waiting occurrence
// is replaced, by one of the same time unless the new spec has other times. A change that
// keeps the spec and StartAt loses no occurrence, and no missed one. A paused schedule
// stays paused.
//
// For each time of the schedule at most one occurrence runs, apart from its attempts. If
// the engine's clock is set back by up to 90 minutes, the next occurrence is after the
// last that has run, so none runs twice and none is lost. Call DeleteSchedule, and
// SetSchedule again, to forget the last.
//
// A larger step back means that the clock was wrong. Each open Queue sees it within a
// second, and the schedule goes on at its next time by the right clock. Occurrences that
// ran by the wrong clock may run again at their right time. The last of them does not if
// it is the only one and the one after it comes more than twice as much later as the
// clock was set back: a yearly occurrence does not run again after a step of a day. If
// no Queue was open at the step, a call of SetSchedule or ResumeSchedule has the same effect.
// An occurrence that waits for another attempt keeps its due time.
//
// At most one occurrence of a schedule waits or runs at a time. It is retried like any
// other job; the next one follows when it is done or dead. If it is canceled, by Ref or
// key, the schedule stands still until SetSchedule is called again, or ResumeSchedule.
//
// Bad input returns an ErrInvalid with the reason, and nothing is written: the name is
// empty, unprintable or too long, the spec cannot be read, the zone does not exist, no
// time is left, or the job is not valid.
func (q *Queue) SetSchedule(ctx context.Context, name, spec string, j Job, opts ...ScheduleOption) error {
	p := &recur.Schedule{Spec: spec}
	err := errors.New("empty")
	if spec != "" {
		_, err = cron.Parse(spec)
	}
	if err != nil {
		return fmt.Errorf("durable: SetSchedule(%.300q): %w: %w", name, ErrInvalid, err)
	}
	for _, opt := range opts {
		if opt == nil {
			panic("durable: SetSchedule: nil ScheduleOption")
		}
		if err := opt(p); err != nil {
			return fmt.Errorf("durable: SetSchedule(%.300q): %w", name, err)
		}
	}
	if err := q.storeSchedule(ctx, name, p, j); err != nil {
		return fmt.Errorf("durable: SetSchedule(%.300q): %w", name, err)
	}
	return nil
}

var errNoTime = fmt.Errorf("%w: there is no time left", ErrInvalid)

// storeSchedule makes a schedule, or changes the one that is there.
func (l *link) storeSchedule(ctx context.Context, name string, p *recur.Schedule, j Job) error {
	if l.closed.Err() != nil {
		return ErrClosed
	}
	j.At, j.After, j.Expires = time.Time{}, 0, time.Time{}
	rec, err := driver.NewOccurrence(j, name, l.clock.Time())
	if err != nil {
		return err
	}
	p.Job = recur.TemplateOf(&rec.Job)
	for range recur.Tries {
		s, old, err := l.calendar.Stored(ctx, name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		p.Paused, p.Since = false, l.clock.Time().UnixMicro()
		if old != nil {
			p.Paused = old.Paused
			if old.Spec == p.Spec && old.Start == p.Start {
				p.Since = old.Since
			}
		}
		switch next, err := l.calendar.Replacement(name, p, 0, time.Time{}, nil); {
		case err != nil:
			return err
		case next == nil:
			return errNoTime
		}
		if old != nil && s.Definition == p.Encode() {
			stays := p.Paused
			if !stays {
				o, err := l.calendar.Occurrence(ctx, name)
				if err != nil {
					return err
				}
				stays = o.State != 0 && !(recur.Waits(&o) && l.calendar.IsAhead(name, p, s.Last, o.Due))
			}
			if stays {
				if err := l.calendar.Confirm(ctx, s); !errors.Is(err, driver.ErrChanged) {
					return err
				}
				continue
			}
		}
		if err := l.calendar.Store(ctx, s, p, true); !errors.Is(err, driver.ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("%w: gave up after %d conflicting updates", ErrUncertain, recur.Tries)
}

// ScheduleInfo describes a schedule.
type ScheduleInfo struct {
	Name   string
	Spec   string
	Job    Job // The job of each occurrence; At, After, Key and Expires are not set.
	Paused bool
	Missed MissedPolicy
	Skip   bool // SkipOverlap
	Jitter time.Duration
	Start  time.Time // Zero if not set, like End.
	End    time.Time

	Last time.Time // The time of the last occurrence that has ended, by the schedule; zero if none has.
	Next time.Time // The due time of the occurrence that waits or runs; zero if none does.
	Ref  Ref       // The Ref of that occurrence.
}

// Schedules lists the stored schedules, by name. It makes three or four reads for each.
// An error is the last element.
func (q *Queue) Schedules(ctx context.Context) iter.Seq2[ScheduleInfo, error] {
	return func(yield func(ScheduleInfo, error) bool) {
		if q.closed.Err() != nil {
			yield(ScheduleInfo{}, ErrClosed)
			return
		}
		var all []driver.Schedule
		for s, err := range q.engine.Schedules(ctx) {
			if err != nil {
				yield(ScheduleInfo{}, err)
				return
			}
			all = append(all, s)
		}
		slices.SortFunc(all, func(a, b driver.Schedule) int { return cmp.Compare(a.Name, b.Name) })
		for _, s := range all {
			info, err := describe(ctx, q.calendar, s)
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

func describe(ctx context.Context, c *recur.Calendar, s driver.Schedule) (ScheduleInfo, error) {
	p := recur.DecodeSchedule(s.Definition)
	i := ScheduleInfo{
		Name: s.Name, Spec: p.Spec, Paused: p.Paused, Missed: MissedPolicy(p.Missed), Skip: p.Skip, Last: s.Last,
		Jitter: time.Duration(p.Jitter) * time.Microsecond, Start: recur.FromMicros(p.Start), End: recur.FromMicros(p.End),
	}
	if p.Job != nil {
		i.Job = p.Job.Restore()
	}
	o, err := c.Occurrence(ctx, s.Name)
	if o.State != 0 {
		i.Next, i.Ref = o.Due, o.Ref
	}
	return i, err
}

// change changes a schedule that is there; f returns whether there is anything
// to change.
func (l *link) change(ctx context.Context, what, name string, f func(*recur.Schedule) bool) error {
	if l.closed.Err() != nil {
		return ErrClosed
	}
	for range recur.Tries {
		s, p, err := l.calendar.Stored(ctx, name)
		if err == nil && p.Job == nil {
			err = recur.ErrUnreadable // a change would overwrite what this version does not know
		}
		if err != nil {
			return fmt.Errorf("durable: %s: the schedule %.300q: %w", what, name, err)
		}
		if f(p) {
			err = l.calendar.Store(ctx, s, p, true)
		} else {
			err = l.calendar.Confirm(ctx, s)
		}
		if !errors.Is(err, driver.ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("durable: %s(%.300q): %w: gave up after %d conflicting updates", what, name, ErrUncertain, recur.Tries)
}

// PauseSchedule stops a schedule until ResumeSchedule. It removes the waiting occurrence.
// An occurrence that a worker has claimed goes on to its end, with all of its attempts:
// if the worker is killed, another takes it over after the lease, although the schedule
// is paused. [Queue.CancelRunning] ends it while it runs, and [Queue.Cancel] between two
// attempts. A paused schedule stays paused when SetSchedule is called. [ErrNotFound]: no
// schedule has the name. [ErrInvalid]: it cannot be read here, since a newer release has
// stored it.
func (q *Queue) PauseSchedule(ctx context.Context, name string) error {
	return q.change(ctx, "PauseSchedule", name, func(p *recur.Schedule) bool {
		was := p.Paused
		p.Paused = true
		return !was
	})
}

// ResumeSchedule continues a schedule that was paused, or whose occurrence was canceled,
// at its next time. Occurrences that would have come meanwhile are left out.
// [ErrNotFound]: no schedule has the name. [ErrInvalid]: its spec cannot be read here,
// since a newer release has stored it.
func (q *Queue) ResumeSchedule(ctx context.Context, name string) error {
	return q.change(ctx, "ResumeSchedule", name, func(p *recur.Schedule) bool {
		if p.Paused {
			p.Paused, p.Since = false, q.clock.Time().UnixMicro()
		}
		return true
	})
}

// RunNow adds the job of a schedule, due now, also if the schedule is paused. It adds it as
// [Queue.Add] does, with the same errors, and through a [Middleware]. The handler gets the
// schedule's name, and no time by it. RunNow does not affect the occurrences, and one may run
// at the same time. [ErrNotFound]: no schedule has the name. [ErrInvalid]: it cannot be read
// here, since a newer release has stored it.
func (q *Queue) RunNow(ctx context.Context, name string) (Ref, error) {
	if q.closed.Err() != nil {
		return "", ErrClosed
	}
	_, p, err := q.calendar.Stored(ctx, name)
	if err == nil && p.Job == nil {
		err = recur.ErrUnreadable
	}
	if err != nil {
		return "", fmt.Errorf("durable: RunNow: the schedule %.300q: %w", name, err)
	}
	return q.Add(ctx, driver.OfSchedule(p.Job.Restore(), name))
}

// DeleteSchedule deletes a schedule and its waiting occurrence. An occurrence that a
// worker has claimed goes on to its end, as with [Queue.PauseSchedule], and none follows.
// [ErrNotFound]: no schedule has the name.
func (q *Queue) DeleteSchedule(ctx context.Context, name string) error {
	if q.closed.Err() != nil {
		return ErrClosed
	}
	for range recur.Tries {
		s, _, err := q.calendar.Stored(ctx, name)
		if err != nil {
			return fmt.Errorf("durable: DeleteSchedule: the schedule %.300q: %w", name, err)
		}
		err = q.engine.SetSchedule(ctx, s.Revision, driver.Schedule{Name: name, Revision: recur.RevisionAfter(s.Revision, q.clock.Time())}, nil)
		if !errors.Is(err, driver.ErrChanged) {
			return err
		}
	}
	return fmt.Errorf("durable: DeleteSchedule(%.300q): %w: gave up after %d conflicting updates", name, ErrUncertain, recur.Tries)
}
