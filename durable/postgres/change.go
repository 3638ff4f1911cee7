package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Cancel ends jobs in one commit.
func (e *engine) Cancel(ctx context.Context, refs []driver.Ref) ([]bool, []error) {
	oks, errs := make([]bool, len(refs)), make([]error, len(refs))
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i], errs[i] = e.parse(ref)
	}
	done, err := retry(ctx, e.db, false, func() ([]string, error) {
		return ask(ctx, e.db, pgx.RowTo[string], e.cancel, []any{ids, micros(remembered)}, hotBrief)
	})
	canceled := setOf(done)
	for i, id := range ids {
		if errs[i] != nil {
			continue
		}
		if errs[i] = err; err == nil && canceled[id] {
			oks[i] = true
			delete(canceled, id) // the same Ref twice is canceled once
		}
	}
	return oks, errs
}

// Move changes when a waiting job is due.
func (e *engine) Move(ctx context.Context, ref driver.Ref, at time.Time) (bool, error) {
	n, err := e.change(ctx, ref, e.move, at)
	return n > 0, err
}

// Redrive makes a dead job wait again.
func (e *engine) Redrive(ctx context.Context, ref driver.Ref, at time.Time) error {
	n, err := e.change(ctx, ref, e.redrive, at)
	if isCode(err, uniqueViolation) && e.freeFor(ctx, ref) {
		n, err = e.change(ctx, ref, e.redrive, at)
	}
	switch {
	case isCode(err, uniqueViolation):
		return driver.ErrExists
	case err == nil && n == 0:
		return driver.ErrNotFound
	}
	return err
}

// freeFor takes its key from a job that has expired, for another job, and reports whether it has.
func (e *engine) freeFor(ctx context.Context, ref driver.Ref) bool {
	id, err := e.parse(ref)
	if err != nil {
		return false
	}
	aside, err := query(ctx, e.db, pgx.RowTo[string], e.aside, []any{id}, hotBrief)
	return err == nil && len(aside) > 0
}

// Delete removes a dead job.
func (e *engine) Delete(ctx context.Context, ref driver.Ref) error {
	id, err := e.parse(ref)
	if err != nil {
		return err
	}
	found, err := retry(ctx, e.db, false, func() ([]string, error) {
		return ask(ctx, e.db, pgx.RowTo[string], e.statements.delete, []any{id, micros(remembered)}, hotBrief)
	})
	if err == nil && len(found) == 0 {
		err = driver.ErrNotFound
	}
	return err
}

// change runs a statement that gives one job another time, and returns how many it found.
func (e *engine) change(ctx context.Context, ref driver.Ref, statement string, at time.Time) (n int, err error) {
	id, err := e.parse(ref)
	if err != nil {
		return 0, err
	}
	found, err := retry(ctx, e.db, false, func() ([]string, error) {
		return ask(ctx, e.db, pgx.RowTo[string], statement, []any{id, at}, hotBrief)
	})
	if len(found) > 0 && at.Before(e.now().Add(window)) {
		e.announcer.announce(announcement{}) // of whatever kind it is
	}
	return len(found), err
}

// setOf returns what is among the ids.
func setOf(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func isCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
