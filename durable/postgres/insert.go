package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
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

// columns are records as arrays, which a statement unnests. Each array costs the server some 5 us a call, so one of
// them has all that few records have. None is about what a new record never has: an At that is not its Due, a
// Version, an Attempt, an error.
type columns struct {
	id, kind    []string
	payload     pgtype.FlatArray[[]byte] // by another type pgx reads it by reflection
	due, born   []time.Time
	maxAttempts []int32
	more        []*string // nil: nothing
}

// more is what few records have, as JSON. The names are those of the table, where it has them.
type more struct {
	Key        string          `json:"key,omitempty"`
	Schedule   string          `json:"schedule,omitempty"`
	Occurrence string          `json:"occurrence,omitempty"`
	Lane       string          `json:"lane,omitempty"`
	Priority   driver.Priority `json:"priority,omitempty"`
	Meta       string          `json:"meta,omitempty"`
	Timeout    int64           `json:"timeout,omitempty"`
	Expires    *time.Time      `json:"expires,omitempty"`
	Flags      int16           `json:"flags,omitempty"`
	OnKey      int8            `json:"on_key,omitempty"`
	MaxWait    int64           `json:"max_wait,omitempty"`
	Retain     int64           `json:"retain,omitempty"`
}

// columnsOf returns columns with room for n records.
func columnsOf(n int) columns {
	return columns{
		make([]string, 0, n), make([]string, 0, n), make([][]byte, 0, n), make([]time.Time, 0, n), make([]time.Time, 0, n),
		make([]int32, 0, n), make([]*string, 0, n),
	}
}

func (c *columns) add(r *driver.Record) {
	c.id, c.kind, c.payload = append(c.id, idOf(r)), append(c.kind, r.Kind), append(c.payload, r.Payload)
	c.due, c.born = append(c.due, r.Due), append(c.born, r.Born)
	c.maxAttempts = append(c.maxAttempts, int32(min(r.MaxAttempts, 1<<31-1)))
	m := more{
		Key: r.Key, Schedule: r.Schedule, Occurrence: r.Occurrence,
		Lane: r.Lane, Priority: r.Priority, Meta: jsonOf(r.Meta, len(r.Meta)), Timeout: micros(r.Timeout),
		Expires: orNull(r.Expires), Flags: flagsOf(r), OnKey: int8(r.OnKey), MaxWait: micros(r.MaxWait), Retain: micros(r.Retain),
	}
	c.more = append(c.more, orNone(m))
}

// orNone returns v as JSON, or nil if it is zero.
func orNone[T comparable](v T) *string {
	if v == *new(T) {
		return nil
	}
	text := jsonOf(v, 1)
	return &text
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
	utc := t.UTC() // some local times cannot be written as JSON
	return &utc
}

// insertArgs are those of insert.sql and insert_on_key.sql.
func (c *columns) insertArgs() []any { return append([]any{micros(repeatable)}, c.args()...) }

// args are what all that store records have.
func (c *columns) args() []any {
	return []any{c.id, c.kind, c.payload, c.due, c.born, c.maxAttempts, c.more}
}

// inserter stores jobs, and the signals that go into them. A key has at most one job that waits: the
// server's unique index decides. Of each record that was not stored an inserter finds out why: it was
// stored before, or another job has its key, or an open transaction has.
//
// heldKeys has a lock of its own, which is not held while a statement runs. No record waits for a
// caller's transaction that has the key of another. A job that is there is changed, or ended, by the
// OnKey of a record and by a signal alone.
type inserter struct {
	*announcer
	heldKeys heldKeys
}

// Insert stores the records: those without a key in one commit, and those with one in others. If it
// may wait, it calls insert again for those whose keys are held.
func (in *inserter) Insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := in.insertNow(ctx, recs)
	for held.MayWait(ctx) {
		var left []int
		for i, err := range errs {
			if errors.Is(err, held.Err) {
				left = append(left, i)
			}
		}
		if len(left) == 0 || ctx.Err() != nil {
			break
		}
		sleep(ctx, heldPause)
		again, failed := in.insertNow(ctx, pick(recs, left))
		for k, i := range left {
			refs[i], errs[i] = again[k], failed[k]
		}
	}
	return refs, errs
}

// heldPause is between two tries of Insert.
const heldPause = 10 * time.Millisecond

// insertNow is Insert that waits for no transaction of a caller's: see held.go.
func (in *inserter) insertNow(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	var plain, keyed, onKey, busy []int
	meets := map[string]bool{} // the keys of records with an OnKey: others of these keys have their turns among them
	for i := range recs {
		if recs[i].OnKey != driver.KeyRefuse {
			meets[recs[i].Key] = true
		}
	}
	for i := range recs {
		switch r := &recs[i]; {
		case r.Key == "":
			plain = append(plain, i)
		case in.heldKeys.busy(r.Key):
			busy = append(busy, i)
		case !meets[r.Key]:
			keyed = append(keyed, i)
		default:
			onKey = append(onKey, i)
		}
	}
	waited := map[string]time.Time{} // the keys that were held in this call, and when
	for _, indices := range [][]int{plain, keyed} {
		if len(indices) == 0 {
			continue
		}
		for k, err := range in.insertFreeing(ctx, pick(recs, indices), waited) {
			if i := indices[k]; err == nil {
				refs[i] = in.refOf(idOf(&recs[i]))
			} else {
				errs[i] = err
			}
		}
	}
	for n, indices := range [][]int{onKey, busy} {
		m := newMeeting(pick(recs, indices))
		in.insertOnKeys(ctx, m, waited, n == 1)
		for k, i := range indices {
			refs[i], errs[i] = m.refs[k], m.errs[k]
		}
	}
	in.decideHeld(ctx, recs, errs, waited)
	in.announceSoon(recs, refs, errs)
	return refs, errs
}

// pick returns the items at indices that ascend. If these are all, it copies nothing: nobody changes the items.
func pick[T any](s []T, indices []int) []T {
	if len(indices) == len(s) {
		return s
	}
	picked := make([]T, len(indices))
	for k, i := range indices {
		picked[k] = s[i]
	}
	return picked
}

// errHolderExpired is that of a record whose key has a waiting job that has expired.
var errHolderExpired = fmt.Errorf("%w: it has expired", driver.ErrExists)

// insertFreeing is insertAll that frees the keys of jobs which have expired, and stores their records then.
func (in *inserter) insertFreeing(ctx context.Context, recs []driver.Record, waited map[string]time.Time) []error {
	errs := in.insertAll(ctx, recs, waited)
	var again []int
	var keys []string
	for i, err := range errs {
		if errors.Is(err, errHolderExpired) {
			again, keys = append(again, i), append(keys, recs[i].Key)
		}
	}
	if len(again) == 0 {
		return errs
	}
	_, err := query(ctx, in.db, pgx.RowTo[string], in.freeExpired, []any{keys}, hotBrief)
	if err != nil {
		return errs
	}
	for k, err := range in.insertAll(ctx, pick(recs, again), waited) {
		errs[again[k]] = err
	}
	return errs
}

// insertAll stores records in one commit. If that fails because of one of them, each half goes by
// itself, without the records whose keys are found to be held meanwhile.
func (in *inserter) insertAll(ctx context.Context, recs []driver.Record, waited map[string]time.Time) []error {
	errs := make([]error, len(recs))
	var free []int
	for i := range recs {
		if errs[i] = held.Err; waited[recs[i].Key].IsZero() {
			free = append(free, i)
		}
	}
	for k, err := range in.insertFree(ctx, pick(recs, free), waited) {
		errs[free[k]] = err
	}
	return errs
}

// insertFree is insertAll of records whose keys are not known to be held.
func (in *inserter) insertFree(ctx context.Context, recs []driver.Record, waited map[string]time.Time) []error {
	if len(recs) == 0 {
		return nil
	}
	errs, err := in.insertOnce(ctx, recs)
	switch {
	case err == nil:
		return errs
	case concernsOne(err) && len(recs) > 1:
		return halves(recs, func(half []driver.Record) []error { return in.insertAll(ctx, half, waited) })
	case errors.Is(err, held.Err):
		waited[recs[0].Key] = time.Now()
	}
	return slices.Repeat([]error{err}, len(recs))
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
// an answer: whatever it waits for it waits out, but a key. An error besides those of the records
// says that it has stored none, or ErrUncertain.
func (in *inserter) insertOnce(ctx context.Context, recs []driver.Record) ([]error, error) {
	c := columnsOf(len(recs))
	for i := range recs {
		c.add(&recs[i])
	}
	args, settings := c.insertArgs(), []string(nil)
	isNew := recs[0].Key == "" // as far as is known, no record is stored
	if !isNew {
		settings = []string{brief}
	}
	uncertain := false // an earlier try may be what is under way
	ids, err := retry(ctx, in.db, true, func() (ids []string, err error) {
		if isNew {
			ids, err = in.insertNewOnce(ctx, c.id, args)
			isNew = !isCode(err, uniqueViolation) // an earlier try has stored some, of this call or another
		}
		if !isNew {
			ids, err = ask(ctx, in.db, pgx.RowTo[string], in.insert, args, settings...)
		}
		switch {
		case err == nil:
		case waitsForEntry(err) && !uncertain && recs[0].Key != "":
			err = asHeld(err)
		default:
			uncertain = uncertain || judge(err) == lost
		}
		return ids, err
	})
	if err != nil || len(ids) == len(recs) {
		return make([]error, len(recs)), err
	}
	x, err := retry(ctx, in.db, true, func() (explanation, error) { return in.explain(ctx, recs, ids) })
	if err != nil && !errors.Is(err, driver.ErrUncertain) {
		err = fmt.Errorf("%w: %w", driver.ErrUncertain, err) // some are stored
	}
	return x.errs, err
}

// insertNewOnce stores records of which none is stored. It returns their ids, or none if it has left some out: the
// server does not send a thousand ids back that are known here.
func (in *inserter) insertNewOnce(ctx context.Context, ids []string, args []any) ([]string, error) {
	n, err := in.affect(ctx, in.insertNew, args)
	if err != nil || n < int64(len(ids)) {
		return nil, err
	}
	return ids, nil
}

// explanation is the answer to explain.
type explanation struct {
	errs []error
	into map[string]string // the job that a record has gone into; "": none. It has each record that is there.
}

// explain finds out why records were not stored: they had been before, their keys were
// taken, or it is too late to tell.
func (in *inserter) explain(ctx context.Context, recs []driver.Record, stored []string) (x explanation, err error) {
	there := setOf(stored)
	var ids, keys []string
	for i := range recs {
		if id := idOf(&recs[i]); !there[id] {
			ids = append(ids, id)
			if recs[i].Key != "" {
				keys = append(keys, recs[i].Key)
			}
		}
	}
	type answer struct {
		There   []string
		Now     time.Time
		Expired []string
	}
	known, err := ask(ctx, in.db, pgx.RowToStructByPos[answer], in.known, []any{ids, keys})
	if err != nil {
		return x, err
	}
	x.into = make(map[string]string, len(known[0].There))
	for _, pair := range known[0].There {
		id, into, _ := strings.Cut(pair, " ")
		there[id], x.into[id] = true, into
	}
	now := known[0].Now
	x.errs = make([]error, len(recs))
	for i := range recs {
		r := &recs[i]
		switch {
		case there[idOf(r)]:
		case r.Key == "" || !r.Born.After(now.Add(-repeatable)):
			x.errs[i] = fmt.Errorf("%w: it was added %v ago, too long to know whether it was stored before", driver.ErrUncertain, now.Sub(r.Born))
		case slices.Contains(known[0].Expired, r.Key):
			x.errs[i] = errHolderExpired
		default:
			x.errs[i] = driver.ErrExists
		}
	}
	return x, nil
}

// mayReplace reports whether a record ends or changes the job that waits under its key.
func mayReplace(r *driver.Record) bool {
	return r.OnKey == driver.KeyReplace || r.OnKey == driver.KeyLater
}
