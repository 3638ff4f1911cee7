package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// metRow is a row of insert_on_key.sql.
type metRow struct {
	ID, Key       string
	Holder, Found *string
	Taken         bool
}

// meeting holds records that are being stored, and their results.
type meeting struct {
	recs []driver.Record
	refs []driver.Ref
	errs []error
	left []int // indexes of records that have had no turn yet
}

func newMeeting(recs []driver.Record) *meeting {
	m := &meeting{recs: recs, refs: make([]driver.Ref, len(recs)), errs: make([]error, len(recs)), left: make([]int, len(recs))}
	for i := range recs {
		m.left[i] = i
	}
	return m
}

// meetingTries bounds the tries of a record whose key others take and free meanwhile.
const meetingTries = 20

// next returns the arguments of the next turn.
func (m *meeting) next() []any {
	var c columns
	for _, i := range m.left {
		c.add(&m.recs[i])
	}
	return c.insertArgs()
}

// turn reads the rows of a turn, and returns the records without a row: they were stored
// before, or were born too long ago.
func (m *meeting) turn(e *engine, rows []metRow) (unsaid []int) {
	byID, keys := map[string]*metRow{}, map[string]bool{}
	for i := range rows {
		byID[rows[i].ID], keys[rows[i].Key] = &rows[i], true
	}
	var again []int
	for _, i := range m.left {
		r := &m.recs[i]
		row := byID[idOf(r)]
		switch {
		case row == nil && !keys[r.Key]:
			unsaid = append(unsaid, i)
		case row == nil:
			again = append(again, i)
		case row.Holder != nil:
			m.refs[i] = e.refOf(*row.Holder)
			if r.Found != nil {
				*r.Found = ""
				if row.Found != nil {
					*r.Found = e.refOf(*row.Found)
				}
			}
		case row.Taken:
			m.errs[i] = driver.ErrExists
		default:
			again = append(again, i)
		}
	}
	m.left = again
	return unsaid
}

// insertOnKeys stores records that have an OnKey. Records with different keys share a
// commit. If one of several has to wait for a key, each gets a commit of its own.
func (e *engine) insertOnKeys(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	m := newMeeting(recs)
	for try := 0; len(m.left) > 0 && try < len(recs)+meetingTries; try++ {
		rows, err := e.meet(ctx, m.next())
		if err != nil {
			e.meetEach(ctx, m, err)
			return m.refs, m.errs
		}
		unsaid := m.turn(e, rows)
		if len(unsaid) == 0 {
			continue
		}
		before := pick(recs, unsaid)
		errs, err := retry(ctx, e, true, func() ([]error, error) { return e.explain(ctx, before, nil) })
		for k, i := range unsaid {
			switch {
			case err != nil:
				m.errs[i] = fmt.Errorf("%w: %w", driver.ErrUncertain, err)
			case errors.Is(errs[k], driver.ErrExists):
				m.left = append(m.left, i)
			case errs[k] != nil:
				m.errs[i] = errs[k]
			default:
				if m.refs[i] = e.refOf(idOf(&recs[i])); recs[i].Found != nil {
					*recs[i].Found = ""
				}
			}
		}
	}
	for _, i := range m.left {
		m.errs[i] = fmt.Errorf("%w: gave up, since others keep taking and leaving the key %q", driver.ErrExists, recs[i].Key)
	}
	return m.refs, m.errs
}

// meetEach stores each record that is left by itself, after an error that may concern only one.
func (e *engine) meetEach(ctx context.Context, m *meeting, err error) {
	for _, i := range m.left {
		if m.errs[i] = err; len(m.recs) > 1 && (errors.Is(err, driver.ErrExists) || refusesOne(err)) {
			refs, errs := e.insertOnKeys(ctx, m.recs[i:i+1])
			m.refs[i], m.errs[i] = refs[0], errs[0]
		}
	}
}

// meet is one turn.
func (e *engine) meet(ctx context.Context, args []any) ([]metRow, error) {
	uncertain := false
	return retry(ctx, e, true, func() ([]metRow, error) {
		rows, err := ask(ctx, e, pgx.RowToStructByPos[metRow], e.insertOnKey, args, patient)
		if waitsForEntry(err) && !uncertain {
			err = fmt.Errorf("%w: an open transaction holds the key: %w", driver.ErrExists, err)
		}
		uncertain = uncertain || err != nil && judge(err) == lost
		return rows, err
	})
}

// meetTx is insertOnKeys within the caller's transaction.
func (e *engine) meetTx(ctx context.Context, tx caller, m *meeting) error {
	for try := 0; len(m.left) > 0; try++ {
		var rows []metRow
		err := tx.run(ctx, asked{text: e.insertOnKey, args: m.next(), row: func(scan func(...any) error) error {
			var r metRow
			err := scan(&r.ID, &r.Key, &r.Holder, &r.Found, &r.Taken)
			rows = append(rows, r)
			return err
		}})
		if err != nil {
			return err
		}
		unsaid := m.turn(e, rows)
		if m.left = append(m.left, unsaid...); try < len(m.recs)+meetingTries {
			continue
		}
		for _, i := range m.left {
			m.errs[i] = fmt.Errorf("%w: gave up, since others keep taking and leaving the key %q", driver.ErrExists, m.recs[i].Key)
		}
		return nil
	}
	return nil
}

// Signal makes the job that waits under a key due, with a payload.
func (e *engine) Signal(ctx context.Context, key string, payload []byte, at time.Time) (bool, error) {
	kinds, err := signaled(func() ([]string, error) {
		return retry(ctx, e, false, func() ([]string, error) {
			return ask(ctx, e, pgx.RowTo[string], e.signal, []any{key, notNull(payload), &at}, hot)
		})
	})
	if len(kinds) > 0 {
		e.announce(announcementOf(kinds, false))
	}
	return len(kinds) > 0, err
}

// signaled calls try, which runs signal.sql, until no other call changes the job meanwhile.
func signaled(try func() ([]string, error)) (kinds []string, err error) {
	for range meetingTries {
		if kinds, err = try(); err != nil || len(kinds) == 0 || kinds[0] != "" {
			return kinds, err
		}
	}
	return nil, nil
}

func notNull(b []byte) []byte { return append([]byte{}, b...) }

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

func (e *engine) signalTx(ctx context.Context, tx caller, name, key string, payload []byte) (bool, error) {
	if err := e.usable(); err != nil {
		return false, err
	}
	if len(payload) > driver.MaxPayload {
		return false, fmt.Errorf("postgres: %s: %w: the payload has %d bytes, more than %d", name, driver.ErrInvalid, len(payload), driver.MaxPayload)
	}
	kinds, err := signaled(func() (kinds []string, err error) {
		err = tx.run(ctx, asked{text: e.signal, args: []any{key, notNull(payload), (*time.Time)(nil)}, row: func(scan func(...any) error) error {
			var kind string
			err := scan(&kind)
			kinds = append(kinds, kind)
			return err
		}})
		return kinds, err
	})
	if err == nil && len(kinds) > 0 {
		err = tx.run(ctx, e.announceTx(kinds))
	}
	if err != nil {
		return false, fmt.Errorf("postgres: %s: %w", name, e.translate(err))
	}
	return len(kinds) > 0, nil
}
