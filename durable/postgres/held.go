package postgres

import (
	"context"
	"errors"
	"fmt"
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
	seen   string    // the job that had the key, and the transaction that had locked it
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
// below Next. Seen is who has each key.
type openNow struct {
	Oldest, Next int64
	Seen         []string
}

// decide returns the error of a record of some age whose key was held at a time.
func (h *heldKeys) decide(key string, at time.Time, age time.Duration, raced bool, open openNow, seen string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.sweep(now)
	k := h.keys[key]
	switch {
	case k == nil:
		k = &heldKey{since: at, before: open.Next, seen: seen, busy: raced}
		h.keys[key] = k
	case raced || open.Oldest >= k.before || seen != k.seen: // all that were open have ended, or that which had the key
		k.since, k.before, k.seen, k.busy = at, open.Next, seen, true
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
func (in *inserter) decideHeld(ctx context.Context, recs []driver.Record, errs []error, waited map[string]time.Time) {
	if !slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, held.Err) && !errors.Is(err, errBegins) }) {
		return
	}
	keys := make([]string, len(recs))
	for i, err := range errs {
		if errors.Is(err, held.Err) {
			keys[i] = recs[i].Key
		}
	}
	open, err := ask(ctx, in.db, pgx.RowToStructByPos[openNow], in.open, []any{keys}, hot)
	if err != nil {
		return // the Queue calls again
	}
	now := in.now()
	for i, err := range errs {
		if !errors.Is(err, held.Err) || errors.Is(err, errBegins) {
			continue
		}
		at, raced := waited[recs[i].Key], errors.Is(err, errRaced)
		if raced {
			at = time.Now()
		}
		errs[i] = in.heldKeys.decide(recs[i].Key, at, now.Sub(recs[i].Born), raced, open[0], open[0].Seen[i])
	}
}

// askLocked is ask of a statement that may have to wait for keys: it waits briefly, or under the
// advisory locks of busy keys longer.
func askLocked[T any](ctx context.Context, d *db, row pgx.RowToFunc[T], keys []string, statement string, args []any, settings ...string) (all []T, err error) {
	if len(keys) == 0 {
		return ask(ctx, d, row, statement, args, append(settings, brief)...)
	}
	if err := d.usable(); err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	for _, s := range append(settings, patient) {
		b.Queue(s)
	}
	locked := false
	b.Queue(d.lockKeys, keys).Query(func(rows pgx.Rows) error {
		rows.Close()
		locked = rows.Err() == nil
		return rows.Err()
	})
	b.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, row)
		return err
	})
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, &notSentError{err}
	}
	defer c.Release()
	err = c.SendBatch(ctx, b).Close()
	if isCode(err, lockTimeout) && !locked {
		err = fmt.Errorf("%w: %w", held.Err, err)
	}
	if err != nil {
		closeReadOnly(c.Conn(), err)
		return nil, err
	}
	return all, nil
}
