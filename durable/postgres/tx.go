package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// AddTx stores jobs in a transaction of yours: they exist if and only if it is committed.
// Until then no worker sees them. Otherwise it works as Queue.Add, with the same limits
// and errors, but without the middleware of a Queue. On durable.ErrExists the jobs whose Ref is not empty are stored and the
// transaction goes on. After any other error roll it back. After counts from this call,
// not from the commit. AddTx panics on a nil transaction.
//
// A job that is due within a second is announced with the commit, by one NOTIFY for each
// transaction: workers see it within 50 ms, and if announcements do not reach them,
// behind a proxy that drops them, within 250 ms. Both take a server and workers that keep
// up. Jobs that are due later cost no NOTIFY. Where the server has
// max_prepared_transactions above zero no job of AddTx is announced, since PREPARE
// TRANSACTION fails after a NOTIFY: there, too, such jobs are seen within 250 ms. A job is
// seen within 850 ms if only its own announcement is lost, as when its process ends, or if an INSERT
// of yours has added it.
//
// A Key is taken from this call on: another call that adds the key waits until the
// transaction has ended. Queue.Add waits a second, and then returns ErrExists, whether
// you commit or not. A job with an OnKey locks the job that waits under the key until the
// transaction ends, and needs the rights of the role tickwheel_work. So keep transactions
// with keys short. Transactions that add the same keys by several calls, in different
// orders, can deadlock: the server ends one with SQLSTATE 40P01, to be rolled back and
// repeated.
func (e *Engine) AddTx(ctx context.Context, tx pgx.Tx, jobs ...driver.Job) ([]driver.Ref, error) {
	if tx == nil {
		panic("postgres: AddTx: nil tx")
	}
	refs, err := e.engine.addTx(ctx, pgxCaller{tx}, jobs)
	if err != nil {
		err = fmt.Errorf("postgres: AddTx: %w", err)
	}
	return refs, err
}

// AddSQL is [Engine.AddTx] for a transaction of package database/sql, with any driver;
// pgx's stdlib and lib/pq are tested. It takes one or two more round trips. The
// transaction has to be of a connection to the Engine's database; the Engine's pool is
// not used.
func (e *Engine) AddSQL(ctx context.Context, tx *sql.Tx, jobs ...driver.Job) ([]driver.Ref, error) {
	if tx == nil {
		panic("postgres: AddSQL: nil tx")
	}
	refs, err := e.engine.addTx(ctx, sqlCaller{tx}, jobs)
	if err != nil {
		err = fmt.Errorf("postgres: AddSQL: %w", err)
	}
	return refs, err
}

// txWriter stores jobs and signals in transactions of callers. Only the commit makes them true: until then
// nothing is announced, and nothing of them is kept in memory.
//
// It keeps nothing, so it has no lock. Rows and keys stay locked until the caller's transaction
// ends, and it waits for those of others. It never commits, rolls back, or repeats a statement
// that has failed.
type txWriter struct{ *announcer }

func (t *txWriter) addTx(ctx context.Context, tx caller, jobs []driver.Job) ([]driver.Ref, error) {
	refs := make([]driver.Ref, len(jobs))
	if err := t.usable(); err != nil {
		return refs, err
	}
	if len(jobs) == 0 {
		return refs, nil
	}
	// The clock that this engine follows may not have been read for long: no Queue need
	// be open.
	var now time.Time
	if err := tx.run(ctx, asked{text: "select clock_timestamp()", row: one(&now)}); err != nil {
		return refs, t.translate(err)
	}
	all := make([]driver.Record, len(jobs))
	for i, j := range jobs {
		var err error
		if all[i], err = driver.NewRecord(j, now); err != nil {
			return refs, fmt.Errorf("job %d: %w", i, err)
		}
	}
	// One statement takes all keys, in their order, so that two such transactions do not deadlock.
	onKeys := slices.ContainsFunc(all, func(r driver.Record) bool { return r.OnKey != driver.KeyRefuse })
	var c columns
	var soon []string // kinds
	var recs []driver.Record
	var of, plain []int // which job one of recs is, and one of c
	for i, rec := range all {
		if rec.Due.Before(now.Add(window)) || mayReplace(&rec) { // the job of its key may be due, or have a signal
			soon = append(soon, rec.Kind)
		}
		if onKeys && rec.Key != "" {
			recs, of = append(recs, rec), append(of, i)
			continue
		}
		c.add(&rec)
		plain = append(plain, i)
	}
	stored, err := t.insertTx(ctx, tx, &c, soon)
	if err == nil && len(stored) < len(c.id) {
		err = t.insertFreeingTx(ctx, tx, all, plain, stored)
	}
	if err != nil {
		return refs, t.translate(err)
	}
	var errs []error
	for k, id := range c.id {
		if i := plain[k]; stored[id] {
			refs[i] = t.refOf(id)
		} else {
			errs = append(errs, fmt.Errorf("job %d: %w", i, driver.ErrExists))
		}
	}
	m := newMeeting(recs)
	if err := t.meetTx(ctx, tx, m); err != nil {
		return make([]driver.Ref, len(jobs)), t.translate(err)
	}
	for k, i := range of {
		if refs[i] = m.refs[k]; m.errs[k] != nil {
			errs = append(errs, fmt.Errorf("job %d: %w", i, m.errs[k]))
		}
	}
	return refs, errors.Join(errs...)
}

// insertTx stores records, and has the commit announce them. Equal notifications of one
// transaction are sent once.
func (t *txWriter) insertTx(ctx context.Context, tx caller, c *columns, soon []string) (map[string]bool, error) {
	stored := map[string]bool{}
	all := []asked{{text: t.insert, args: c.insertArgs(), row: func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		stored[id] = true
		return err
	}}}
	if len(soon) > 0 {
		all = append(all, t.announceTx(soon))
	}
	return stored, tx.run(ctx, all...)
}

// insertFreeingTx stores those records that were not stored since jobs have their keys which have expired.
func (t *txWriter) insertFreeingTx(ctx context.Context, tx caller, recs []driver.Record, indices []int, stored map[string]bool) error {
	var keys []string
	for _, i := range indices {
		if !stored[idOf(&recs[i])] {
			keys = append(keys, recs[i].Key)
		}
	}
	freed := map[string]bool{}
	err := tx.run(ctx, asked{text: t.freeExpired, args: []any{keys}, row: func(scan func(...any) error) error {
		var key string
		err := scan(&key)
		freed[key] = true
		return err
	}})
	if err != nil || len(freed) == 0 {
		return err
	}
	var c columns
	for _, i := range indices {
		if r := &recs[i]; freed[r.Key] && !stored[idOf(r)] {
			c.add(r)
		}
	}
	again, err := t.insertTx(ctx, tx, &c, nil)
	maps.Copy(stored, again)
	return err
}

// meetTx is insertOnKeys within the caller's transaction. It waits for others' transactions.
func (t *txWriter) meetTx(ctx context.Context, tx caller, m *meeting) error {
	if err := m.awaitBegin(ctx, t.db, tx); err != nil {
		return err
	}
	for began, lost := time.Now(), 0; len(m.left) > 0; {
		before := len(m.left)
		if lost >= freeTries {
			if err := t.takeTurn(ctx, tx, m.keysOf()); err != nil {
				return err
			}
		}
		var rows []metRow
		err := tx.run(ctx, asked{text: t.insertOnKey, args: m.next(), row: func(scan func(...any) error) error {
			var r metRow
			err := scan(&r.ID, &r.Key, &r.Holder, &r.Found, &r.Taken, &r.Begins)
			rows = append(rows, r)
			return err
		}})
		if err != nil {
			return err
		}
		if m.left = append(m.left, m.turn(&t.refs, rows)...); len(m.left) < before {
			lost = 0
		} else if lost++; time.Since(began) > repeatable {
			m.fail(fmt.Errorf("%w: gave up, since others keep taking and leaving the key", driver.ErrExists))
			return nil
		}
	}
	return nil
}

// takeTurn takes the locks of busy keys within a caller's transaction, or waits for a moment.
func (t *txWriter) takeTurn(ctx context.Context, tx caller, keys []string) error {
	has := false
	err := tx.run(ctx, asked{text: t.tryKeys, args: []any{keys}, row: one(&has)})
	if err == nil && !has {
		sleep(ctx, heldPause+rand.N(heldPause))
	}
	return err
}

// SignalTx is Queue.Signal in your transaction: the job gets the signal if and only if you
// commit. If it returns true, no attempt begins before the transaction has ended, and after
// a commit the next attempt has the signal. So keep the transaction short. It panics on a
// nil transaction.
func (e *Engine) SignalTx(ctx context.Context, tx pgx.Tx, key string, payload []byte) (bool, error) {
	if tx == nil {
		panic("postgres: SignalTx: nil tx")
	}
	return e.engine.signalTx(ctx, pgxCaller{tx}, "SignalTx", key, payload)
}

// SignalSQL is [Engine.SignalTx] for a transaction of package database/sql; see [Engine.AddSQL].
func (e *Engine) SignalSQL(ctx context.Context, tx *sql.Tx, key string, payload []byte) (bool, error) {
	if tx == nil {
		panic("postgres: SignalSQL: nil tx")
	}
	return e.engine.signalTx(ctx, sqlCaller{tx}, "SignalSQL", key, payload)
}

func (t *txWriter) signalTx(ctx context.Context, tx caller, name, key string, payload []byte) (bool, error) {
	if err := t.usable(); err != nil {
		return false, err
	}
	if len(payload) > driver.MaxPayload {
		return false, fmt.Errorf("postgres: %s: %w: the payload has %d bytes, more than %d", name, driver.ErrInvalid, len(payload), driver.MaxPayload)
	}
	kinds, err := signaled(ctx, func(busy bool) (kinds []string, err error) {
		if busy {
			if err := t.takeTurn(ctx, tx, []string{key}); err != nil {
				return nil, err
			}
		}
		err = tx.run(ctx, asked{text: t.signal, args: []any{key, notNull(payload), (*time.Time)(nil)}, row: func(scan func(...any) error) error {
			var kind string
			err := scan(&kind)
			kinds = append(kinds, kind)
			return err
		}})
		return kinds, err
	})
	if err == nil && len(kinds) > 0 {
		err = tx.run(ctx, t.announceTx(kinds))
	}
	if err != nil {
		return false, fmt.Errorf("postgres: %s: %w", name, t.translate(err))
	}
	return len(kinds) > 0, nil
}
