package durable

import (
	"context"
	"errors"
	"time"
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
// change is made up for, if the change has kept the times (plan.Since).

// follow sets what follows an occurrence that has begun and now ends, by the plan that came
// with it.
func (q *Queue) follow(out *Outcome, began time.Time) {
	r := &out.Held.Record
	if !r.IsOccurrence() || out.End == Again {
		return
	}
	p := planOf(r.Plan)
	out.Revision = p.Revision
	if !out.Uncounted && !p.Pass {
		out.Occurred = r.occurred()
	}
	if r.Version > 0 || p.Spec == "" {
		out.Revision = unread // it may have been dead, and others have run since, or it has no times: followAgain knows
		return
	}
	out.Next = q.successor(r, p, p.Revision, r.Job, began, r.occurred())
}

// unread is the revision of no schedule.
const unread = -1

// successor makes the record of the occurrence that follows one at a time; nil if there is
// none. Where the spec cannot be read it makes a placeholder, and a release that can read it
// makes the next one.
func (q *Queue) successor(r *Record, p *plan, revision int64, j Job, began, at time.Time) (next *Record) {
	now, own := q.now(), *p
	t, err := q.timesOf(p)
	own.Pass = errors.Is(err, errUnreadable)
	switch {
	case own.Pass:
		next, err = own.occurrence(r.Series, revision, nil, j, at, own.due(r.Series, at), now)
	case err == nil:
		since := own.Since
		if since == 0 && revision != planOf(r.Plan).Revision {
			since = revision
		}
		if from := fromMicros(since); at.Before(from) {
			at = from
		}
		if at = own.after(t, at, began, now); !at.IsZero() {
			next, err = own.occurrence(r.Series, revision, t, j, at, own.due(r.Series, at), now)
		}
	}
	if err != nil {
		q.log.Error("durable: a series ends, since no occurrence of it can follow", "name", r.Series, "error", err)
		return nil
	}
	return next
}

// followAgain is follow by the schedule as it is stored now.
func (q *Queue) followAgain(ctx context.Context, out *Outcome, began time.Time) error {
	r := &out.Held.Record
	s, err := q.engine.Series(ctx, r.Series)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	out.Next, out.Revision = nil, s.Revision
	at := r.occurred()
	if !at.After(s.Last) { // it was redriven
		at, out.Occurred = s.Last, time.Time{}
	}
	p, j := planOf(s.Plan), r.Job
	if p.Job != nil {
		j = p.Job.job()
	}
	deleted := s.Plan == "" && r.Plan != "" // and not older than stored schedules
	if !deleted && !p.Paused {
		out.Next = q.successor(r, p, s.Revision, j, began, at)
	}
	return nil
}

// followChanged has an end written down anew whose schedule was changed.
func (w *worker) followChanged(e *ended) {
	w.side.Go(func() {
		defer w.ends.put(e)
		ctx, cancel := context.WithTimeout(context.Background(), w.q.lease)
		defer cancel()
		if err := w.q.followAgain(ctx, &e.out, e.task.began); err != nil {
			w.q.log.Warn("durable: a schedule could not be read; trying again", "name", e.out.Held.Record.Series, "error", err)
			sleep(ctx, 200*time.Millisecond)
		}
	})
}
