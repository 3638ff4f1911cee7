package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// maxTries bounds how often a change is tried anew because others update the same meanwhile.
const maxTries = 100

// change calls try until it has written, is done, or fails. A try reads what it is based on, and
// writes on the condition that this is as it was read. It is tried anew after a conflict, and
// when the answer to a write was lost: lost is that error then, and the try finds out whether it
// was written. If a later try fails, the lost answer is the error, since its outcome is unknown.
func (p *part) change(ctx context.Context, what string, try func(lost error) (done bool, err error)) error {
	var lost error
	for range maxTries {
		done, err := try(lost)
		switch {
		case done || err == nil:
			return err
		case errors.Is(err, errConflict), errors.Is(err, errBusy):
			if err := p.sync(ctx); err != nil {
				return cmp.Or(lost, err)
			}
		case isLost(err) && ctx.Err() == nil && p.closed.Err() == nil:
			lost = err
		default:
			return cmp.Or(lost, err)
		}
	}
	return cmp.Or(lost, fmt.Errorf("%w: gave up after %d conflicting updates of %s", driver.ErrUncertain, maxTries, what))
}

// cancel ends a job that waits. Like a claim it creates the status of the job's version,
// so that one of the two wins.
//
// First the status, then the mark of the bucket: if that is there the job has ended, and
// the status of that may have been removed before this one was written. A status that was written
// then is removed again.
func (p *part) cancel(ctx context.Context, a address) (bool, error) {
	return p.cancelAs(ctx, a, rand.Text())
}

// cancelAs is cancel with a token, by which a write whose answer was lost is recognized. If
// the bucket was closed since, nobody knows whether that write has ended the job.
func (p *part) cancelAs(ctx context.Context, a address, token string) (ok bool, err error) {
	err = p.change(ctx, "the job", func(lost error) (bool, error) {
		at, forward, s, err := p.current(ctx, a)
		switch {
		case err != nil:
			return false, err
		case lost != nil && s.fate == done && s.token == "":
			return true, lost
		case s.fate == canceled && s.token == token:
			ok, err = p.confirmCancel(ctx, a, at, forward, s.seq)
			return true, err
		case s.fate == claimed || s.fate.final():
			return p.ifStands(ctx, p.readingOf(&holder{job: a, at: at, forward: forward, s: s}), nil)
		}
		end := status{fate: canceled, token: token}
		written, err := p.writeSeq(ctx, write{subject: p.fateSubject(at), data: end.encode(), last: seq(s.seq)})
		if err != nil {
			return false, err
		}
		if ok, err = p.confirmCancel(ctx, a, at, forward, written); ok && err == nil {
			p.leaveFar(ctx, a, at, forward)
		}
		return true, err
	})
	return ok, err
}

// confirmCancel looks at the bucket's mark once the status is there, with the sequence
// that it has. If that is before the mark the job was canceled, unless the bucket was
// closed before and is closed once more: nobody knows, and the status goes with the
// bucket. If it is after the mark it is taken back, and no other than that: another may
// have written what is right.
func (p *part) confirmCancel(ctx context.Context, a address, at location, forward, written uint64) (bool, error) {
	mark, err := p.lastSince(ctx, witness{p.fateSubject(at), written}, p.nearMark(at.bucket), true)
	open := false
	if err == nil {
		open, err = p.isOpenBy(ctx, a, at, forward, mark)
	}
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	case open:
		return true, nil
	case mark.Seq > written:
		return false, fmt.Errorf("%w: the bucket was closed meanwhile", driver.ErrUncertain)
	}
	return false, p.purge(ctx, p.fateSubject(at), written)
}

// leaveFar removes the message of a canceled job from its far bucket. Else its payload would
// keep its room until that bucket is moved down, maybe a year later. A near bucket is removed
// as a whole soon. A message that cannot be removed now is left for that, too.
func (p *part) leaveFar(ctx context.Context, a address, at location, forward uint64) {
	far := p.farOf(at.bucket)
	if !p.now().Before(p.cascadeAt(far)) {
		return
	}
	r, m, err := p.findIn(ctx, a, at, forward, p.farSubject(far))
	if err == nil && p.tidy(ctx, &r, at) == nil { // nobody is handed the job any more, and would do it then
		p.remove(ctx, m)
	}
}

// remove removes one message, if the user has the right to. The caller has stored the end of its job before.
func (s *stream) remove(ctx context.Context, m stored) {
	if s.mayNotRemove.Load() || s.checkDisk() != nil {
		return
	}
	err := s.ask(ctx, "STREAM.MSG.DELETE."+s.name, map[string]any{"seq": m.Seq, "no_erase": true}, nil)
	s.mayNotRemove.Store(isDenial(err)) // else each cancel would be an error of the connection
}

// move changes when a waiting job is due: its version ends as moved, and the next one is
// stored, in one commit.
func (p *part) move(ctx context.Context, a address, to time.Time) (bool, error) {
	return p.moveIf(ctx, to, func() (holder, error) { return p.jobOf(ctx, a) }, func(*driver.Record) bool { return true })
}

// signal moves the job that waits under a key to now, with the payload of its signal. Now may be by a clock that
// was set back since.
func (p *part) signal(ctx context.Context, key string, payload []byte, now time.Time) (bool, error) {
	if err := p.clock.Sync(ctx); err != nil { // it may have been set back this moment
		return false, err
	}
	if by := clock.WholeMicros(p.now()); by.Before(now) {
		now = by
	}
	return p.moveIf(ctx, now, func() (holder, error) { return p.keyHolder(ctx, key) }, func(r *driver.Record) bool {
		takes := r.Signals && r.Signal == nil && !r.Expired(p.now())
		r.Signal = append([]byte{}, payload...)
		return takes
	})
}

// moveIf moves the job that read returns, if that waits. Edit changes its record, and reports
// whether it is to be moved. A write whose answer was lost is recognized by its token, in the status
// of the version that it ends; so is one that was stored, and refused when it was repeated. If another write has
// changed that status, it was refused.
func (p *part) moveIf(ctx context.Context, to time.Time, read func() (holder, error), edit func(*driver.Record) bool) (ok bool, err error) {
	if err := p.admission.admit(ctx); err != nil { // a move takes room before it gives some back, and not all of it
		return false, err
	}
	ctx = withoutReserve(ctx)
	missed, token := 0, rand.Text()
	var h holder
	err = p.change(ctx, "the job", func(lost error) (bool, error) {
		was, refused := h, lost == nil
		if was.job.id != "" { // a write was tried
			s, err := p.status(ctx, was.at)
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
			return p.ifStands(ctx, p.readingOf(&h), nil)
		}
		r, m, err := p.findHeld(ctx, &h)
		if missed++; errors.Is(err, driver.ErrNotFound) && missed <= 5 {
			return false, errBusy // it ended in between, or another server is a moment behind
		}
		if err != nil {
			return true, err
		}
		if !edit(&r) {
			return p.ifStands(ctx, p.readingOf(&h), nil)
		}
		if err = p.write(ctx, statusLast(p.moveGroup(&r, m.Data, h.at, h.s, token, to, p.now()))...); err != nil {
			return false, err
		}
		if ok = true; m.Subject == p.farSubject(p.farOf(h.at.bucket)) {
			p.remove(ctx, m) // as in leaveFar
		}
		return true, nil
	})
	return ok, err
}

// moveGroup ends a version as moved, and stores the next; was is its message. The next version of a
// suspect that was handed back is a suspect, too. Of what it is based on, all is conditional: the
// status is as it was read, and if there was none, the bucket of the old version is open,
// so that what has ended does not come back. A status that is there says as much, in a
// closed bucket too: it is removed after its job.
func (p *part) moveGroup(r *driver.Record, was []byte, at location, s status, token string, to, now time.Time) group {
	next := *r
	next.Due, next.Version = to, r.Version+1
	return p.versionGroup(&next, was, at, s, token, p.openFor(to), now)
}

// versionGroup is moveGroup of a version that is to be stored in a bucket.
func (p *part) versionGroup(next *driver.Record, was []byte, at location, s status, token string, bucket int64, now time.Time) group {
	if s.fate == freed {
		next.Attempt, next.Crashes = s.attempt, s.crashes
	}
	end := status{fate: moved, token: token, bucket: bucket, attempt: s.attempt}
	forward := p.forwardWrite(next, bucket)
	if s.seq == 0 {
		forward.last, forward.guard = seq(0), p.nearMark(at.bucket)
	}
	g := group{
		{subject: p.fateSubject(at), data: end.encode(), last: seq(s.seq)},
		forward,
		p.recordWrite(next, was, bucket, now, true),
	}
	return append(g, p.leave(s)...)
}

// redrive makes a dead job wait again.
func (p *part) redrive(ctx context.Context, a address, at time.Time) error {
	return p.replaceDead(ctx, a, func(dead stored) (group, error) {
		r, err := decode(dead.Data)
		if err != nil {
			return nil, err
		}
		r.Due, r.Attempt, r.Crashes, r.Version = at, 0, 0, r.Version+1
		r.Expires = time.Time{}
		r.Retried(at)
		bucket := p.openFor(at)
		g := group{p.forwardWrite(&r, bucket), p.recordWrite(&r, dead.Data, bucket, p.now(), true)}
		if r.Key == "" {
			return g, nil
		}
		h, err := p.keyHolder(ctx, r.Key)
		if h.expired(p.now()) {
			var aside group
			aside, err = p.asideGroup(ctx, &h)
			g = append(g, aside...)
		} else if err == nil && h.alive {
			err = p.ifHeld(ctx, &h)
		}
		return append(g, p.keyWriteAfter(&r, h.seq, h.after)), err
	})
}

// deleteDead removes a dead job.
func (p *part) deleteDead(ctx context.Context, a address) error {
	return p.replaceDead(ctx, a, func(stored) (group, error) { return nil, nil })
}

// replaceDead removes a dead job, and writes with it what replaces it. The condition is that it
// is as it was read, so that of a redrive and a deletion one wins.
func (p *part) replaceDead(ctx context.Context, a address, by func(dead stored) (group, error)) error {
	return p.change(ctx, "the job", func(lost error) (bool, error) {
		dead, err := p.last(ctx, p.deadSubject(a.id))
		if err == nil && lost == nil && len(dead.Data) == 0 {
			return p.ifStands(ctx, reading{p.deadSubject(a.id): dead.Seq}, driver.ErrNotFound)
		}
		if err != nil || lost != nil {
			return true, cmp.Or(lost, err)
		}
		g, err := by(dead)
		if err != nil {
			return !errors.Is(err, errBusy), err
		}
		tombstone := grave(p.deadSubject(a.id))
		tombstone.last = seq(dead.Seq)
		err = p.write(ctx, append(g, tombstone)...)
		return false, err
	})
}

// purge removes the messages of a subject up to a sequence, 0 for all.
func (s *stream) purge(ctx context.Context, filter string, upTo uint64) error {
	if err := s.checkDisk(); err != nil {
		return err
	}
	request := map[string]any{"filter": filter}
	if upTo > 0 {
		request["seq"] = upTo + 1
	}
	return s.ask(ctx, "STREAM.PURGE."+s.name, request, nil)
}

func (a location) String() string { return itoa(a.bucket) + "." + a.id + "." + strconv.Itoa(a.version) }
