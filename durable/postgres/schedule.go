package postgres

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// SetSchedule changes a schedule and its waiting occurrence in one transaction. Like the
// end of an occurrence it locks the job first, then the schedule: so one of the two waits
// for the other, and sees what it has done.
func (e *engine) SetSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	next, err := retry(ctx, e.db, true, func() (*driver.Record, error) {
		next, err := e.setSchedule(ctx, was, s, replace)
		if errors.Is(err, errBefore) {
			err = nil
		}
		return next, err
	})
	if err == nil && next != nil {
		e.announcer.announceSoon([]driver.Record{*next}, make([]driver.Ref, 1), make([]error, 1))
	}
	return err
}

// setSchedule returns the occurrence that it has stored, or nil.
func (e *engine) setSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) (next *driver.Record, err error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	committed := pgx.TxOptions{IsoLevel: pgx.ReadCommitted} // who has waited for a lock must see what was done
	err = pgx.BeginTxFunc(ctx, e.pool, committed, func(tx pgx.Tx) error {
		next = nil
		if _, err := tx.Exec(ctx, hot); err != nil {
			return err
		}
		waits, stays, err := e.lockOccurrence(ctx, tx, s.Name)
		if err != nil {
			return err
		}
		var stored, before bool
		var last *time.Time
		if err := tx.QueryRow(ctx, e.statements.setSchedule, s.Name, s.Definition, s.Revision, was).Scan(&stored, &before, &last); err != nil {
			return err
		}
		if before {
			return errBefore
		}
		if !stored {
			return driver.ErrChanged
		}
		if waits == nil {
			// An end that this has waited for has left the key to the next occurrence. From now
			// on no end does, since the schedule is locked.
			var id string
			err := tx.QueryRow(ctx, e.lookup, driver.OccurrenceKey(s.Name)).Scan(&id)
			if !errors.Is(err, pgx.ErrNoRows) {
				return cmp.Or(err, driver.ErrChanged)
			}
		}
		if stays {
			return nil
		}
		if replace != nil {
			if last == nil {
				last = new(time.Time)
			}
			if next, err = replace(*last, waits); err != nil {
				return err
			}
		}
		if next == waits {
			next = nil
			return nil
		}
		return e.replace(ctx, tx, waits, next)
	})
	return next, err
}

// errBefore: an earlier try has done it, whose answer was lost.
var errBefore = errors.New("postgres: it was done before")

// lockOccurrence locks the occurrence of a schedule, and reports whether it stays whatever is
// to follow. Nil: there is none.
func (e *engine) lockOccurrence(ctx context.Context, tx pgx.Tx, name string) (*driver.Record, bool, error) {
	var r driver.Record
	var waits bool
	err := tx.QueryRow(ctx, e.lockKeyed, driver.OccurrenceKey(name)).Scan(&r.ID, &r.Due, &r.Occurrence, &waits)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return &r, !waits, err
}

// replace cancels the occurrence that waits, and stores the next, where there are any.
func (e *engine) replace(ctx context.Context, tx pgx.Tx, waits, next *driver.Record) error {
	if waits != nil {
		if _, err := tx.Exec(ctx, e.cancel, []string{waits.ID}, micros(remembered)); err != nil {
			return err
		}
	}
	if next == nil {
		return nil
	}
	var c columns
	c.add(next)
	tag, err := tx.Exec(ctx, e.insert, c.insertArgs()...)
	if err == nil && tag.RowsAffected() == 0 {
		err = driver.ErrChanged // another has taken the key, or this took too long
	}
	return err
}

// Schedule returns a schedule.
func (e *engine) Schedule(ctx context.Context, name string) (driver.Schedule, error) {
	found, err := e.readSchedules(ctx, e.schedule, name)
	switch {
	case err != nil:
		return driver.Schedule{}, err
	case len(found) == 0:
		return driver.Schedule{}, driver.ErrNotFound
	}
	return found[0], nil
}

// Schedules goes over the schedules by name, a page at a time.
func (e *engine) Schedules(ctx context.Context) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		for last, more := "", true; more; {
			found, err := e.readSchedules(ctx, e.schedules, last, page)
			if err != nil {
				yield(driver.Schedule{}, err)
				return
			}
			for _, s := range found {
				if last = s.Name; !yield(s, nil) {
					return
				}
			}
			more = len(found) == page
		}
	}
}

func (e *engine) readSchedules(ctx context.Context, statement string, args ...any) ([]driver.Schedule, error) {
	return retry(ctx, e.db, true, func() ([]driver.Schedule, error) {
		return ask(ctx, e.db, func(row pgx.CollectableRow) (s driver.Schedule, err error) {
			var last *time.Time
			if err = row.Scan(&s.Name, &s.Definition, &s.Revision, &last); last != nil {
				s.Last = *last
			}
			return s, err
		}, statement, args, hot)
	})
}
