package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// With FreeWhenBegun several jobs of one key may run. The key's message names the newest: the one that has
// the key, or the one that has left it by its begin. So a job that has left its key and no longer finds
// its own name there was superseded by a newer one: it does not take the key again, and is not taken over.
// No matter whether the newer one waits, runs, or has ended.
//
// A newer job that was canceled, or expired, before it began counts for nothing. So its message also names the job after
// which it came, until it begins; a job that replaces it takes that over.
//
// The conditions of the writes tell whether the message still is as it was read. So a job ends as superseded
// in a commit that writes the message of the newer one once more.

// newest reads the key of a job that may have left it, and reports whether a newer one has superseded the job.
func (ks *keys) newest(ctx context.Context, r *driver.Record) (m stored, superseded bool, err error) {
	for {
		if m, err = ks.last(ctx, ks.keySubject(r.Key)); err != nil {
			return m, false, err
		}
		k := parseKey(m)
		if own := ks.refOf(r); k.ref == own || k.after != own {
			return m, k.ref != own, nil
		}
		// The newer one may have been canceled, or begin or be replaced just now: then the key's message is another.
		h, err := ks.holder(ctx, r.Key)
		if err != nil || h.seq == m.Seq {
			return m, h.alive && !h.expired(ks.now()), err
		}
	}
}

// retakeKey is what a job with FreeWhenBegun writes of its key when it waits again, and whether a newer job
// has superseded it: then it is what tells that this is so still.
func (ks *keys) retakeKey(ctx context.Context, r *driver.Record) (g group, superseded bool, err error) {
	m, superseded, err := ks.newest(ctx, r)
	switch k := parseKey(m); {
	case err != nil:
		return nil, false, err
	case superseded:
		return group{ks.unchanged(r.Key, m)}, true, nil
	case k.ref == ks.refOf(r) && !k.left:
		return nil, false, nil
	}
	return group{ks.keyWrite(r, m.Seq)}, false, nil
}

// leaveAtBegin is what a job with FreeWhenBegun writes of its key when it begins; before is the status of its
// claim before, if any. If a newer job has superseded it since that claim, it is what retakeKey returns.
func (ks *keys) leaveAtBegin(ctx context.Context, r *driver.Record, before status) (g group, superseded bool, err error) {
	m, superseded, err := ks.newest(ctx, r)
	switch {
	case err != nil || superseded && (before.fate == none || r.Expired(ks.now())): // that dies as expired
		return nil, false, err
	case superseded:
		return group{ks.unchanged(r.Key, m)}, true, nil
	}
	return group{ks.leftWrite(r.Key, ks.refOf(r), m.Seq)}, false, nil
}

// expired reports whether the job that has the key waits and has expired: it has it no longer.
func (h *holder) expired(now time.Time) bool {
	r := driver.Record{Job: driver.Job{Expires: h.until}}
	return h.alive && h.s.fate != claimed && r.Expired(now)
}

// asideGroup is what tells that a job which has expired still waits, when another takes its key: its status is
// that of a job which was handed back. It dies when its turn comes.
func (ks *keys) asideGroup(ctx context.Context, h *holder) (group, error) {
	s := h.s
	if s.fate == none {
		r, _, err := ks.findHeld(ctx, h)
		if errors.Is(err, driver.ErrNotFound) {
			err = errBusy // as in cancelGroup
		}
		if err != nil {
			return nil, err
		}
		s.attempt, s.crashes = r.Attempt, r.Crashes
	}
	aside := status{fate: freed, token: rand.Text(), attempt: s.attempt, crashes: s.crashes}
	return group{{subject: ks.fateSubject(h.at), data: aside.encode(), last: seq(s.seq)}}, nil
}

// leaveCanceled is leaveKey of a job that was canceled while it waited: the job after which it came, if that
// has not ended, is the newest again.
func (ks *keys) leaveCanceled(ctx context.Context, r *driver.Record) (group, error) {
	m, err := ks.last(ctx, ks.keySubject(r.Key))
	k := parseKey(m)
	if err != nil || k.ref != ks.refOf(r) {
		return nil, err
	}
	w := grave(ks.keySubject(r.Key))
	w.last = seq(m.Seq)
	if a, err := parseRef(k.after, ks.salt, ks.of); err == nil {
		h, err := ks.jobOf(ctx, a)
		if err != nil {
			return nil, err
		}
		if h.alive {
			w = ks.leftWrite(r.Key, k.after, m.Seq)
		}
	}
	return group{w}, nil
}

// tidy removes the key and the forward of a job that was canceled.
func (ks *keys) tidy(ctx context.Context, r *driver.Record, at location) error {
	if r.Key == "" && at.version == 0 {
		return nil
	}
	s, err := ks.status(ctx, at)
	if err != nil || s.fate != canceled {
		return err
	}
	g, err := ks.leaveCanceled(ctx, r)
	if err != nil {
		return err
	}
	if at.version > 0 {
		g = append(g, grave(ks.forward(at.id)))
	}
	if len(g) == 0 {
		return nil
	}
	if err := ks.write(ctx, g...); !errors.Is(err, errConflict) {
		return err
	}
	return nil // another one has taken the key
}
