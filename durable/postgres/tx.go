package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable"
)

// AddTx stores jobs in a transaction of yours: they are there if and only if it is
// committed. Until then no worker sees them. It is Queue.Add in all else: the same
// limits, the same errors, and on [durable.ErrExists] the jobs whose Ref is not empty are
// stored and the transaction goes on. After any other error roll it back. After counts
// from this call, not from the commit.
//
// A job that is due within a second is announced with the commit, by one NOTIFY for each
// transaction: workers see it within 50 ms, and if announcements do not reach them,
// behind a proxy that drops them, within 250 ms. Both take a server and workers that keep
// up. Jobs that are due later cost no NOTIFY. Where the server has
// max_prepared_transactions above zero no job of AddTx is announced, since PREPARE
// TRANSACTION fails after a NOTIFY: there, too, such jobs are seen within 250 ms.
//
// A Key is taken from this call on: whoever adds it elsewhere waits until the transaction
// has ended. Queue.Add waits a second, and then returns ErrExists, whether you commit or
// not. So keep transactions with keys short.
func (e *Engine) AddTx(ctx context.Context, tx pgx.Tx, jobs ...durable.Job) ([]durable.Ref, error) {
	refs := make([]durable.Ref, len(jobs))
	if err := e.usable(); err != nil {
		return refs, err
	}
	if len(jobs) == 0 {
		return refs, nil
	}
	// The clock that this engine follows may not have been read for long: no Queue need
	// be open.
	var now time.Time
	if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		return refs, fmt.Errorf("postgres: AddTx: %w", err)
	}
	var c columns
	var soon []string // kinds
	for i, j := range jobs {
		rec, err := durable.NewRecord(j, now)
		if err != nil {
			return refs, fmt.Errorf("postgres: AddTx: job %d: %w", i, err)
		}
		if rec.Due.Before(now.Add(window)) {
			soon = append(soon, j.Kind)
		}
		c.add(&rec)
	}
	stored, err := e.insertTx(ctx, tx, &c, soon)
	if err != nil {
		return refs, fmt.Errorf("postgres: AddTx: %w", e.translate(err))
	}
	var errs []error
	for i, id := range c.id {
		if stored[id] {
			refs[i] = e.refOf(id)
		} else {
			errs = append(errs, fmt.Errorf("postgres: AddTx: job %d: %w", i, durable.ErrExists))
		}
	}
	return refs, errors.Join(errs...)
}

// insertTx stores records, and has the commit announce them. Equal notifications of one
// transaction are sent once.
func (e *Engine) insertTx(ctx context.Context, tx pgx.Tx, c *columns, soon []string) (map[string]bool, error) {
	stored := map[string]bool{}
	b := &pgx.Batch{}
	b.Queue(e.insert, append(c.args(), micros(repeatable))...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			stored[id] = true
		}
		return rows.Err()
	})
	if len(soon) > 0 {
		// Maybe long due, if the transaction takes long.
		b.Queue(e.notifyTx, e.schema, newsOf(soon, true).encode())
	}
	return stored, tx.SendBatch(ctx, b).Close()
}
