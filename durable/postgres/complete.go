package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// CompleteTx ends the job of an attempt, as done, in a transaction of its handler's. The
// handler's writes and the end of the job are committed together, so that the job's
// effect exists exactly once, however often it is attempted:
//
//	q.Handle("charge", func(ctx context.Context, a *durable.Attempt) error {
//		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//			if _, err := tx.Exec(ctx, "insert into charges ...", a.Job.Payload); err != nil {
//				return err
//			}
//			return engine.CompleteTx(ctx, tx, a)
//		})
//	})
//
// From then on the transaction decides whether the job is done, and not the handler's
// result: if it is committed the job is done; otherwise the attempt has failed, with the
// handler's error or, if that is nil, an error that says so. The handler may roll back
// and try another transaction. A job that CompleteTx has ended can be followed by others
// that AddTx stores in the same transaction. The next occurrence of a schedule is stored
// with it.
//
// If the process dies before the commit, the job runs again after the lease; if it dies
// after, it does not. durable.ErrLeaseLost: another worker has taken over, the handler has
// returned, or CompleteTx was called before in this transaction; nothing was changed. After
// any error roll the transaction back, and return the error.
//
// From CompleteTx to the end of the transaction no other call can take the job over,
// cancel it, or change its schedule; a change of the schedule waits. Other jobs under a limit
// of which the job holds a permit neither begin nor end meanwhile. A transaction that is
// stricter than read committed cannot be serialized (40001) if a claim or an end under such
// a limit has been committed since it began: try another one, or leave those jobs without a
// limit. So call it right before the commit. A transaction that is neither committed nor
// rolled back keeps the job running: set idle_in_transaction_session_timeout. One that is prepared for a commit in
// two phases ends the job when that comes; the handler need not wait for it.
//
// Call CompleteTx of the Engine of the Queue that has called the handler, with a
// transaction on its database. It panics on attempts of other engines, and on a nil
// transaction.
//
// In tests on package durable/memory, Complete of package durable/crashtest stands in for it.
func (e *Engine) CompleteTx(ctx context.Context, tx pgx.Tx, a *driver.Attempt) error {
	if tx == nil {
		panic("postgres: CompleteTx: nil tx")
	}
	if err := e.engine.complete(ctx, pgxCaller{tx}, a); err != nil {
		return fmt.Errorf("postgres: CompleteTx: %w", err)
	}
	return nil
}

// CompleteSQL is [Engine.CompleteTx] for a transaction of package database/sql. For the
// driver see [Engine.AddSQL].
func (e *Engine) CompleteSQL(ctx context.Context, tx *sql.Tx, a *driver.Attempt) error {
	if tx == nil {
		panic("postgres: CompleteSQL: nil tx")
	}
	if err := e.engine.complete(ctx, sqlCaller{tx}, a); err != nil {
		return fmt.Errorf("postgres: CompleteSQL: %w", err)
	}
	return nil
}

func (e *engine) complete(ctx context.Context, tx caller, a *driver.Attempt) error {
	if err := e.usable(); err != nil {
		return err
	}
	err := driver.Complete(ctx, a, func(by driver.Worker, out driver.Completion) error {
		w, ok := by.(*worker)
		if !ok || w.limiter != e.limiter {
			panic("postgres: Complete: the Attempt is of another engine")
		}
		return w.finishTx(ctx, tx, out)
	})
	return e.translate(err)
}

// lockedPauses are those between the tries of an end whose row is locked for a moment, as by another's
// claim that comes too late.
var lockedPauses = []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond, 320 * time.Millisecond}

// finishTx writes an end down in a caller's transaction, with the settings for that, which
// are taken back: the transaction goes on. While the row is locked for a
// moment it asks again.
func (w *worker) finishTx(ctx context.Context, tx caller, out driver.Completion) error {
	var was [4]string
	if err := tx.run(ctx, asked{text: settings, row: one(&was[0], &was[1], &was[2], &was[3])}); err != nil {
		return err
	}
	all := []asked{{text: hot}, {}, {text: restore, args: []any{was[0], was[1], was[2], was[3]}}}
	if next := out.Next; next != nil && next.Due.Before(w.now().Add(window)) {
		all = append(all, w.announceTx([]string{next.Kind}))
	}
	statement, args := w.finishStatement([]driver.Completion{out})
	for tries := 0; ; tries++ {
		err := driver.ErrLeaseLost
		all[1] = asked{text: statement, args: args, row: func(scan func(...any) error) error {
			var r endedRow
			failed := scan(&r.ID, &r.Busy, &r.Changed)
			err = r.error()
			return failed
		}}
		if failed := tx.run(ctx, all...); failed != nil {
			return failed
		}
		if err != errLocked || tries == len(lockedPauses) {
			return err
		}
		sleep(ctx, lockedPauses[tries])
	}
}

// settings and restore are for what hot changes.
const (
	settings = "select current_setting('enable_seqscan'), current_setting('enable_bitmapscan')," +
		" current_setting('jit'), current_setting('plan_cache_mode')"
	restore = "select set_config('enable_seqscan', $1, true), set_config('enable_bitmapscan', $2, true)," +
		" set_config('jit', $3, true), set_config('plan_cache_mode', $4, true)"
)
