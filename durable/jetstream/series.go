package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A schedule is a message of the subject s.<hash of its name>, in the partition of its
// occurrences' key. Each end of an occurrence writes it anew, with what is its Last, on
// the condition that it is as it was read: so an end and a change of the schedule never
// pass each other. One that was deleted is there for a while without a plan.

// deletedTTL is for how long it is remembered that a schedule was deleted.
const deletedTTL = 7 * 24 * time.Hour

// wireSeries is a schedule as it is stored.
type wireSeries struct {
	Name     string `json:"name"`
	Plan     string `json:"plan"`
	Revision int64  `json:"rev"`
	Last     int64  `json:"last,omitempty"` // microseconds
}

func (p *part) seriesSubject(name string) string {
	sum := sha256.Sum256([]byte(name))
	return p.subject("s." + hex.EncodeToString(sum[:16]))
}

// seriesWrite stores a schedule if it is as it was read, as the message with a sequence.
func (p *part) seriesWrite(s driver.Schedule, last uint64) write {
	data, err := json.Marshal(wireSeries{s.Name, s.Definition, s.Revision, toMicros(s.Last)})
	if err != nil {
		panic(err) // strings and numbers
	}
	w := write{subject: p.seriesSubject(s.Name), data: data, last: seq(last), rollup: true}
	if s.Definition == "" {
		w.ttl = deletedTTL
	}
	return w
}

func decodeSeries(data []byte) (driver.Schedule, error) {
	var w wireSeries
	if err := json.Unmarshal(data, &w); err != nil {
		return driver.Schedule{}, fmt.Errorf("%w: a schedule cannot be read: %w", driver.ErrStorage, err)
	}
	return driver.Schedule{Name: w.Name, Definition: w.Plan, Revision: w.Revision, Last: fromMicros(w.Last)}, nil
}

// readSeries returns a schedule and the sequence of its message, 0 if there is none.
func (p *part) readSeries(ctx context.Context, name string) (driver.Schedule, uint64, error) {
	m, err := p.last(ctx, p.seriesSubject(name))
	if errors.Is(err, driver.ErrNotFound) {
		return driver.Schedule{Name: name}, 0, nil
	}
	if err != nil {
		return driver.Schedule{}, 0, err
	}
	s, err := decodeSeries(m.Data)
	return s, m.Seq, err
}

// endSeries is what the end of an occurrence writes of its schedule. That it is written is
// the condition that nobody has changed it.
func (p *part) endSeries(ctx context.Context, o *driver.Completion) (group, error) {
	if !o.Delivery.Record.IsOccurrence() {
		return nil, nil
	}
	s, at, err := p.readSeries(ctx, o.Delivery.Record.Schedule)
	if err != nil {
		return nil, err
	}
	if s.Revision != o.Revision {
		return nil, driver.ErrChanged
	}
	if !o.Occurred.IsZero() {
		s.Last = o.Occurred
	}
	return group{p.seriesWrite(s, at)}, nil
}

func (e *engine) SetSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	return e.of(driver.OccurrenceKey(s.Name), "").setSeries(ctx, was, s, replace)
}

// setSeries writes a schedule, and with it what becomes of the occurrence that waits. All
// that this is based on is a condition of the commit: the schedule, the key, and the status
// of the occurrence. If that runs, its end will find the schedule changed.
func (p *part) setSeries(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	var uncertain error
	for range maxTries {
		there, at, err := p.readSeries(ctx, s.Name)
		switch {
		case err != nil:
			return cmp.Or(uncertain, err)
		case there.Revision == s.Revision:
			return nil // an earlier try has stored it
		case there.Revision != was:
			return driver.ErrChanged
		}
		if s.Definition != "" {
			s.Last = there.Last
		}
		g, err := p.replaceOccurrence(ctx, there, replace)
		if err == nil {
			err = p.write(ctx, append(group{p.seriesWrite(s, at)}, g...)...)
		}
		switch {
		case errors.Is(err, errConflict), errors.Is(err, errBusy):
			if err := p.sync(ctx); err != nil {
				return cmp.Or(uncertain, err)
			}
			p.wait(ctx, 5*time.Millisecond)
		case isLost(err) && ctx.Err() == nil && p.closed.Err() == nil:
			uncertain = err
		case err != nil:
			return cmp.Or(uncertain, err)
		default:
			return nil
		}
	}
	return fmt.Errorf("%w: gave up after %d conflicting updates of the schedule", driver.ErrUncertain, maxTries)
}

// replaceOccurrence is what ends the occurrence that waits, and stores the next. Nothing, if
// the one that is there is to stay.
func (p *part) replaceOccurrence(ctx context.Context, there driver.Schedule, replace driver.Replace) (group, error) {
	key := driver.OccurrenceKey(there.Name)
	h, err := p.keyHolder(ctx, key)
	if err != nil {
		return nil, err
	}
	var waits, next *driver.Record
	var g group
	if h.alive {
		var stays bool
		if waits, g, stays, err = p.cancelGroup(ctx, h.ref); err != nil || stays {
			return nil, err
		}
	}
	if replace != nil {
		if next, err = replace(there.Last, waits); err != nil {
			return nil, err
		}
	}
	if next == waits {
		return nil, nil
	}
	if next == nil {
		w := grave(p.keySubject(key))
		w.last = seq(h.seq)
		return append(g, w), nil
	}
	in := p.place(next)
	if in.putOff {
		in.group[0].last = nil // the key's condition is that of both
	}
	in.repeat(p)
	return append(append(g, in.group...), p.keyWrite(next, h.seq)), nil
}

// cancelGroup returns the occurrence that waits, and what cancels it, or tells that it stays
// whatever is to follow. As in moveGroup the status is as it was read, and if there was none
// its bucket is open.
func (p *part) cancelGroup(ctx context.Context, ref driver.Ref) (waits *driver.Record, g group, stays bool, err error) {
	a, err := parseRef(ref, p.salt, p.of)
	if err != nil {
		return nil, nil, false, err
	}
	at, s, err := p.current(ctx, a)
	if err != nil {
		return nil, nil, false, err
	}
	again, forward, err := p.forwarded(ctx, a)
	if err != nil {
		return nil, nil, false, err
	}
	if s.fate == claimed {
		return nil, nil, true, nil
	}
	if s.fate.final() {
		return nil, nil, false, errBusy // it has ended this moment
	}
	r, err := p.record(ctx, a, again, forward)
	if errors.Is(err, driver.ErrNotFound) || again != at {
		return nil, nil, false, errBusy // it was moved meanwhile, or another server is a moment behind
	}
	if err != nil {
		return nil, nil, false, err
	}
	if s.fate == freed {
		r.Attempt = s.attempt
	}
	if r.Attempt > 0 {
		return nil, nil, true, nil
	}
	left := grave(p.forward(at.id))
	if s.seq == 0 {
		left.last, left.guard = seq(0), p.nearMark(at.bucket)
	}
	end := status{fate: canceled, token: rand.Text(), attempt: s.attempt}
	return &r, group{{subject: p.fateSubject(at), data: end.encode(), last: seq(s.seq)}, left}, false, nil
}

func (e *engine) Schedule(ctx context.Context, name string) (driver.Schedule, error) {
	s, at, err := e.of(driver.OccurrenceKey(name), "").readSeries(ctx, name)
	if err == nil && at == 0 {
		err = driver.ErrNotFound
	}
	return s, err
}

// Schedules reads the last message of each subject that there is. A reading in the stream's
// order would find those again and again whose occurrences end meanwhile.
func (e *engine) Schedules(ctx context.Context) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		for _, p := range e.parts {
			err := p.eachSeries(ctx, func(s driver.Schedule) bool { return yield(s, nil) })
			if errors.Is(err, errStop) {
				return
			}
			if err != nil {
				yield(driver.Schedule{}, err)
				return
			}
		}
	}
}

func (p *part) eachSeries(ctx context.Context, f func(driver.Schedule) bool) error {
	info, err := p.info(ctx, p.subject("s.*"))
	if err != nil {
		return err
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(info.subjects)), pageSize) {
		found, err := p.lasts(ctx, some)
		if err != nil {
			return err
		}
		for _, m := range found {
			s, err := decodeSeries(m.Data)
			if err != nil {
				return err
			}
			if s.Definition != "" && !f(s) {
				return errStop
			}
		}
	}
	return nil
}
