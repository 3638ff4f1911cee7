package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
)

// metRow is a row of insert_on_key.sql.
type metRow struct {
	ID, Key       string
	Holder, Found *string
	Taken         bool
	Begins        bool // the job that has the key is about to be claimed
}

// errBegins is that of a record whose key has a job that is about to be claimed.
var errBegins = fmt.Errorf("%w: or the job that has the key is about to be claimed", held.Err)

// meeting holds records that are being stored, and their results.
type meeting struct {
	recs []driver.Record
	refs []driver.Ref
	errs []error
	left []int // indexes of records that have had no turn yet

	filled []string // keys whose job records go into at once, if it is due
}

func newMeeting(recs []driver.Record) *meeting {
	m := &meeting{recs: recs, refs: make([]driver.Ref, len(recs)), errs: make([]error, len(recs)), left: make([]int, len(recs)), filled: []string{}}
	for i := range recs {
		m.left[i] = i
	}
	return m
}

const (
	// freeTries is how many turns a record may lose without a lock: after that its key is busy.
	freeTries = 2
	// busyTries is how many it may lose under the lock before others of its Insert get their answers.
	busyTries = 20
)

// next returns the arguments of the next turn.
func (m *meeting) next() []any {
	var c columns
	for _, i := range m.left {
		c.add(&m.recs[i])
	}
	return append(c.insertArgs(), m.filled)
}

// keysOf returns the keys that are left.
func (m *meeting) keysOf() []string {
	keys := make([]string, len(m.left))
	for k, i := range m.left {
		keys[k] = m.recs[i].Key
	}
	return keys
}

// turn reads the rows of a turn, and returns the records without a row: they were stored
// before, or were born too long ago.
func (m *meeting) turn(q *refs, rows []metRow) (unsaid []int) {
	byID, keys := map[string]*metRow{}, map[string]*metRow{}
	for i := range rows {
		byID[rows[i].ID], keys[rows[i].Key] = &rows[i], &rows[i]
	}
	var again []int
	for _, i := range m.left {
		r := &m.recs[i]
		row := byID[idOf(r)]
		switch {
		case row == nil && keys[r.Key] == nil:
			unsaid = append(unsaid, i)
		case row == nil && keys[r.Key].Begins: // not before the first of its key
			m.errs[i] = errBegins
		case row == nil:
			again = append(again, i)
		case row.Begins:
			m.errs[i] = errBegins
		case row.Holder != nil:
			if row.Found != nil && *row.Found == *row.Holder && r.OnKey != driver.KeyKeep {
				m.filled = append(m.filled, r.Key)
			}
			m.refs[i] = q.refOf(*row.Holder)
			if r.Found != nil {
				*r.Found = ""
				if row.Found != nil {
					*r.Found = q.refOf(*row.Found)
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

// insertOnKeys stores records that have an OnKey, or a busy key. Records with different keys share a
// commit. If that fails because of one of them, each half goes by itself.
func (in *inserter) insertOnKeys(ctx context.Context, m *meeting, waited map[string]time.Time, busy bool) {
	m.left = slices.DeleteFunc(m.left, func(i int) bool {
		was := !waited[m.recs[i].Key].IsZero()
		if was {
			m.errs[i] = held.Err
		}
		return was
	})
	most, locks := freeTries, []string(nil)
	if busy {
		most, locks = busyTries, m.keysOf()
	}
	for lost := 0; len(m.left) > 0; {
		rows, err := in.meet(ctx, m.next(), locks)
		if n := len(m.left) / 2; n > 0 && err != nil && concernsOne(err) {
			for _, half := range [][]int{slices.Clone(m.left[:n]), slices.Clone(m.left[n:])} {
				m.left = half
				in.insertOnKeys(ctx, m, waited, busy)
			}
			return
		}
		if err != nil {
			if m.fail(err); errors.Is(err, held.Err) {
				waited[m.recs[m.left[0]].Key] = time.Now()
			}
			return
		}
		before := len(m.left)
		in.explainUnsaid(ctx, m, m.turn(&in.refs, rows))
		if len(m.left) < before {
			lost = 0
		} else if lost++; lost == most {
			m.fail(errRaced)
			return
		}
	}
}

// fail gives an error to all that are left.
func (m *meeting) fail(err error) {
	for _, i := range m.left {
		m.errs[i] = err
	}
}

// explainUnsaid finds out about records that a turn has said nothing of.
func (in *inserter) explainUnsaid(ctx context.Context, m *meeting, unsaid []int) {
	if len(unsaid) == 0 {
		return
	}
	before := pick(m.recs, unsaid)
	x, err := retry(ctx, in.db, true, func() (explanation, error) { return in.explain(ctx, before, nil) })
	for k, i := range unsaid {
		id := idOf(&m.recs[i])
		switch {
		case err != nil:
			m.errs[i] = fmt.Errorf("%w: %w", driver.ErrUncertain, err)
		case errors.Is(x.errs[k], driver.ErrExists):
			m.left = append(m.left, i)
		case x.errs[k] != nil:
			m.errs[i] = x.errs[k]
		default:
			if m.refs[i] = in.refOf(cmp.Or(x.into[id], id)); m.recs[i].Found != nil {
				*m.recs[i].Found = ""
			}
		}
	}
}

// meet is one turn, under the locks of busy keys.
func (in *inserter) meet(ctx context.Context, args []any, locks []string) ([]metRow, error) {
	uncertain := false
	return retry(ctx, in.db, true, func() ([]metRow, error) {
		rows, err := askLocked(ctx, in.db, pgx.RowToStructByPos[metRow], locks, in.insertOnKey, args)
		if !uncertain {
			err = asHeld(err)
		}
		uncertain = uncertain || err != nil && judge(err) == lost
		return rows, err
	})
}

// awaitBegin waits until no job that a record would go into is about to be claimed.
func (m *meeting) awaitBegin(ctx context.Context, d *db, tx caller) error {
	for i := range m.recs {
		if mayReplace(&m.recs[i]) {
			m.filled = append(m.filled, m.recs[i].Key)
		}
	}
	for begins := len(m.filled) > 0; begins; {
		if err := tx.run(ctx, asked{text: d.begins, args: []any{m.filled}, row: one(&begins)}); err != nil {
			return err
		}
		if begins {
			sleep(ctx, heldPause)
		}
	}
	return nil
}

// Signal makes the job that waits under a key due, with a payload.
func (in *inserter) Signal(ctx context.Context, key string, payload []byte, at time.Time) (bool, error) {
	kinds, err := signaled(ctx, func(busy bool) ([]string, error) {
		return retry(ctx, in.db, false, func() ([]string, error) {
			var locks []string
			if busy {
				locks = []string{key}
			}
			return askLocked(ctx, in.db, pgx.RowTo[string], locks, in.signal, []any{key, notNull(payload), &at}, hot)
		})
	})
	if len(kinds) > 0 {
		in.announce(announcementOf(kinds, false))
	}
	return len(kinds) > 0, err
}

// signaled calls try, which runs signal.sql, until no other call changes the job meanwhile, or ctx
// ends. After some tries the key is busy.
func signaled(ctx context.Context, try func(busy bool) ([]string, error)) ([]string, error) {
	for n := 0; ; n++ {
		kinds, err := try(n >= freeTries)
		again := errors.Is(err, held.Err) || err == nil && len(kinds) > 0 && kinds[0] == ""
		if !again {
			return kinds, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

func notNull(b []byte) []byte { return append([]byte{}, b...) }
