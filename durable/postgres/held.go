package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
)

// A record whose key another's transaction holds waits, but nothing else waits with it: a statement
// waits for a lock for 5 ms (brief), Insert returns held.Err, and the Queue calls again. That ends
// with ErrExists once one transaction has held the key for patience.
//
// A key that many transactions take and leave, one after another, is busy. It is not held by any
// of them for long, so its records wait on, for longer at a time, and one after another: each has
// an advisory lock of the key. Those that come anew try without the lock first, since few keys
// are busy.

// asHeld gives the error of a wait for a key its name.
func asHeld(err error) error {
	if waitsForEntry(err) {
		return fmt.Errorf("%w: %w", held.Err, err)
	}
	return err
}

// patience is how long a transaction may hold a key before Insert returns ErrExists.
const patience = time.Second

// errRaced is that of a record which lost too many turns to others.
var errRaced = fmt.Errorf("%w, and then by another", held.Err)

// heldKeys are the keys that Insert found held.
type heldKeys struct {
	mu    sync.Mutex
	keys  map[string]*heldKey
	swept time.Time
}

// heldKey is a key that was held when Insert tried last.
type heldKey struct {
	since  time.Time // when a transaction held it that may hold it still
	before int64     // that transaction has a number below this
	last   time.Time // when the key was held last
	busy   bool
}

// forgotten is after how long a held key that nobody tries is forgotten.
const forgotten = 10 * time.Second

// busy reports whether a key is busy.
func (h *heldKeys) busy(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[key]
	return k != nil && k.busy && time.Since(k.last) < forgotten
}

// openNow are the open transactions of the server that write: all have numbers from Oldest on, and
// below Next.
type openNow struct{ Oldest, Next int64 }

// decide returns the error of a record of some age whose key was held at a time.
func (h *heldKeys) decide(key string, at time.Time, age time.Duration, raced bool, open openNow) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.sweep(now)
	k := h.keys[key]
	switch {
	case k == nil:
		k = &heldKey{since: at, before: open.Next, busy: raced}
		h.keys[key] = k
	case raced || open.Oldest >= k.before: // all that were open have ended
		k.since, k.before, k.busy = at, open.Next, true
	case now.Sub(k.since) >= patience:
		k.busy = false
	}
	k.last = now
	if !k.busy && now.Sub(k.since) >= patience && age >= patience {
		return fmt.Errorf("%w: an open transaction holds the key", driver.ErrExists)
	}
	return held.Err
}

// sweep forgets keys that nobody tries any more.
func (h *heldKeys) sweep(now time.Time) {
	if now.Sub(h.swept) < forgotten {
		return
	}
	h.swept = now
	for key, k := range h.keys {
		if now.Sub(k.last) >= forgotten {
			delete(h.keys, key)
		}
	}
}

// decideHeld decides about records whose keys are held.
func (e *engine) decideHeld(ctx context.Context, recs []driver.Record, errs []error, waited map[string]time.Time) {
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, held.Err) && !errors.Is(err, errBegins) }) {
		return
	}
	open, err := ask(ctx, e, pgx.RowToStructByPos[openNow],
		"select pg_snapshot_xmin(s)::text::int8, pg_snapshot_xmax(s)::text::int8 from pg_current_snapshot() as s", nil)
	if err != nil {
		return // the Queue calls again
	}
	now := e.now()
	for i, err := range errs {
		if !errors.Is(err, held.Err) || errors.Is(err, errBegins) {
			continue
		}
		at, raced := waited[recs[i].Key], errors.Is(err, errRaced)
		if raced {
			at = time.Now()
		}
		errs[i] = e.heldKeys.decide(recs[i].Key, at, now.Sub(recs[i].Born), raced, open[0])
	}
}

// lockKeys takes advisory locks of keys, until the transaction ends.
const lockKeys = "select pg_advisory_xact_lock(k) from unnest($1::int8[]) as k"

// lockOf returns the advisory lock of a key.
func (e *engine) lockOf(key string) int64 {
	h := fnv.New64a()
	h.Write([]byte(e.schema + "\x00" + key))
	return int64(h.Sum64())
}

// locksOf returns the locks of the keys that are left, in an order that is the same for all.
func (e *engine) locksOf(m *meeting) []int64 {
	locks := make([]int64, len(m.left))
	for k, i := range m.left {
		locks[k] = e.lockOf(m.recs[i].Key)
	}
	slices.Sort(locks)
	return slices.Compact(locks)
}

// askLocked is ask of a statement that may have to wait for keys: it waits briefly, or under the
// locks of busy keys longer.
func askLocked[T any](ctx context.Context, e *engine, row pgx.RowToFunc[T], locks []int64, statement string, args []any, settings ...string) (all []T, err error) {
	if len(locks) == 0 {
		return ask(ctx, e, row, statement, args, append(settings, brief)...)
	}
	if err := e.usable(); err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	for _, s := range append(settings, patient) {
		b.Queue(s)
	}
	locked := false
	b.Queue(lockKeys, locks).Query(func(rows pgx.Rows) error {
		rows.Close()
		locked = rows.Err() == nil
		return rows.Err()
	})
	b.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, row)
		return err
	})
	c, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, &notSentError{err}
	}
	defer c.Release()
	err = c.SendBatch(ctx, b).Close()
	if isCode(err, lockTimeout) && !locked {
		err = fmt.Errorf("%w: %w", held.Err, err)
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}
