package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
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
// TRANSACTION fails after a NOTIFY: there, too, such jobs are seen within 250 ms. A job whose
// announcement alone is lost, or that is added by an INSERT of yours, is seen within 550 ms.
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

func (e *engine) addTx(ctx context.Context, tx caller, jobs []driver.Job) ([]driver.Ref, error) {
	refs := make([]driver.Ref, len(jobs))
	if err := e.usable(); err != nil {
		return refs, err
	}
	if len(jobs) == 0 {
		return refs, nil
	}
	// The clock that this engine follows may not have been read for long: no Queue need
	// be open.
	var now time.Time
	if err := tx.run(ctx, asked{text: "select clock_timestamp()", row: one(&now)}); err != nil {
		return refs, e.translate(err)
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
	stored, err := e.insertTx(ctx, tx, &c, soon)
	if err == nil && len(stored) < len(c.id) {
		err = e.insertFreeingTx(ctx, tx, all, plain, stored)
	}
	if err != nil {
		return refs, e.translate(err)
	}
	var errs []error
	for k, id := range c.id {
		if i := plain[k]; stored[id] {
			refs[i] = e.refOf(id)
		} else {
			errs = append(errs, fmt.Errorf("job %d: %w", i, driver.ErrExists))
		}
	}
	m := newMeeting(recs)
	if err := e.meetTx(ctx, tx, m); err != nil {
		return make([]driver.Ref, len(jobs)), e.translate(err)
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
func (e *engine) insertTx(ctx context.Context, tx caller, c *columns, soon []string) (map[string]bool, error) {
	stored := map[string]bool{}
	all := []asked{{text: e.insert, args: c.insertArgs(), row: func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		stored[id] = true
		return err
	}}}
	if len(soon) > 0 {
		all = append(all, e.announceTx(soon))
	}
	return stored, tx.run(ctx, all...)
}

// insertFreeingTx stores those records that were not stored since jobs have their keys which have expired.
func (e *engine) insertFreeingTx(ctx context.Context, tx caller, recs []driver.Record, indices []int, stored map[string]bool) error {
	var keys []string
	for _, i := range indices {
		if !stored[idOf(&recs[i])] {
			keys = append(keys, recs[i].Key)
		}
	}
	freed := map[string]bool{}
	err := tx.run(ctx, asked{text: e.freeExpired, args: []any{keys}, row: func(scan func(...any) error) error {
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
	again, err := e.insertTx(ctx, tx, &c, nil)
	maps.Copy(stored, again)
	return err
}

// announceTx has a commit announce kinds. A job that is due soon may be long due by then, if the
// transaction takes long.
func (e *engine) announceTx(kinds []string) asked {
	return asked{text: e.notifyTx, args: []any{e.schema, announcementOf(kinds, true).encode("")}}
}
