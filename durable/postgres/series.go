package postgres

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable"
)

// SetSeries changes a schedule and what waits of it in one transaction. Like the end of an
// occurrence it locks the job first, then the schedule: so one of the two waits for the
// other, and sees what it has done.
func (e *Engine) SetSeries(ctx context.Context, was int64, s durable.Series, next *durable.Record) error {
	_, err := retry(ctx, e, true, func() (struct{}, error) {
		err := e.setSeries(ctx, was, s, next)
		if errors.Is(err, errBefore) {
			err = nil
		}
		return struct{}{}, err
	})
	if err == nil && next != nil {
		e.ringFor([]durable.Record{*next}, make([]error, 1))
	}
	return err
}

func (e *Engine) setSeries(ctx context.Context, was int64, s durable.Series, next *durable.Record) error {
	if err := e.usable(); err != nil {
		return err
	}
	committed := pgx.TxOptions{IsoLevel: pgx.ReadCommitted} // who has waited for a lock must see what was done
	return pgx.BeginTxFunc(ctx, e.pool, committed, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, hot); err != nil {
			return err
		}
		due := time.Time{} // what is due later is replaced; without a next all is
		if next != nil {
			due = next.Born
		}
		free, err := e.clearSeries(ctx, tx, s.Name, due)
		if err != nil {
			return err
		}
		var stored, before bool
		if err := tx.QueryRow(ctx, e.setOne, s.Name, s.Plan, s.Revision, was).Scan(&stored, &before); err != nil {
			return err
		}
		if before {
			return errBefore
		}
		if !stored {
			return durable.ErrChanged
		}
		if next == nil || !free {
			return nil
		}
		var c columns
		c.add(next)
		tag, err := tx.Exec(ctx, e.insert, append(c.args(), micros(repeatable))...)
		if err == nil && tag.RowsAffected() == 0 {
			err = durable.ErrChanged // another has taken the key, or this took too long
		}
		return err
	})
}

// errBefore: an earlier try has done it, whose answer was lost.
var errBefore = errors.New("postgres: it was done before")

// clearSeries cancels the occurrence that waits, and reports whether there is none then.
func (e *Engine) clearSeries(ctx context.Context, tx pgx.Tx, name string, due time.Time) (free bool, err error) {
	var id string
	var may bool
	err = tx.QueryRow(ctx, e.lockKeyed, durable.SeriesKey(name), due).Scan(&id, &may)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	if err != nil || !may {
		return false, err
	}
	_, err = tx.Exec(ctx, e.cancel, []string{id}, micros(remembered))
	return true, err
}

// Series returns a schedule.
func (e *Engine) Series(ctx context.Context, name string) (durable.Series, error) {
	found, err := e.readSeries(ctx, e.series, name)
	switch {
	case err != nil:
		return durable.Series{}, err
	case len(found) == 0:
		return durable.Series{}, durable.ErrNotFound
	}
	return found[0], nil
}

// AllSeries goes over the schedules by name, a page at a time.
func (e *Engine) AllSeries(ctx context.Context) iter.Seq2[durable.Series, error] {
	return func(yield func(durable.Series, error) bool) {
		for last, more := "", true; more; {
			found, err := e.readSeries(ctx, e.allSeries, last, page)
			if err != nil {
				yield(durable.Series{}, err)
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

func (e *Engine) readSeries(ctx context.Context, statement string, args ...any) ([]durable.Series, error) {
	return retry(ctx, e, true, func() ([]durable.Series, error) {
		return ask(ctx, e, func(row pgx.CollectableRow) (s durable.Series, err error) {
			var last *time.Time
			if err = row.Scan(&s.Name, &s.Plan, &s.Revision, &last); last != nil {
				s.Last = *last
			}
			return s, err
		}, statement, args, hot)
	})
}
