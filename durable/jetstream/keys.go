package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A key is a message of the subject k.<hash of it>, with the Ref of the job that has it.
// It is taken by a compare-and-set of its sequence. A job that ends leaves it with a tombstone
// in the same commit, and one that begins with FreeWhenBegun with its Ref after "- ". A canceled
// job does not have the key, though no tombstone is written. order.go says which of several jobs of
// a key is the newest.

func (p *part) keySubject(key string) string {
	sum := sha256.Sum256([]byte(key))
	return p.subject("k." + hex.EncodeToString(sum[:16]))
}

func (p *part) keyWrite(r *driver.Record, last uint64) write { return p.keyWriteAfter(r, last, "") }

// graveTTL is how long a tombstone lasts.
const graveTTL = time.Minute

// grave is what a subject is left with when its message is to be gone: a message that
// replaces the others and itself goes after a while.
func grave(subject string) write {
	return write{subject: subject, rollup: true, ttl: graveTTL}
}

// holder is the job that has a key, or had it last.
type holder struct {
	ref   driver.Ref // "" for none
	after driver.Ref // order.go
	until time.Time  // when it expires; zero for never
	seq   uint64     // of the key's message; 0 for none
	alive bool

	job     address
	at      location
	forward uint64
	s       status
}

// keyHolder returns who has a key. A job that begins or ends between the two readings may have
// left it, maybe to another job: then the key's message is another.
func (p *part) keyHolder(ctx context.Context, key string) (h holder, err error) {
	for before := h; ; before = h {
		h, err = p.holder(ctx, key)
		waits, same := h.alive && h.s.fate != claimed, h.seq == before.seq && h.alive == before.alive
		if err != nil || waits || h.ref == "" || same {
			return h, err
		}
	}
}

// holder reads a key, and then the status of the job that has it.
func (p *part) holder(ctx context.Context, key string) (holder, error) {
	m, err := p.last(ctx, p.keySubject(key))
	if err != nil {
		return holder{}, err
	}
	k := parseKey(m)
	if k.ref == "" || k.left {
		return holder{seq: m.Seq, after: k.ref}, nil
	}
	a, err := parseRef(k.ref, p.salt, p.of)
	if err != nil {
		return holder{}, fmt.Errorf("%w: of the key %q: %w", driver.ErrStorage, key, err)
	}
	h, err := p.jobOf(ctx, a)
	h.ref, h.after, h.until, h.seq = k.ref, k.after, k.until, m.Seq
	return h, err
}

// jobOf returns a job as the holder of a key that is not read.
func (p *part) jobOf(ctx context.Context, a address) (h holder, err error) {
	h.job = a
	h.at, h.forward, h.s, err = p.current(ctx, a)
	h.alive = !h.s.fate.final()
	return h, err
}

// findHeld is find of the job that has a key. Its first version was written right before the key.
func (p *part) findHeld(ctx context.Context, h *holder) (r driver.Record, m stored, err error) {
	if h.at.version == 0 && h.seq > 1 {
		if r, m, err = p.versionAt(ctx, h.seq-1, h.at); err != nil || m.Seq > 0 {
			return r, m, err
		}
	}
	return p.find(ctx, h.job, h.at, h.forward)
}

// leaveKey is what an ending job writes of its key: that it is free, or has the next
// occurrence. Nil if the key is not this job's.
func (p *part) leaveKey(ctx context.Context, r *driver.Record, next *driver.Record) (group, error) {
	if r.Key == "" {
		return nil, nil
	}
	m, err := p.last(ctx, p.keySubject(r.Key))
	if err != nil || parseKey(m).ref != p.refOf(r) {
		return nil, err
	}
	w := grave(p.keySubject(r.Key))
	if next != nil {
		w = p.keyWrite(next, m.Seq)
	}
	w.last = seq(m.Seq)
	return group{w}, nil
}

// insertKeyed stores a record and takes its key, in one commit, which also ends the job that
// the record replaces. If that is refused though nobody has touched the key, it is the bucket
// that is closed.
func (p *part) insertKeyed(ctx context.Context, r *driver.Record) (ref driver.Ref, err error) {
	if r.OnKey != driver.KeyRefuse { // else all of this process but one would be refused, and begin anew
		turn := p.turns[crc32.ChecksumIEEE([]byte(r.Key))%uint32(len(p.turns))]
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	refused, before := false, uint64(0) // the last try, and the key's sequence at that time
	var found driver.Ref
	err = p.change(ctx, "the key", func(lost error) (bool, error) {
		h, err := p.keyHolder(ctx, r.Key)
		if err != nil {
			return false, err
		}
		if h.job.id == r.ID {
			ref = h.ref
			return true, nil // an earlier try has stored it; it may have ended since
		}
		if lost != nil || r.OnKey != driver.KeyRefuse && (h.alive || r.MaxWait > 0) {
			if is, err := p.isStored(ctx, r); is || err != nil {
				if ref = p.refOf(r); lost == nil {
					found = ""
				}
				return is, err
			}
		}
		expired := h.expired(p.now())
		switch {
		case h.alive && !expired && (r.OnKey == driver.KeyRefuse || h.s.fate == claimed):
			return true, cmp.Or(lost, driver.ErrExists)
		case h.alive && !expired && r.OnKey == driver.KeyKeep:
			ref, found = h.ref, h.ref
			return true, nil
		case refused && h.seq == before && (lost != nil || !p.fresh(r)):
			return true, errTooLate // an earlier try may have stored it, and it have run
		}
		ref, found, err = p.takeKey(ctx, r, &h, expired)
		refused, before = errors.Is(err, errConflict), h.seq
		return false, err
	})
	if err != nil {
		ref, found = "", ""
	}
	if r.Found != nil {
		*r.Found = found
	}
	return ref, err
}

// isStored reports whether an earlier call has stored a record, though it does not have its key
// any more. To store it again would end the job that has the key now. With MaxWait nobody knows
// when the stored record is due, and so its Ref; and after half a minute, whether it was stored:
// the forward that takeKey writes lasts for a minute.
func (p *part) isStored(ctx context.Context, r *driver.Record) (bool, error) {
	var uncertain error
	if r.MaxWait > 0 {
		if uncertain = errTooLate; !p.now().Before(r.Born.Add(graveTTL / 2)) {
			return true, uncertain
		}
	}
	forward, fate := p.forward(r.ID), p.fateSubject(location{id: r.ID, bucket: p.nearOf(r.At)})
	last, err := p.lastOf(ctx, forward, fate)
	if err != nil {
		return false, err
	}
	for _, subject := range []string{forward, fate} {
		if m, err := last(subject); err != nil || m.Seq > 0 {
			return err == nil, cmp.Or(err, uncertain)
		}
	}
	return false, nil
}

// takeKey stores a record, takes the key over from its holder, and ends that if it waits and has not expired. It
// returns the Ref of the record, and that of the job which it has ended. If MaxWait has changed the
// bucket of the record, a forward to where it is tells isStored so.
func (p *part) takeKey(ctx context.Context, r *driver.Record, h *holder, expired bool) (ref, found driver.Ref, err error) {
	next, ends, was := *r, group(nil), stored{}
	switch {
	case expired:
		if ends, err = p.asideGroup(ctx, h); err != nil {
			return "", "", err
		}
	case h.alive:
		var waits driver.Record
		if waits, was, ends, err = p.cancelGroup(ctx, h); err != nil {
			return "", "", err
		}
		found = h.ref
		next.Succeed(&waits)
	}
	stores := p.storeKeyed(&next)
	if next.Due.Before(next.At) { // by a signal
		stores = p.elsewhere(&next, p.openFor(next.Due), true)
		stores[0].last = seq(0)
	}
	if bucket := p.nearOf(next.At); bucket != p.nearOf(r.At) {
		if len(stores) == 1 {
			known := p.forwardWrite(&next, bucket)
			known.ttl = graveTTL
			stores = group{known, stores[0]}
		}
		stores[0].last = seq(0)
	}
	err = p.write(ctx, slices.Concat(ends, stores, group{p.keyWriteAfter(&next, h.seq, h.after)})...)
	if err == nil && found != "" && was.Subject == p.farSubject(p.farOf(h.at.bucket)) {
		p.remove(ctx, was) // as in leaveFar
	}
	return p.refOf(&next), found, err
}

// storeKeyed returns what stores a record for the first time with its key, whose condition is
// that of both. An earlier try may have stored it.
func (p *part) storeKeyed(r *driver.Record) group {
	in := p.insertion(r)
	if in.displaced {
		in.group[0].last = nil
	}
	in.guard(p)
	return in.group
}

// cancelGroup returns the waiting job that has a key, its message, and what cancels it. As in
// moveGroup the status is as it was read, and if there was none its bucket is open.
func (p *part) cancelGroup(ctx context.Context, h *holder) (r driver.Record, m stored, g group, err error) {
	r, m, err = p.findHeld(ctx, h)
	if errors.Is(err, driver.ErrNotFound) {
		err = errBusy // it was moved meanwhile, or another server is a moment behind
	}
	if err != nil {
		return r, m, nil, err
	}
	if h.s.fate == freed {
		r.Attempt = h.s.attempt
	}
	left := grave(p.forward(h.at.id))
	if h.s.seq == 0 {
		left.last, left.guard = seq(0), p.nearMark(h.at.bucket)
	}
	end := status{fate: canceled, token: rand.Text(), attempt: h.s.attempt}
	return r, m, group{{subject: p.fateSubject(h.at), data: end.encode(), last: seq(h.s.seq)}, left}, nil
}
