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
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// changes are those of a job that does not run: it is canceled, moved, signaled, redriven
// or deleted. It has no state of its own, and no lock. Each is one commit on the status of
// the version, so that a claim or the change wins, never both.
//
// A false without an error writes nothing, so it has to stand (stands.go). An answer that
// was lost is found by the token of the write. A change without one is repeated if that
// does no harm; otherwise the lost answer is its error.
type changes struct {
	*keys
	records   *records
	admission *admission
}

// cancel ends a job that waits. Like a claim it creates the status of the job's version,
// so that one of the two wins.
//
// First the status, then the mark of the bucket: if that is there the job has ended, and
// the status of that may have been removed before this one was written. A status that was written
// then is removed again.
func (c *changes) cancel(ctx context.Context, a address) (bool, error) {
	return c.cancelAs(ctx, a, rand.Text())
}

// cancelAs is cancel with a token, by which a write whose answer was lost is recognized. If
// the bucket was closed since, nobody knows whether that write has ended the job.
func (c *changes) cancelAs(ctx context.Context, a address, token string) (ok bool, err error) {
	err = c.retry(ctx, "the job", func(lost error) (bool, error) {
		h, err := c.jobOf(ctx, a)
		switch {
		case err != nil:
			return false, err
		case lost != nil && h.s.fate == done && h.s.token == "":
			return true, lost
		case h.s.fate == canceled && h.s.token == token:
			ok, err = c.confirmCancel(ctx, a, h.at, h.forward, h.s.seq)
			return true, err
		case h.s.fate == claimed || !h.alive:
			return c.ifStands(ctx, c.readingOf(&h), nil)
		}
		if driver.MayRetain(a.id) || h.at.version > 0 { // another job with a Retain may have gone into it
			r, m, g, err := c.cancelGroup(ctx, &h)
			if err != nil {
				return false, err
			}
			if r.Retain > 0 {
				ok, err = c.cancelKept(ctx, &h, &r, m, g, token)
				return err == nil, err
			}
		}
		end := status{fate: canceled, token: token}
		written, err := c.WriteSeq(ctx, stream.Write{Subject: c.statusSubject(h.at), Data: end.encode(), Last: stream.Seq(h.s.seq)})
		if err != nil {
			return false, err
		}
		if ok, err = c.confirmCancel(ctx, a, h.at, h.forward, written); ok && err == nil {
			c.leaveFar(ctx, &h)
		}
		return true, err
	})
	return ok, err
}

// cancelKept is a try of cancel for a job with a Retain, by its cancelGroup. The record is
// written in the commit of the status, on the condition that the bucket is open, so that it
// replaces no other.
//
// Any other job is canceled without its record, so its payload is not sent. The mark need
// not be read after this write: the commit has it as a condition, or replaces a status that
// says as much.
func (c *changes) cancelKept(ctx context.Context, h *holder, r *driver.Record, m stream.Message, g stream.Group, token string) (bool, error) {
	g[0].Data = status{fate: canceled, token: token, attempt: h.s.attempt}.encode()
	r.End(driver.CanceledAt(c.Now()))
	g = append(g, c.records.endedWrite(r, m.Data, r.Retain))
	if err := c.Write(ctx, statusLast(g)...); err != nil {
		return false, err
	}
	c.leaveFar(ctx, h)
	return true, nil
}

// confirmCancel looks at the bucket's mark once the status is there, with the sequence that
// it has. If that is before the mark the job was canceled, unless the bucket was closed
// before and is closed once more: nobody knows, and the status goes with the bucket. If it
// is after the mark it is taken back, and no other than that: another may have written what
// is right.
//
// An error here is ErrUncertain, and cancel is not tried again: the status may have ended
// the job, and another try would find it ended and say false.
func (c *changes) confirmCancel(ctx context.Context, a address, at location, forward, written uint64) (bool, error) {
	backs := c.Backs()
	mark, err := c.LastSince(ctx, stream.Witness{Subject: c.statusSubject(at), Seq: written}, c.nearMark(at.bucket), true)
	open := false
	if err == nil {
		open, err = c.isOpenBy(ctx, a, at, forward, mark)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	case open:
		return true, nil
	case mark.Seq > written:
		return false, fmt.Errorf("%w: the bucket was closed meanwhile", driver.ErrUncertain)
	}
	if err := c.Purge(ctx, backs, c.statusSubject(at), written); err != nil { // also of a stream that went back
		return false, fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	return false, nil
}

// leaveFar removes the message of a canceled job from its far bucket. Else its payload
// would keep its room until that bucket is moved down, maybe a year later. A near bucket is
// removed as a whole soon. A message that cannot be removed now is left for that, too.
//
// Errors are dropped: the job is canceled whatever comes of this. The key and the forward
// go first (tidy), since no cascade does that once the message is gone.
func (c *changes) leaveFar(ctx context.Context, h *holder) {
	far := c.farOf(h.at.bucket)
	if !c.Now().Before(c.cascadeAt(far)) {
		return
	}
	backs := c.Backs()
	r, m, err := c.findIn(ctx, h.job, h.at, h.forward, c.farSubject(far))
	if err == nil && c.tidy(ctx, &r, h.at) == nil { // nobody is handed the job any more, and would do it then
		c.Remove(ctx, backs, m)
	}
}

// move changes when a waiting job is due: its version ends as moved, and the next one is
// stored, in one commit. A move to the time that the job has already is one, too: that is
// not compared.
func (c *changes) move(ctx context.Context, a address, to time.Time) (bool, error) {
	return c.moveIf(ctx, to, func() (holder, error) { return c.jobOf(ctx, a) }, func(*driver.Record) bool { return true })
}

// signal moves the job that waits under a key to now, with the payload of its signal. Now
// may be by a clock that was set back since.
//
// The clock is read anew before that: a job that is due by a clock which was ahead would
// wait until the clock is there again.
func (c *changes) signal(ctx context.Context, key string, payload []byte, now time.Time) (bool, error) {
	if err := c.Clock.Sync(ctx); err != nil { // it may have been set back this moment
		return false, err
	}
	if by := clock.WholeMicros(c.Now()); by.Before(now) {
		now = by
	}
	return c.moveIf(ctx, now, func() (holder, error) { return c.keyHolder(ctx, key) }, func(r *driver.Record) bool {
		takes := r.Signals && r.Signal == nil && !r.Expired(c.Now())
		r.Signal = append([]byte{}, payload...)
		return takes
	})
}

// moveIf moves the job that read returns, if that waits. Edit changes its record, and
// reports whether it is to be moved. A write whose answer was lost is recognized by its
// token, in the status of the version that it ends; so is one that was stored, and refused
// when it was repeated. If another write has changed that status, it was refused.
//
// It takes two reads and a commit at least. The order of the checks matters after a lost
// answer: the status of the version that the try was to end is read first, before the job
// is read anew as it is now. A job whose record is not found may be on its way, so it is
// searched for six times.
func (c *changes) moveIf(ctx context.Context, to time.Time, read func() (holder, error), edit func(*driver.Record) bool) (ok bool, err error) {
	if err := c.admission.admit(ctx); err != nil { // a move takes room before it gives some back, and not all of it
		return false, err
	}
	ctx = withoutReserve(ctx)
	missed, token := 0, rand.Text()
	var h holder
	err = c.retry(ctx, "the job", func(lost error) (bool, error) {
		was, refused := h, lost == nil
		if was.job.id != "" { // a write was tried
			s, err := c.status(ctx, was.at)
			if ok = err == nil && s.fate == moved && s.token == token; ok || err != nil {
				return ok, err
			}
			refused = refused || s.seq > was.s.seq
		}
		var err error
		if h, err = read(); err != nil {
			return true, cmp.Or(lost, err)
		}
		if !refused && (!h.alive || h.at != was.at || h.s.seq != was.s.seq) {
			return true, lost // its bucket was closed, or it came meanwhile
		}
		if !h.alive || h.s.fate == claimed {
			return c.ifStands(ctx, c.readingOf(&h), nil)
		}
		backs := c.Backs()
		r, m, err := c.findHeld(ctx, &h)
		if errors.Is(err, driver.ErrNotFound) {
			if missed++; missed <= 5 {
				return false, stream.ErrBusy // it ended in between, or another server is a moment behind
			}
			return c.ifStands(ctx, c.readingOf(&h), err)
		}
		if err != nil {
			return true, err
		}
		if !edit(&r) {
			return c.ifStands(ctx, c.readingOf(&h), nil)
		}
		if err = c.Write(ctx, statusLast(c.records.moveGroup(&r, m.Data, h.at, h.s, token, to, c.Now()))...); err != nil {
			return false, err
		}
		if ok = true; m.Subject == c.farSubject(c.farOf(h.at.bucket)) {
			c.Remove(ctx, backs, m) // as in leaveFar
		}
		return true, nil
	})
	return ok, err
}

// redrive makes a dead job wait again, as its next version, with no attempts and no
// Expires. It takes its key in the same commit: ErrExists if another job has that, unless
// that one waits and has expired; it is set aside then, and dies when its turn comes.
func (c *changes) redrive(ctx context.Context, a address, at time.Time) error {
	return c.replaceDead(ctx, a, func(dead stream.Message) (stream.Group, error) {
		r, err := decode(dead.Data)
		if err != nil {
			return nil, err
		}
		if r.Ending != nil && r.Ending.State != driver.Dead {
			return nil, driver.ErrNotFound
		}
		r.Due, r.Attempt, r.Crashes, r.Version, r.Ending = at, 0, 0, r.Version+1, nil
		r.Expires = time.Time{}
		r.Retried(at)
		bucket := c.openFor(at)
		g := stream.Group{c.records.forwardWrite(&r, bucket), c.records.recordWrite(&r, dead.Data, bucket, c.Now(), true)}
		if r.Key == "" {
			return g, nil
		}
		h, err := c.keyHolder(ctx, r.Key)
		if h.expired(c.Now()) {
			var aside stream.Group
			aside, err = c.asideGroup(ctx, &h)
			g = append(g, aside...)
		} else if err == nil && h.alive {
			_, err = c.ifStands(ctx, c.readingOf(&h), driver.ErrExists)
		}
		return append(g, c.keyWriteAfter(&r, h.seq, h.after)), err
	})
}

// deleteDead removes a dead job, or one that was kept. It writes one tombstone: the rest of
// the job went when it ended, or goes with its bucket.
func (c *changes) deleteDead(ctx context.Context, a address) error {
	return c.replaceDead(ctx, a, func(stream.Message) (stream.Group, error) { return nil, nil })
}

// replaceDead removes a dead job, and writes with it what replaces it. The condition is that it
// is as it was read, so that of a redrive and a deletion one wins.
//
// After a lost answer nobody can tell this write from another's: the message is gone in
// either case. So the lost answer is the result.
func (c *changes) replaceDead(ctx context.Context, a address, by func(dead stream.Message) (stream.Group, error)) error {
	return c.retry(ctx, "the job", func(lost error) (bool, error) {
		dead, err := c.Last(ctx, c.deadSubject(a.id))
		if err == nil && lost == nil && len(dead.Data) == 0 {
			return c.ifStands(ctx, reading{c.deadSubject(a.id): dead.Seq}, driver.ErrNotFound)
		}
		if err != nil || lost != nil {
			return true, cmp.Or(lost, err)
		}
		g, err := by(dead)
		if err != nil {
			return !errors.Is(err, stream.ErrBusy), err
		}
		tombstone := grave(c.deadSubject(a.id))
		tombstone.Last = stream.Seq(dead.Seq)
		return false, c.Write(ctx, append(g, tombstone)...)
	})
}

// cancelTTL is for how long a request to cancel is kept.
const cancelTTL = 24 * time.Hour

// cancelRunning stores a request for the worker of a claim: a message of the subject
// a.<worker>.<id>, with the sequence of the claim's status, on the condition that this is
// the last one. It calls written with the worker once that is stored.
//
// The job itself is not touched, and its worker may end it as it likes. A claim that has
// ended, or was taken over, is no longer the last message of its subject, and the request
// is refused. The request is stored, since a notice may be lost: each heartbeat of the
// worker reads it (canceledOf).
func (c *changes) cancelRunning(ctx context.Context, a address, ref driver.Ref, written func(worker string)) (ok bool, err error) {
	err = c.retry(ctx, "the job", func(lost error) (bool, error) {
		h, err := c.jobOf(ctx, a)
		switch {
		case err != nil:
			return false, err
		case h.s.fate != claimed && lost != nil:
			return true, lost
		case h.s.fate != claimed:
			return c.ifStands(ctx, c.readingOf(&h), nil)
		}
		err = c.Write(ctx, stream.Write{
			Subject: c.cancelSubject(h.s.worker, a.id), Data: fmt.Appendf(nil, "%d %d %d %s", h.at.bucket, h.at.version, h.s.seq, ref),
			Last: stream.Seq(h.s.seq), Guard: c.statusSubject(h.at), Rollup: true, TTL: cancelTTL,
		})
		if ok = err == nil; ok {
			written(h.s.worker)
		}
		return false, err
	})
	return ok, err
}

// canceledOf returns the jobs of a worker's claims that are to be canceled, and removes the
// requests for claims that have ended.
//
// It costs one read with each heartbeat, and one more for all requests that are there. A request
// is compared with the sequence of the claim: a later claim of the same worker is not
// canceled by it. A server that is behind may answer the second read, so the status of a claim
// that seems to have ended is read again.
func (c *changes) canceledOf(ctx context.Context, worker string) (refs []driver.Ref, err error) {
	backs := c.Backs()
	requests, err := c.LastsIn(ctx, c.cancelSubject(worker, "*"))
	if err != nil || len(requests) == 0 {
		return nil, err
	}
	type request struct {
		at    location
		claim uint64
		ref   string
	}
	asked, statuses := make(map[string]request, len(requests)), make([]string, 0, len(requests))
	for subject, m := range requests {
		var r request
		if _, err := fmt.Sscanf(string(m.Data), "%d %d %d %s", &r.at.bucket, &r.at.version, &r.claim, &r.ref); err != nil {
			return nil, fmt.Errorf("%w: cannot read the request to cancel a job: %q", driver.ErrStorage, m.Data)
		}
		r.at.id = strings.TrimPrefix(subject, c.cancelSubject(worker, ""))
		asked[subject], statuses = r, append(statuses, c.statusSubject(r.at))
	}
	found, err := c.Lasts(ctx, statuses)
	if err != nil {
		return nil, err
	}
	for subject, r := range asked {
		s, err := c.statusBy(r.at, func(subject string) (stream.Message, error) { return found[subject], nil })
		if err == nil && (s.fate != claimed || s.seq != r.claim) {
			s, err = c.status(ctx, r.at)
		}
		switch {
		case err != nil:
			return nil, err
		case s.fate == claimed && s.seq == r.claim:
			refs = append(refs, driver.Ref(r.ref))
		default:
			_ = c.Purge(ctx, backs, subject, requests[subject].Seq) // or it lapses
		}
	}
	return refs, nil
}
