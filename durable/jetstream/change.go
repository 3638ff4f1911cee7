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
)

// maxTries bounds how often a change is tried anew because others update the job meanwhile.
const maxTries = 100

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
func (p *part) cancelAs(ctx context.Context, a address, token string) (bool, error) {
	var lost error // of a write whose answer was lost
	for try := 0; try < maxTries; try++ {
		at, s, err := p.current(ctx, a)
		if err != nil {
			return false, cmp.Or(lost, err)
		}
		if lost != nil && s.fate == done && s.token == "" {
			return false, lost
		}
		switch s.fate {
		case canceled:
			if s.token != token {
				return false, nil
			}
			return p.confirmCancel(ctx, a, at, s.seq)
		case claimed, done, dead:
			return false, nil
		}
		w := write{subject: p.fateSubject(at), data: status{fate: canceled, token: token}.encode(), last: seq(s.seq)}
		res := p.commit(ctx, []group{{w}})[0]
		switch err := res.err; {
		case err == nil:
			ok, err := p.confirmCancel(ctx, a, at, res.first)
			if ok && err == nil {
				p.leaveFar(ctx, a, at)
			}
			return ok, err
		case errors.Is(err, errConflict), errors.Is(err, errBusy):
		case isLost(err) && ctx.Err() == nil && p.closed.Err() == nil:
			lost = err
		default:
			return false, cmp.Or(lost, err)
		}
	}
	return false, fmt.Errorf("%w: gave up after %d conflicting updates of the job", driver.ErrUncertain, maxTries)
}

// confirmCancel looks at the bucket's mark once the status is there, with the sequence
// that it has. If that is before the mark the job was canceled, unless the bucket was
// closed before and is closed once more: nobody knows, and the status goes with the
// bucket. If it is after the mark it is taken back, and no other than that: another may
// have written what is right.
func (p *part) confirmCancel(ctx context.Context, a address, at place, written uint64) (bool, error) {
	mark, missing := p.lastSince(ctx, witness{p.fateSubject(at), written}, p.nearMark(at.bucket), true)
	open, err := p.isOpenBy(ctx, a, at, missing)
	if err != nil {
		return false, fmt.Errorf("%w: %w", driver.ErrUncertain, err)
	}
	if open {
		return true, nil
	}
	if missing == nil && mark.Seq > written {
		return false, fmt.Errorf("%w: the bucket was closed meanwhile", driver.ErrUncertain)
	}
	return false, p.purge(ctx, p.fateSubject(at), written)
}

// leaveFar removes the message of a canceled job from its far bucket. Else its payload would
// keep its room until that bucket is moved down, maybe a year later. A near bucket is removed
// as a whole soon. A message that cannot be removed now is left for that, too.
func (p *part) leaveFar(ctx context.Context, a address, at place) {
	far := p.farOf(at.bucket)
	if !p.now().Before(p.cascadeAt(far)) {
		return
	}
	newest, forward, err := p.forwarded(ctx, a)
	if err != nil || newest != at {
		return
	}
	r, m, err := p.findIn(ctx, a, at, forward, p.farSubject(far))
	if err == nil && p.tidy(ctx, &r, at) == nil { // nobody is handed the job any more, and would do it then
		p.remove(ctx, m)
	}
}

// remove removes one message, if the user has the right to. The caller has stored the end of its job before.
func (p *part) remove(ctx context.Context, m stored) {
	if p.mayNotRemove.Load() || p.spare() != nil {
		return
	}
	var answer struct{}
	err := p.ask(ctx, "STREAM.MSG.DELETE."+p.stream, map[string]any{"seq": m.Seq, "no_erase": true}, &answer)
	p.mayNotRemove.Store(isDenial(err)) // else each cancel would be an error of the connection
}

// move changes when a waiting job is due: its version ends as moved, and the next one is
// stored, in one commit.
func (p *part) move(ctx context.Context, a address, to time.Time) (bool, error) {
	if err := p.room(ctx); err != nil { // a move takes room before it gives some back, and not all of it
		return false, err
	}
	token := rand.Text()
	for try := 0; try < maxTries; try++ {
		at, s, err := p.current(ctx, a)
		if err != nil {
			return false, err
		}
		if s.fate == claimed || s.fate.final() {
			return false, nil
		}
		again, forward, err := p.forwarded(ctx, a)
		if err != nil {
			return false, err
		}
		if again != at {
			continue
		}
		r, m, err := p.find(ctx, a, at, forward)
		if errors.Is(err, driver.ErrNotFound) && try < 5 {
			continue // it ended in between, or another server is a moment behind
		}
		if err != nil {
			return false, err
		}
		err = p.write(ctx, p.moveGroup(&r, at, s, token, to, p.now())...)
		switch {
		case err == nil:
			if m.Subject == p.farSubject(p.farOf(at.bucket)) {
				p.remove(ctx, m) // as in leaveFar
			}
			return true, nil
		case errors.Is(err, errConflict), errors.Is(err, errBusy):
			if err := p.sync(ctx); err != nil {
				return false, err
			}
		default:
			return false, err
		}
	}
	return false, fmt.Errorf("%w: gave up after %d conflicting updates of the job", driver.ErrUncertain, maxTries)
}

// moveGroup ends a version as moved, and stores the next: of a suspect that was handed
// back one that is a suspect, too. Of what it is based on, all is conditional: the
// status is as it was read, and if there was none, the bucket of the old version is open,
// so that what has ended does not come back. A status that is there says as much, in a
// closed bucket too: it is removed after its job.
func (p *part) moveGroup(r *driver.Record, at place, s status, token string, to, now time.Time) group {
	next := *r
	next.Due, next.Version = to, r.Version+1
	if s.fate == freed {
		next.Attempt, next.Crashes = s.attempt, s.crashes
	}
	bucket := p.openFor(to)
	end := status{fate: moved, token: token, bucket: bucket, attempt: s.attempt}
	forward := p.forwardWrite(&next, bucket)
	if s.seq == 0 {
		forward.last, forward.guard = seq(0), p.nearMark(at.bucket)
	}
	g := group{
		{subject: p.fateSubject(at), data: end.encode(), last: seq(s.seq)},
		forward,
		p.recordWrite(&next, bucket, now, true),
	}
	return append(g, p.leave(s)...)
}

// redrive has a dead job wait again.
func (p *part) redrive(ctx context.Context, a address, at time.Time) error {
	for try := 0; try < maxTries; try++ {
		m, err := p.last(ctx, p.deadSubject(a.id))
		if err != nil {
			return err
		}
		if len(m.Data) == 0 {
			return driver.ErrNotFound
		}
		r, err := decode(m.Data)
		if err != nil {
			return err
		}
		r.Due, r.Attempt, r.Crashes, r.Version = at, 0, 0, r.Version+1
		r.Expires = time.Time{}
		tombstone := grave(p.deadSubject(a.id))
		tombstone.last = seq(m.Seq)
		bucket := p.openFor(at)
		g := group{tombstone, p.forwardWrite(&r, bucket), p.recordWrite(&r, bucket, p.now(), true)}
		if r.Key != "" {
			h, err := p.keyHolder(ctx, r.Key)
			if err != nil {
				return err
			}
			if h.alive {
				return driver.ErrExists
			}
			g = append(g, p.keyWrite(&r, h.seq))
		}
		err = p.write(ctx, g...)
		if !errors.Is(err, errConflict) && !errors.Is(err, errBusy) {
			return err
		}
		if err := p.sync(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: gave up after %d conflicting updates of the job", driver.ErrUncertain, maxTries)
}

// deleteDead removes a dead job. It replaces the same message as a redrive does, on the
// condition that it is as it was read, so that one of the two wins.
func (p *part) deleteDead(ctx context.Context, a address) error {
	for try := 0; try < maxTries; try++ {
		m, err := p.last(ctx, p.deadSubject(a.id))
		if err != nil {
			return err
		}
		if len(m.Data) == 0 {
			return driver.ErrNotFound
		}
		tombstone := grave(p.deadSubject(a.id))
		tombstone.last = seq(m.Seq)
		if err := p.write(ctx, tombstone); !errors.Is(err, errConflict) && !errors.Is(err, errBusy) {
			return err
		}
	}
	return fmt.Errorf("%w: gave up after %d conflicting updates of the job", driver.ErrUncertain, maxTries)
}

// purge removes the messages of a subject up to a sequence, 0 for all.
func (p *part) purge(ctx context.Context, filter string, upTo uint64) error {
	if err := p.spare(); err != nil {
		return err
	}
	request := map[string]any{"filter": filter}
	if upTo > 0 {
		request["seq"] = upTo + 1
	}
	var answer struct {
		Error *apiError `json:"error"`
	}
	if err := p.ask(ctx, "STREAM.PURGE."+p.stream, request, &answer); err != nil {
		return err
	}
	return answer.Error.err()
}

func (a place) String() string { return itoa(a.bucket) + "." + a.id + "." + strconv.Itoa(a.version) }
