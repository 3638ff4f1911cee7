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

// scheduler stores and reads schedules. A schedule has at most one occurrence that waits, under the key of
// the schedule, and the two change in one transaction.
//
// It keeps nothing, so it has no lock. The rows are locked in one order, the job's before the schedule's,
// as the end of an occurrence locks them. It never ends or moves an occurrence that runs, and computes no
// time: the caller's replace does, within the transaction.
type scheduler struct{ *announcer }

// SetSchedule changes a schedule and its waiting occurrence in one transaction. It and the end of an
// occurrence lock in the same order: so one of the two waits for the other, and sees what it has done.
func (c *scheduler) SetSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	if was == s.Revision {
		return c.confirm(ctx, s)
	}
	next, err := retry(ctx, c.db, true, func() (*driver.Record, error) {
		next, err := c.setSchedule(ctx, was, s, replace)
		if errors.Is(err, errBefore) {
			err = nil
		}
		return next, err
	})
	if err == nil && next != nil {
		c.announceSoon([]driver.Record{*next}, make([]driver.Ref, 1), make([]error, 1))
	}
	return err
}

// confirm returns driver.ErrChanged if a schedule has another revision. It waits for no lock.
func (c *scheduler) confirm(ctx context.Context, s driver.Schedule) error {
	there, err := c.Schedule(ctx, s.Name)
	if errors.Is(err, driver.ErrNotFound) {
		err = nil
	}
	if err == nil && there.Revision != s.Revision {
		err = driver.ErrChanged
	}
	return err
}

// setSchedule returns the occurrence that it has stored, or nil.
func (c *scheduler) setSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) (next *driver.Record, err error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	committed := pgx.TxOptions{IsoLevel: pgx.ReadCommitted} // who has waited for a lock must see what was done
	err = pgx.BeginTxFunc(ctx, c.pool, committed, func(tx pgx.Tx) error {
		next = nil
		if _, err := tx.Exec(ctx, hot); err != nil {
			return err
		}
		waits, stays, err := c.lockOccurrence(ctx, tx, s.Name)
		if err != nil {
			return err
		}
		var stored, before bool
		var last *time.Time
		if err := tx.QueryRow(ctx, c.statements.setSchedule, s.Name, s.Definition, s.Revision, was).Scan(&stored, &before, &last); err != nil {
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
			err := tx.QueryRow(ctx, c.lookup, driver.OccurrenceKey(s.Name)).Scan(&id)
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
		return c.replace(ctx, tx, waits, next)
	})
	return next, err
}

// errBefore: an earlier try has done it, whose answer was lost.
var errBefore = errors.New("postgres: it was done before")

// lockOccurrence locks the occurrence of a schedule, and reports whether it stays whatever is
// to follow. Nil: there is none.
func (c *scheduler) lockOccurrence(ctx context.Context, tx pgx.Tx, name string) (*driver.Record, bool, error) {
	var r driver.Record
	var waits bool
	err := tx.QueryRow(ctx, c.lockKeyed, driver.OccurrenceKey(name)).Scan(&r.ID, &r.Due, &r.Occurrence, &waits)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	return &r, !waits, err
}

// replace cancels the occurrence that waits, and stores the next, where there are any.
func (c *scheduler) replace(ctx context.Context, tx pgx.Tx, waits, next *driver.Record) error {
	if waits != nil {
		if _, err := tx.Exec(ctx, c.cancel, []string{waits.ID}, micros(remembered), nil); err != nil {
			return err
		}
	}
	if next == nil {
		return nil
	}
	var cols columns
	cols.add(next)
	tag, err := tx.Exec(ctx, c.insert, cols.insertArgs()...)
	if err == nil && tag.RowsAffected() == 0 {
		err = driver.ErrChanged // another has taken the key, or this took too long
	}
	return err
}

// Schedule returns a schedule.
func (c *scheduler) Schedule(ctx context.Context, name string) (driver.Schedule, error) {
	found, err := c.readSchedules(ctx, c.schedule, name)
	switch {
	case err != nil:
		return driver.Schedule{}, err
	case len(found) == 0:
		return driver.Schedule{}, driver.ErrNotFound
	}
	return found[0], nil
}

// Schedules goes over the schedules by name, a page at a time.
func (c *scheduler) Schedules(ctx context.Context) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		for last, more := "", true; more; {
			found, err := c.readSchedules(ctx, c.schedules, last, page)
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

func (c *scheduler) readSchedules(ctx context.Context, statement string, args ...any) ([]driver.Schedule, error) {
	return query(ctx, c.db, func(row pgx.CollectableRow) (s driver.Schedule, err error) {
		var last *time.Time
		if err = row.Scan(&s.Name, &s.Definition, &s.Revision, &last); last != nil {
			s.Last = *last
		}
		return s, err
	}, statement, args, hot)
}
