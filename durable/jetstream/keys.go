package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A key is a message of the subject k.<hash of it>, with the Ref of the job that has it. It is
// taken by a compare-and-set of its sequence. A job that ends leaves it with a tombstone in the
// same commit, and one that begins with FreeWhenBegun with its Ref after "- ".
//
// A canceled job does not have the key, though no tombstone is written: a cancel reads no record,
// and so does not know the key. Further below it is said which of several jobs of a key is the
// newest.

// keys knows which job has a key, and composes the messages that take and leave one. It has no
// state of its own, and writes only to tidy up. A key changes hands only in a commit whose
// condition is the key's message as it was read, so an old reading costs a try, and never a second
// job.
type keys struct{ *finder }

// holder is the job that has a key, or had it last. It is a reading: true when it was read, and a
// condition of each write that is based on it.
type holder struct {
	key        string // "" of a job that was read by itself.
	keyMessage        // Of a key that was left it has only after: the job that has left it.
	seq        uint64 // Of the key's message; 0 for none.
	alive      bool   // It waits or runs.

	// Where the job was found: see current.
	job     address
	at      location
	forward uint64
	s       status
}

// keyMessage is the message of a key.
type keyMessage struct {
	ref   driver.Ref // The newest job of the key; "" for none.
	left  bool       // It has left the key.
	after driver.Ref // The job that had left it before, if ref has not begun; or "".
	until time.Time  // When ref expires; zero for never.
}

// parseKey does not check the Refs: holder does, of the one that it reads. A tombstone has no text,
// and so no Ref.
func parseKey(m stream.Message) keyMessage {
	text, left := strings.CutPrefix(string(m.Data), "- ")
	f := append(strings.Split(text, " "), ".", "")
	until, _ := parseInt(f[2]) // "" is 0, which is never
	return keyMessage{driver.Ref(f[0]), left, driver.Ref(strings.TrimPrefix(f[1], ".")), fromMicros(until)}
}

// grave is the message that a subject is left with when its own is to be gone: it replaces the
// others, and itself goes after a while. A removal by the server's API could not be part of a
// commit.
func grave(subject string) stream.Write {
	return stream.Write{Subject: subject, Rollup: true, TTL: graveTTL}
}

func (ks *keys) keyWrite(r *driver.Record, last uint64) stream.Write {
	return ks.keyWriteAfter(r, last, "")
}

// keyWriteAfter is keyWrite of a job that came after another. The message says when the job
// expires, so that an Add finds out without its record.
func (ks *keys) keyWriteAfter(r *driver.Record, last uint64, after driver.Ref) stream.Write {
	text := string(ks.refOf(r))
	switch {
	case !r.Expires.IsZero():
		text += " " + string(cmp.Or(after, ".")) + " " + itoa(r.Expires.UnixMicro())
	case after != "":
		text += " " + string(after)
	}
	return stream.Write{Subject: ks.keySubject(r.Key), Data: []byte(text), Last: stream.Seq(last), Rollup: true}
}

// leftWrite is the message of a key that its newest job has left. It has no end, unlike a
// tombstone: as long as the job runs it must be found that a newer one has superseded it, or that
// none has.
func (ks *keys) leftWrite(key string, ref driver.Ref, last uint64) stream.Write {
	return stream.Write{Subject: ks.keySubject(key), Data: []byte("- " + string(ref)), Last: stream.Seq(last), Rollup: true}
}

// unchanged writes a message of a key once more, as it was read, so that a commit that is based on
// it has a condition there. A tombstone gets a new time to live.
func (ks *keys) unchanged(key string, m stream.Message) stream.Write {
	w := grave(ks.keySubject(key))
	if w.Last = stream.Seq(m.Seq); len(m.Data) > 0 {
		w.Data, w.TTL = m.Data, 0
	}
	return w
}

// keyHolder returns the job that has a key. A job that begins or ends between the two readings, of
// the key and of its status, may have left it, maybe to another job: then the key's message is
// another.
//
// One reading is enough if the job waits: then it has its key still. In other cases two readings,
// one after the other, must agree.
func (ks *keys) keyHolder(ctx context.Context, key string) (h holder, err error) {
	for before := h; ; before = h {
		h, err = ks.holder(ctx, key)
		waits, same := h.alive && h.s.fate != claimed, h.seq == before.seq && h.alive == before.alive
		if err != nil || waits || h.ref == "" || same {
			return h, err
		}
	}
}

// holder reads a key, and then the status of the job that has it: in this order, since the commit
// that stores a job stores its key, too, and so a key never names a job that is not there yet.
func (ks *keys) holder(ctx context.Context, key string) (holder, error) {
	m, err := ks.Last(ctx, ks.keySubject(key))
	if err != nil {
		return holder{}, err
	}
	k := parseKey(m)
	if k.ref == "" || k.left {
		return holder{key: key, seq: m.Seq, keyMessage: keyMessage{after: k.ref}}, nil
	}
	a, err := parseRef(k.ref, ks.salt, ks.of)
	if err != nil {
		return holder{}, fmt.Errorf("%w: of the key %q: %w", driver.ErrStorage, key, err)
	}
	h, err := ks.jobOf(ctx, a)
	h.key, h.keyMessage, h.seq = key, k, m.Seq
	return h, err
}

// jobOf returns a job as the holder of a key that is not read. Without a key there is no condition
// on one.
func (ks *keys) jobOf(ctx context.Context, a address) (h holder, err error) {
	h.job = a
	h.at, h.forward, h.s, err = ks.current(ctx, a)
	h.alive = !h.s.fate.final()
	return h, err
}

// findHeld is find of the job that has a key. Its first version was written right before the key,
// in one commit, so that one request finds it in a bucket of any size. If that is another message,
// find searches.
func (ks *keys) findHeld(ctx context.Context, h *holder) (r driver.Record, m stream.Message, err error) {
	if h.at.version == 0 && h.seq > 1 {
		if r, m, err = ks.versionAt(ctx, h.seq-1, h.at); err != nil || m.Seq > 0 {
			return r, m, err
		}
	}
	return ks.find(ctx, h.job, h.at, h.forward)
}

// leaveKey returns what an ending job writes of its key: that it is free, or has the next
// occurrence. Nil if another job is the newest of the key: this one was superseded, or had expired
// when another took the key.
func (ks *keys) leaveKey(ctx context.Context, r *driver.Record, next *driver.Record) (stream.Group, error) {
	if r.Key == "" {
		return nil, nil
	}
	m, err := ks.Last(ctx, ks.keySubject(r.Key))
	if err != nil || parseKey(m).ref != ks.refOf(r) {
		return nil, err
	}
	w := grave(ks.keySubject(r.Key))
	if next != nil {
		w = ks.keyWrite(next, m.Seq)
	}
	w.Last = stream.Seq(m.Seq)
	return stream.Group{w}, nil
}

// cancelGroup returns the waiting job that has a key, its message, and the writes that cancel it.
// As in moveGroup the status is as it was read, and a bucket without one is open. The first write
// is the status.
//
// It does not write the key: the caller does, with a condition, or leaves that to tidy.
func (ks *keys) cancelGroup(ctx context.Context, h *holder) (r driver.Record, m stream.Message, g stream.Group, err error) {
	r, m, err = ks.findHeld(ctx, h)
	if errors.Is(err, driver.ErrNotFound) {
		err = stream.ErrBusy // it was moved meanwhile, or another server is a moment behind
	}
	if err != nil {
		return r, m, nil, err
	}
	if h.s.fate == freed {
		r.Attempt = h.s.attempt
	}
	left := grave(ks.forward(h.at.id))
	if h.s.seq == 0 {
		left.Last, left.Guard = stream.Seq(0), ks.nearMark(h.at.bucket)
	}
	end := status{fate: canceled, token: rand.Text(), attempt: h.s.attempt}
	return r, m, stream.Group{{Subject: ks.statusSubject(h.at), Data: end.encode(), Last: stream.Seq(h.s.seq)}, left}, nil
}

// With FreeWhenBegun several jobs of one key may run. The key's message names the newest: the one
// that has the key, or the one that has left it by its begin. So a job that has left its key and no
// longer finds its own name there was superseded by a newer one: it does not take the key again,
// and is not taken over. No matter whether the newer one waits, runs, or has ended.
//
// A newer job that was canceled, or expired, before it began counts for nothing. So its message
// also names the job after which it came, until it begins; a job that replaces it takes that over.
//
// The conditions of the writes tell whether the message still is as it was read. So a job ends as
// superseded in a commit that writes the message of the newer one once more.

// newest reads the key of a job that may have left it, and reports whether a newer one has
// superseded the job. It reads one message, and the newer job's status only if that may not have
// begun.
func (ks *keys) newest(ctx context.Context, r *driver.Record) (m stream.Message, superseded bool, err error) {
	for {
		if m, err = ks.Last(ctx, ks.keySubject(r.Key)); err != nil {
			return m, false, err
		}
		k := parseKey(m)
		if own := ks.refOf(r); k.ref == own || k.after != own {
			return m, k.ref != own, nil
		}
		// The newer one may have been canceled, or begin or be replaced just now: then the key's
		// message is another.
		h, err := ks.holder(ctx, r.Key)
		if err != nil || h.seq == m.Seq {
			return m, h.alive && !h.expired(ks.Now()), err
		}
	}
}

// retakeKey returns what a job with FreeWhenBegun writes of its key when it waits again, and
// whether a newer job has superseded it: then the write is the condition that this is so still.
//
// A job that has its key already, since its claim was handed back before, writes nothing.
func (ks *keys) retakeKey(ctx context.Context, r *driver.Record) (g stream.Group, superseded bool, err error) {
	m, superseded, err := ks.newest(ctx, r)
	switch k := parseKey(m); {
	case err != nil || !superseded && k.ref == ks.refOf(r) && !k.left:
		return nil, false, err
	case superseded:
		return stream.Group{ks.unchanged(r.Key, m)}, true, nil
	}
	return stream.Group{ks.keyWrite(r, m.Seq)}, false, nil
}

// leaveAtBegin returns what a job with FreeWhenBegun writes of its key when it begins; before is
// the status of its claim before, if any. If a newer job has superseded it since that claim, it
// returns the same as retakeKey.
func (ks *keys) leaveAtBegin(ctx context.Context, r *driver.Record, before status) (g stream.Group, superseded bool, err error) {
	m, superseded, err := ks.newest(ctx, r)
	switch {
	case err != nil || superseded && (before.fate == none || r.Expired(ks.Now())): // that dies as expired
		return nil, false, err
	case superseded:
		return stream.Group{ks.unchanged(r.Key, m)}, true, nil
	}
	return stream.Group{ks.leftWrite(r.Key, ks.refOf(r), m.Seq)}, false, nil
}

// expired reports whether the job that has the key waits and has expired: it has it no longer. A
// claimed job keeps its key, expired or not: its worker ends it.
func (h *holder) expired(now time.Time) bool {
	r := driver.Record{Job: driver.Job{Expires: h.until}}
	return h.alive && h.s.fate != claimed && r.Expired(now)
}

// asideGroup writes that a job which has expired still waits, when another takes its key: its
// status is that of a job which was handed back. It dies when its turn comes.
//
// The status is written for its condition: a claim of the job that is under way is refused, or
// wins, and then this commit is refused.
func (ks *keys) asideGroup(ctx context.Context, h *holder) (stream.Group, error) {
	s := h.s
	if s.fate == none {
		r, _, err := ks.findHeld(ctx, h)
		if errors.Is(err, driver.ErrNotFound) {
			err = stream.ErrBusy // as in cancelGroup
		}
		if err != nil {
			return nil, err
		}
		s.attempt, s.crashes = r.Attempt, r.Crashes
	}
	aside := status{fate: freed, token: rand.Text(), attempt: s.attempt, crashes: s.crashes}
	return stream.Group{{Subject: ks.statusSubject(h.at), Data: aside.encode(), Last: stream.Seq(s.seq)}}, nil
}

// leaveCanceled is leaveKey of a job that was canceled while it waited: the job after which it
// came, if that has not ended, is the newest again. That job has left the key, so the key stays
// free.
func (ks *keys) leaveCanceled(ctx context.Context, r *driver.Record) (stream.Group, error) {
	if r.Key == "" {
		return nil, nil
	}
	m, err := ks.Last(ctx, ks.keySubject(r.Key))
	k := parseKey(m)
	if err != nil || k.ref != ks.refOf(r) {
		return nil, err
	}
	w := grave(ks.keySubject(r.Key))
	w.Last = stream.Seq(m.Seq)
	if a, err := parseRef(k.after, ks.salt, ks.of); err == nil {
		h, err := ks.jobOf(ctx, a)
		if err != nil {
			return nil, err
		}
		if h.alive {
			w = ks.leftWrite(r.Key, k.after, m.Seq)
		}
	}
	return stream.Group{w}, nil
}

// tidy removes the key and the forward of a job that was canceled, when somebody reads its record:
// a worker that is handed it, or a cancel that finds it in a far bucket. Until then both name a job
// that has ended, and each reader looks at its status.
//
// It costs nothing for a job that has neither.
func (ks *keys) tidy(ctx context.Context, r *driver.Record, at location) error {
	if r.Key == "" && at.version == 0 {
		return nil
	}
	s, err := ks.status(ctx, at)
	if err != nil || s.fate != canceled {
		return err
	}
	g, err := ks.leaveCanceled(ctx, r)
	if at.version > 0 {
		g = append(g, grave(ks.forward(at.id)))
	}
	if err != nil || len(g) == 0 {
		return err
	}
	if err := ks.Write(ctx, g...); !errors.Is(err, stream.ErrConflict) {
		return err
	}
	return nil // another one has taken the key
}
