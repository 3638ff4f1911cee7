package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// changer cancels, moves, redrives and deletes jobs, each by an update whose condition is the state that the
// call needs. So of two calls that overlap, or a call and a claim, one wins, and the other changes nothing.
//
// It keeps nothing, so it has no lock. It never changes a job that runs.
type changer struct{ *announcer }

// Cancel ends jobs in one commit.
func (c *changer) Cancel(ctx context.Context, refs []driver.Ref) ([]bool, []error) {
	oks, errs := make([]bool, len(refs)), make([]error, len(refs))
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i], errs[i] = c.parse(ref)
	}
	ending := jsonOf(driver.CanceledAt(c.now()), 1)
	done, err := retry(ctx, c.db, false, func() ([]string, error) {
		return ask(ctx, c.db, pgx.RowTo[string], c.cancel, []any{ids, micros(remembered), ending}, hotBrief)
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
func (c *changer) Move(ctx context.Context, ref driver.Ref, at time.Time) (bool, error) {
	n, err := c.change(ctx, ref, c.move, at)
	return n > 0, err
}

// Redrive makes a dead job wait again.
func (c *changer) Redrive(ctx context.Context, ref driver.Ref, at time.Time) error {
	n, err := c.change(ctx, ref, c.redrive, at)
	if isCode(err, uniqueViolation) && c.freeFor(ctx, ref) {
		n, err = c.change(ctx, ref, c.redrive, at)
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
func (c *changer) freeFor(ctx context.Context, ref driver.Ref) bool {
	id, err := c.parse(ref)
	if err != nil {
		return false
	}
	aside, err := query(ctx, c.db, pgx.RowTo[string], c.aside, asideArgs(id, "", c.now()), hotBrief)
	return err == nil && len(aside) > 0
}

// asideArgs returns the arguments of aside.sql, with what is kept of the job that a worker ends by it.
func asideArgs(id, worker string, now time.Time) []any {
	return []any{id, jsonOf(&driver.Ending{State: driver.StateDone, Ended: now.UTC(), Worker: worker}, 1)}
}

// Delete removes a dead job.
func (c *changer) Delete(ctx context.Context, ref driver.Ref) error {
	id, err := c.parse(ref)
	if err != nil {
		return err
	}
	found, err := retry(ctx, c.db, false, func() ([]string, error) {
		return ask(ctx, c.db, pgx.RowTo[string], c.statements.delete, []any{id, micros(remembered)}, hotBrief)
	})
	if err == nil && len(found) == 0 {
		err = driver.ErrNotFound
	}
	return err
}

// change runs a statement that gives one job another time, and returns how many it found.
func (c *changer) change(ctx context.Context, ref driver.Ref, statement string, at time.Time) (n int, err error) {
	id, err := c.parse(ref)
	if err != nil {
		return 0, err
	}
	found, err := retry(ctx, c.db, false, func() ([]string, error) {
		return ask(ctx, c.db, pgx.RowTo[string], statement, []any{id, at}, hotBrief)
	})
	if len(found) > 0 && at.Before(c.now().Add(window)) {
		c.announce(announcement{}) // of whatever kind it is
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
