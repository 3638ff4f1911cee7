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
	if r.Version > 0 {
		out.Revision = unread // it may have been dead, and others have run since: followAgain knows
		return
	}
	out.Next = q.successor(r, p, p.Revision, r.Job, began, r.occurred())
}

// unread is the revision of no schedule.
const unread = -1

// successor makes the record of the occurrence that follows one at a time; nil if there is
// none.
func (q *Queue) successor(r *Record, p *plan, revision int64, j Job, began, at time.Time) (next *Record) {
	name, own := r.Series, *p
	own.Pass = false
	var err error
	if failed := protect(func() {
		now, t := q.now(), q.timesOf(name, &own)
		if t == nil {
			own.Pass = true // whoever knows the times makes it
			next, err = own.occurrence(name, revision, nil, j, at, own.due(name, at), now)
			return
		}
		since := own.Since
		if since == 0 && revision != planOf(r.Plan).Revision {
			since = revision
		}
		if from := fromMicros(since); at.Before(from) {
			at = from
		}
		if at, err = own.after(t, at, began, now); err == nil && !at.IsZero() {
			next, err = own.occurrence(name, revision, t, j, at, own.due(name, at), now)
		}
	}); failed != nil {
		err = failed
	}
	if err != nil {
		q.log.Error("durable: a series ends: its Scheduler panics, or gave a time that cannot be", "name", name, "error", err)
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
	if p := planOf(s.Plan); s.Plan != "" && !p.Paused && p.Job != nil {
		out.Next = q.successor(r, p, s.Revision, p.Job.job(), began, at)
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

// learn finds out whether the times of a series are stored by now: those of an occurrence
// from before that are code, which nobody may have any more, and its end will be followed
// by what is stored. The occurrence is handed out again.
func (w *worker) learn(name string) {
	w.side.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), w.q.lease/4)
		defer cancel()
		s, err := w.q.engine.Series(ctx, name)
		if p := planOf(s.Plan); err != nil || p.Spec == "" || w.q.timesOf(name, p) == nil {
			return // those who know the times have it, or it is found out the next time
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stored[name] = s.Revision
	})
}

// mayFollow reports whether an occurrence can be run here: what follows it is known. Else
// it is left to those who know. w.mu is held.
func (w *worker) mayFollow(r *Record) bool {
	if w.q.follows(r) || planOf(r.Plan).Revision < w.stored[r.Series] {
		return true
	}
	w.learn(r.Series)
	if !w.unknown[r.Series] {
		w.unknown[r.Series] = true
		w.q.log.Warn("durable: a series whose times are not known here; it is left to other workers", "name", r.Series)
	}
	return false
}
