package jetstream

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/unread"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A schedule is a message of the subject s.<hash of its name>, in the partition of its
// occurrences' key. Each end of an occurrence writes it anew, with what is its Last, on
// the condition that it is as it was read: so an end and a change of the schedule never
// pass each other. One that was deleted is there for a while without a definition.
//
// The subject has a hash, since a name may be any text; the message has the name. Two names with one
// hash would be one schedule: the hash has 128 bits.

// deletedTTL is for how long it is remembered that a schedule was deleted. A change that is based
// on what was before, and is still on its way, finds another revision then. Without a message it
// would take the name for one that never was, and store the schedule anew.
const deletedTTL = 7 * 24 * time.Hour

// wireSchedule is a schedule as it is stored. Package recur knows the content of a definition; here
// it is a text.
type wireSchedule struct {
	Name       string `json:"name"`
	Definition string `json:"def"`
	Revision   int64  `json:"rev"`
	Last       int64  `json:"last,omitempty"` // microseconds
}

// schedules are the messages of recurring jobs, and their next occurrences. It has no state of its
// own: a schedule, the key of its occurrence and the status of that change in one commit. It never
// says when an occurrence is: its callers bring the next one, as a record.
type schedules struct {
	*keys
	inserts *inserts
}

// scheduleWrite stores a schedule if it is as it was read, in the message was. The fields there
// that this build does not know are passed on, but not by a deletion: what is stored anew under the
// name later is another schedule.
func (sc *schedules) scheduleWrite(s driver.Schedule, was stream.Message) stream.Write {
	data, err := json.Marshal(wireSchedule{s.Name, s.Definition, s.Revision, toMicros(s.Last)})
	if err != nil {
		panic(err) // strings and numbers
	}
	w := stream.Write{Subject: sc.scheduleSubject(s.Name), Data: data, Last: stream.Seq(was.Seq), Rollup: true}
	if s.Definition == "" {
		w.TTL = deletedTTL
	} else {
		w.Data = unread.Of[wireSchedule](was.Data).AddTo(data)
	}
	return w
}

func decodeSchedule(data []byte) (driver.Schedule, error) {
	var w wireSchedule
	if err := json.Unmarshal(data, &w); err != nil {
		return driver.Schedule{}, fmt.Errorf("%w: cannot read a schedule: %w", driver.ErrStorage, err)
	}
	return driver.Schedule{Name: w.Name, Definition: w.Definition, Revision: w.Revision, Last: fromMicros(w.Last)}, nil
}

// readSchedule returns a schedule, and its message. Without a message it has the name alone, and the
// revision 0. A deleted schedule has no definition, and still has its revision.
func (sc *schedules) readSchedule(ctx context.Context, name string) (driver.Schedule, stream.Message, error) {
	m, err := sc.Last(ctx, sc.scheduleSubject(name))
	if err != nil || m.Seq == 0 {
		return driver.Schedule{Name: name}, stream.Message{}, err
	}
	s, err := decodeSchedule(m.Data)
	return s, m, err
}

// endSchedule is what the end of an occurrence writes of its schedule. That it is written is the
// condition that nobody has changed it. It costs each end of an occurrence one read and one
// message, and no other end. With ErrChanged the caller gets the next occurrence from its calendar, and
// ends the job with that.
func (sc *schedules) endSchedule(ctx context.Context, o *driver.Completion) (stream.Group, error) {
	if !o.Delivery.Record.IsOccurrence() {
		return nil, nil
	}
	s, was, err := sc.readSchedule(ctx, o.Delivery.Record.Schedule)
	if err != nil {
		return nil, err
	}
	if s.Revision != o.Revision {
		return nil, driver.ErrChanged
	}
	if !o.Occurred.IsZero() {
		s.Last = o.Occurred
	}
	return stream.Group{sc.scheduleWrite(s, was)}, nil
}

// setSchedule writes a schedule, and with it what becomes of the occurrence that waits. All
// that this is based on is a condition of the commit: the schedule, the key, and the status
// of the occurrence. If that runs, its end will find the schedule changed.
//
// After a lost answer the next try finds its own revision there, and is done. A change to the revision
// that is there already writes nothing, so it needs a witness that this is no old reading.
func (sc *schedules) setSchedule(ctx context.Context, revision int64, s driver.Schedule, replace driver.Replace) error {
	return sc.retry(ctx, "the schedule", func(error) (bool, error) {
		there, was, err := sc.readSchedule(ctx, s.Name)
		if err != nil {
			return false, err
		}
		switch done, err := revised(there.Revision, revision, s.Revision); {
		case done && err == nil && revision == s.Revision:
			return sc.ifStands(ctx, reading{sc.scheduleSubject(s.Name): was.Seq}, nil)
		case done:
			return true, err
		}
		if s.Definition != "" {
			s.Last = there.Last
		}
		g, err := sc.replaceOccurrence(ctx, there, replace)
		if err != nil {
			return false, err
		}
		w := sc.scheduleWrite(s, was)
		if err := stream.TooLarge("the schedule", len(w.Data), sc.inserts.records.mostRecord()); err != nil {
			return true, err
		}
		return false, sc.Write(ctx, append(stream.Group{w}, g...)...)
	})
}

// revised reports whether a change of a revision to the next is done, by the one that is there: an
// earlier try has stored it, or another change came first. Revisions grow, but are only compared
// for being the same: in a stream that went back the one that is there may be lower.
func revised(there, was, next int64) (done bool, err error) {
	switch there {
	case next:
		return true, nil
	case was:
		return false, nil
	}
	return true, driver.ErrChanged
}

// replaceOccurrence has the writes that end the occurrence that waits, and store the next. It is
// empty if the present one stays: it runs, or is between two attempts, and its end brings the next;
// or replace has returned the one that it was given. It is also empty if no occurrence is there, and
// none follows.
//
// The key's message is written in each of the other cases, on the condition that it is as it was
// read, also when no occurrence follows. So of two changes at one time, and of a change and an end,
// one is refused.
func (sc *schedules) replaceOccurrence(ctx context.Context, there driver.Schedule, replace driver.Replace) (stream.Group, error) {
	key := driver.OccurrenceKey(there.Name)
	h, err := sc.keyHolder(ctx, key)
	if err != nil || h.alive && h.s.fate == claimed {
		return nil, err
	}
	var waits, next *driver.Record
	var g stream.Group
	if h.alive {
		r, _, cancels, err := sc.cancelGroup(ctx, &h)
		if err != nil || r.Attempt > 0 {
			return nil, err
		}
		waits, g = &r, cancels
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
		w := grave(sc.keySubject(key))
		w.Last = stream.Seq(h.seq)
		return append(g, w), nil
	}
	if err := sc.inserts.records.checkRecord(next); err != nil {
		return nil, err
	}
	return slices.Concat(g, sc.inserts.storeKeyed(next), stream.Group{sc.keyWrite(next, h.seq)}), nil
}

// list yields the schedules of a partition, in any order, without those that were deleted, up to
// the first error. It asks for the subjects first, and reads the message of each once: so memory is
// for all, and each schedule is there once however often it is written meanwhile.
func (sc *schedules) list(ctx context.Context) iter.Seq2[driver.Schedule, error] {
	return func(yield func(driver.Schedule, error) bool) {
		found, err := sc.LastsOf(ctx, sc.subject("s.*"))
		if err != nil {
			yield(driver.Schedule{}, err)
		}
		for _, m := range found {
			s, err := decodeSchedule(m.Data)
			if (err != nil || s.Definition != "") && !yield(s, err) {
				return
			}
		}
	}
}
