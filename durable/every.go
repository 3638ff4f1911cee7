package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// everyKeys is what the keys of recurring jobs begin with. No other key may.
const everyKeys = "every/"

func checkKey(key string) error {
	if strings.HasPrefix(key, everyKeys) {
		return fmt.Errorf("%w: the key %q begins with %q, which is for Every", ErrInvalid, key, everyKeys)
	}
	return nil
}

// Every has a job recur under a name, at the times of a Scheduler, such as a cron
// expression; j's At, After and Key are not used. There is one waiting or running
// occurrence of each name, whoever and however many call Every: its identity is the name
// and its time, and the next one is stored with its end, in one commit. It is retried
// like any other job, and the next comes after its end, or its death.
//
// Occurrences that are missed, because no worker was there or the one before took long,
// run once, at once, and the next one is that after the present. Times are by the
// engine's clock, in the local time zone unless the Scheduler has one of its own.
//
// Every process that runs jobs calls Every with the same schedule at its start: schedules
// are code and are not stored. If what waits is not of the schedule, since that was
// changed, its time is changed to the next of the new one. A worker that does not know
// the name ends the series with the occurrence; the next call of Every begins it anew. To
// end a series stop calling Every and cancel what waits: CancelKey(ctx, "every/"+name).
//
// It panics on a nil Scheduler. An empty, unprintable or too long name is [ErrInvalid]. A
// Scheduler that has no time is no error, and nothing is stored.
func (q *Queue) Every(ctx context.Context, name string, s timingwheel.Scheduler, j Job) error {
	if s == nil {
		panic(fmt.Sprintf("durable: Every(%q): nil Scheduler", name))
	}
	if q.closed.Err() != nil {
		return ErrClosed
	}
	if name == "" {
		return fmt.Errorf("durable: Every: %w: the name is empty", ErrInvalid)
	}
	now := q.now()
	j.At, j.After, j.Key = time.Time{}, 0, everyKeys+name
	rec, ok, err := occurrence(name, s, j, now, now)
	if err != nil {
		return fmt.Errorf("durable: Every(%q): %w", name, err)
	}
	q.mu.Lock()
	q.series[name] = s
	q.mu.Unlock()
	if !ok {
		return nil
	}
	_, errs := q.engine.Insert(ctx, []Record{rec})
	if errors.Is(errs[0], ErrExists) {
		return q.adjust(ctx, rec, s)
	}
	if errs[0] == nil {
		q.stats.added.Add(1)
	}
	return errs[0]
}

// adjust moves the occurrence that waits to the time of rec, if it waits for a later one,
// or for one that is not the Scheduler's.
func (q *Queue) adjust(ctx context.Context, rec Record, s timingwheel.Scheduler) error {
	ref, err := q.engine.Lookup(ctx, rec.Job.Key)
	if errors.Is(err, ErrNotFound) {
		return nil // it has ended this moment, and its worker has stored the next
	}
	if err != nil {
		return err
	}
	info, err := q.engine.Get(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	due := info.Due
	if info.State != Waiting || info.Attempt > 0 || due.Before(rec.Born) {
		return nil // it has begun, or is about to
	}
	if !due.After(rec.Due) && s.Next(due.Local().Add(-1)).Equal(due) {
		return nil
	}
	_, err = q.engine.Move(ctx, ref, rec.Due)
	return err
}

// occurrence returns the record of the first occurrence after a time; false if there is
// none. Its ID follows from name and time, so that whoever makes it makes the same.
func occurrence(name string, s timingwheel.Scheduler, j Job, after, born time.Time) (Record, bool, error) {
	at := s.Next(after.Local())
	if at.IsZero() {
		return Record{}, false, nil
	}
	if !at.After(after) {
		return Record{}, false, fmt.Errorf("%w: the Scheduler's Next(%v) is %v, not after it", ErrInvalid, after, at)
	}
	j.At = at
	rec, err := newRecord(j, born)
	if err != nil {
		return Record{}, false, err
	}
	sum := sha256.Sum256([]byte(name))
	rec.ID = hex.EncodeToString(sum[:8]) + "-" + strconv.FormatInt(at.UnixNano(), 36)
	rec.Series = name
	return rec, true, nil
}

// next returns the occurrence after the one that has ended, or nil. It is the first after
// the attempt began: occurrences that passed before that are made up for by this one.
func (q *Queue) next(h *Held, began time.Time) *Record {
	name := h.Record.Series
	if name == "" {
		return nil
	}
	q.mu.Lock()
	s := q.series[name]
	q.mu.Unlock()
	if s == nil {
		q.log.Warn("durable: a series ends: this process has not called Every for it", "name", name)
		return nil
	}
	j := h.Record.Job
	after := h.Record.Due
	if began.After(after) {
		after = began
	}
	rec, ok, err := occurrence(name, s, j, after, q.now())
	if err != nil {
		q.log.Error("durable: a series ends: its Scheduler gave a time that cannot be", "name", name, "error", err)
	}
	if !ok {
		return nil
	}
	return &rec
}
