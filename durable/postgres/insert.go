package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// What Insert may be asked once more it must recognize, also if the job has ended since.
// So an ended job is left in the table until it is this old, and after that nothing is
// inserted any more that was born so long ago: whether it was stored before nobody would
// know.
const (
	repeatable = 60 * time.Second // from birth to the last try of an insert
	remembered = 75 * time.Second // from birth to when an end may remove the row at once
	sweepAfter = 90 * time.Second // and to when the sweep does, after the last such end
)

// columns are records as arrays, which a statement unnests.
type columns struct {
	id, key, kind, lastError, series []string
	payload                          [][]byte
	at, due, born                    []time.Time
	maxAttempts, version, attempt    []int32
	plan, lane, meta                 []string
	priority                         []int16
	timeout                          []int64
	expires                          []*time.Time
	flags, onKey                     []int16
	maxWait                          []int64
}

func (c *columns) add(r *driver.Record) {
	c.id = append(c.id, idOf(r))
	c.key = append(c.key, r.Key)
	c.kind = append(c.kind, r.Kind)
	c.payload = append(c.payload, r.Payload)
	c.at = append(c.at, r.At)
	c.due = append(c.due, r.Due)
	c.born = append(c.born, r.Born)
	c.maxAttempts = append(c.maxAttempts, int32(min(r.MaxAttempts, 1<<31-1)))
	c.version = append(c.version, int32(r.Version))
	c.attempt = append(c.attempt, int32(r.Attempt))
	c.lastError = append(c.lastError, r.LastError)
	c.series = append(c.series, r.Schedule)
	c.plan, c.lane, c.meta = append(c.plan, r.Occurrence), append(c.lane, r.Lane), append(c.meta, jsonOf(r.Meta, len(r.Meta)))
	c.priority, c.timeout = append(c.priority, int16(r.Priority)), append(c.timeout, micros(r.Timeout))
	c.expires = append(c.expires, orNull(r.Expires))
	c.flags, c.onKey, c.maxWait = append(c.flags, flagsOf(r)), append(c.onKey, int16(r.OnKey)), append(c.maxWait, micros(r.MaxWait))
}

// jsonOf is how n names and values, or errors, are passed on: "" for none.
func jsonOf(v any, n int) string {
	if n == 0 {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and times that are not too far
	}
	return string(text)
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// insertArgs are those of insert.sql, and for insert_on_key.sql what that has beside them.
func (c *columns) insertArgs() []any { return append(c.args(), micros(repeatable), c.flags) }
func (c *columns) onKeyArgs() []any  { return append(c.insertArgs(), c.onKey, c.maxWait) }

// args are what all that store records have.
func (c *columns) args() []any {
	return []any{
		c.id, c.key, c.kind, c.payload, c.at, c.due, c.born,
		c.maxAttempts, c.version, c.attempt, c.lastError, c.series,
		c.plan, c.lane, c.priority, c.meta, c.timeout, c.expires,
	}
}

// Insert stores the records in one commit. Those with a key have one of their own, since
// they may have to wait for another's transaction.
func (e *Engine) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	var plain, keyed, onKey []int
	for i := range recs {
		switch r := &recs[i]; {
		case r.Key == "":
			plain = append(plain, i)
		case r.OnKey == driver.KeyRefuse:
			keyed = append(keyed, i)
		default:
			onKey = append(onKey, i)
		}
	}
	for _, indices := range [][]int{plain, keyed} {
		if len(indices) == 0 {
			continue
		}
		for k, err := range e.insertAll(ctx, pick(recs, indices)) {
			if i := indices[k]; err == nil {
				refs[i] = e.refOf(idOf(&recs[i]))
			} else {
				errs[i] = err
			}
		}
	}
	if len(onKey) > 0 {
		met, failed := e.insertOnKeys(ctx, pick(recs, onKey))
		for k, i := range onKey {
			refs[i], errs[i] = met[k], failed[k]
		}
	}
	e.announceSoon(recs, errs)
	return refs, errs
}

func pick[T any](s []T, indices []int) []T {
	picked := make([]T, len(indices))
	for k, i := range indices {
		picked[k] = s[i]
	}
	return picked
}

// insertAll stores records in one commit. If one of several has to wait for a key, each
// goes by itself, so that it holds up no other, but one for each key that is waited for.
func (e *Engine) insertAll(ctx context.Context, recs []driver.Record) []error {
	errs, err := e.insertOnce(ctx, recs)
	if err == nil {
		return errs
	}
	errs = make([]error, len(recs))
	busy := map[string]error{}
	for i := range recs {
		key := recs[i].Key
		switch {
		case !errors.Is(err, driver.ErrExists) || len(recs) == 1:
			errs[i] = err
		case busy[key] != nil:
			errs[i] = busy[key]
		default:
			if errs[i] = e.insertAll(ctx, recs[i:i+1])[0]; errors.Is(errs[i], driver.ErrExists) {
				busy[key] = errs[i]
			}
		}
	}
	return errs
}

const (
	lockTimeout     = "55P03"
	uniqueViolation = "23505"
)

// waitsForEntry tells whether an error is that of a wait for another's transaction that has
// an entry of a unique index. Then the server says which row of which table it was about
// to insert, in the words of its language; of a wait for a lock of the table it does not.
func waitsForEntry(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == lockTimeout && tupleID.MatchString(pg.Where) && strings.Contains(pg.Where, "job")
}

// tupleID is how the server writes where a row is.
var tupleID = regexp.MustCompile(`\(\d+,\d+\)`)

// insertOnce stores what it can, all with a key or all without. It is repeated until it has
// an answer: whatever it waits for it waits out, but a key.
func (e *Engine) insertOnce(ctx context.Context, recs []driver.Record) ([]error, error) {
	var c columns
	for i := range recs {
		c.add(&recs[i])
	}
	args := c.insertArgs()
	statement, settings := e.insertNew, []string(nil)
	if recs[0].Key != "" {
		statement, settings = e.insert, []string{patient}
	}
	uncertain := false // an earlier try may be what is under way
	ids, err := retry(ctx, e, true, func() ([]string, error) {
		ids, err := ask(ctx, e, pgx.RowTo[string], statement, args, settings...)
		if isCode(err, uniqueViolation) { // an earlier try has stored some, of this call or another
			statement = e.insert
			ids, err = ask(ctx, e, pgx.RowTo[string], statement, args, settings...)
		}
		switch {
		case err == nil:
		case waitsForEntry(err) && !uncertain:
			err = fmt.Errorf("%w: an open transaction holds the key: %w", driver.ErrExists, err)
		default:
			uncertain = uncertain || judge(err) == lost
		}
		return ids, err
	})
	if err != nil || len(ids) == len(recs) {
		return make([]error, len(recs)), err
	}
	errs, err := retry(ctx, e, true, func() ([]error, error) { return e.explain(ctx, recs, ids) })
	if err != nil && !errors.Is(err, driver.ErrUncertain) {
		err = fmt.Errorf("%w: %w", driver.ErrUncertain, err) // some are stored
	}
	return errs, err
}

// explain finds out why records were not stored: they had been before, their keys were
// taken, or it is too late to tell.
func (e *Engine) explain(ctx context.Context, recs []driver.Record, stored []string) ([]error, error) {
	there := setOf(stored)
	var ids []string
	for i := range recs {
		if id := idOf(&recs[i]); !there[id] {
			ids = append(ids, id)
		}
	}
	type answer struct {
		There []string
		Now   time.Time
	}
	known, err := ask(ctx, e, pgx.RowToStructByPos[answer], e.known, []any{ids})
	if err != nil {
		return nil, err
	}
	for _, id := range known[0].There {
		there[id] = true
	}
	now := known[0].Now
	errs := make([]error, len(recs))
	for i := range recs {
		r := &recs[i]
		switch {
		case there[idOf(r)]:
		case r.Key == "" || !r.Born.After(now.Add(-repeatable)):
			errs[i] = fmt.Errorf("%w: it was added %v ago, too long to know whether it was stored before", driver.ErrUncertain, now.Sub(r.Born))
		default:
			errs[i] = driver.ErrExists
		}
	}
	return errs, nil
}

// announceSoon announces the stored jobs that are due soon. Polls find later jobs in time.
func (e *Engine) announceSoon(recs []driver.Record, errs []error) {
	soon := e.now().Add(window)
	a := announcementOf(nil, false)
	for i := range recs {
		switch r := &recs[i]; {
		case errs[i] != nil:
		case r.MaxWait > 0: // and it may be over: the job is due earlier then
			a.add(r.Kind, time.Time{})
		case r.Due.Before(soon):
			a.add(r.Kind, r.Due)
		}
	}
	if len(a.kinds) > 0 {
		e.announce(a)
	}
}
