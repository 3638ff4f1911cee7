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

// Every lets a job recur under a name, at the times of a Scheduler, such as a cron
// expression. At, After and Key of j are not used. However many processes call Every,
// there is one occurrence of each name that waits or runs. It is known by the name and
// its time, and the next one is stored with its end, in one commit. An occurrence is
// tried again like any other job; the next one follows when it is done or dead.
//
// If occurrences were missed, because there was no worker or the one before took long,
// one of them runs at once, and the next is the first after that moment. Times are by the
// engine's clock, in the local time zone unless the Scheduler has one of its own.
//
// Schedules are code and are not stored. So each process that runs jobs must call Every
// with the same schedule when it starts. If the schedule was changed, the occurrence that
// waits gets the next time of the new one. If a worker does not know the name, the series
// ends with the occurrence that it runs; the next call of Every begins it anew. To end a
// series, call Every no longer, and cancel what waits: CancelKey(ctx, "every/"+name).
//
// If the Scheduler panics, or gives a time that is not after the one that it was asked
// about, when an occurrence has ended, the series ends with that, and it is logged.
//
// Every panics on a nil Scheduler. If the name is empty, unprintable or too long, it
// returns [ErrInvalid]. If the Scheduler has no time, it stores nothing and returns nil.
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
	var rec Record
	var ok bool
	var err error
	if failed := protect(func() { rec, ok, err = occurrence(name, s, j, after, q.now()) }); failed != nil {
		ok, err = false, failed
	}
	if err != nil {
		q.log.Error("durable: a series ends: its Scheduler panics, or gave a time that cannot be", "name", name, "error", err)
	}
	if !ok {
		return nil
	}
	return &rec
}
