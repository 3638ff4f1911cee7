package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// An answer that writes nothing, such as ErrExists or a false of Cancel, rests on what was read. A leader
// that was deposed and does not know it reads what is old. So before the answer is given a witness is
// written, which only a leader with a majority can commit, and what was read is compared with what a server
// has that has the witness. On one replica nothing is old.

// reading is subjects, and the sequence of the last message of each; 0 for none or a tombstone.
type reading map[string]uint64

// readingOf is what a holder was read from.
func (ks *keys) readingOf(h *holder) reading {
	r := reading{}
	if h.key != "" {
		r[ks.keySubject(h.key)] = h.seq
	}
	if h.job.id != "" {
		r[ks.forward(h.job.id)], r[ks.fateSubject(h.at)] = h.forward, h.s.seq
		if h.alive && h.s.seq == 0 {
			r[ks.nearMark(h.at.bucket)] = 0 // it is open
		}
	}
	return r
}

// stands returns nil if a reading is what is stored, by a time after the call: errBusy if not, or if
// nobody has answered yet.
func (b *buckets) stands(ctx context.Context, r reading, testify func(context.Context) (witness, error)) error {
	if b.replicas == 1 {
		return nil
	}
	w, err := testify(ctx)
	var found map[string]stored
	if err == nil {
		subjects := make([]string, 0, len(r))
		for subject := range r {
			subjects = append(subjects, subject)
		}
		found, err = b.lastsSince(ctx, w, false, subjects...)
	}
	if isLost(err) || errors.Is(err, errBehind) || errors.Is(err, context.DeadlineExceeded) {
		if ctx.Err() == nil && b.nc.ended.Err() == nil {
			return errBusy // a leader may answer soon
		}
	}
	if err != nil {
		return err
	}
	for subject, n := range r {
		if m := found[subject]; m.Seq != n && !(n == 0 && len(m.Data) == 0 && m.Seq > 0) {
			return errBusy
		}
	}
	return nil
}

// testify writes a witness.
func (b *buckets) testify(ctx context.Context) (witness, error) {
	subject := b.subject("y." + b.nonce)
	n, err := b.writeSeq(ctx, write{subject: subject, rollup: true, ttl: graveTTL})
	return witness{subject, n}, err
}

// ifStands returns done and an answer without a write for change, if what it rests on is stored so.
func (b *buckets) ifStands(ctx context.Context, r reading, answer error) (done bool, err error) {
	if err := b.stands(ctx, r, b.testify); err != nil {
		return !errors.Is(err, errBusy), err
	}
	return true, answer
}

// ifHeld is ifStands of ErrExists, of a key that a job has.
func (ks *keys) ifHeld(ctx context.Context, h *holder) error {
	_, err := ks.ifStands(ctx, ks.readingOf(h), driver.ErrExists)
	return err
}

// maxTries bounds how often a change is tried anew because others update the same meanwhile.
const maxTries = 100

// change calls try until it has written, is done, or fails. A try reads what it is based on, and
// writes on the condition that this is as it was read. It is tried anew after a conflict, and
// when the answer to a write was lost: lost is that error then, and the try finds out whether it
// was written. If a later try fails, the lost answer is the error, since its outcome is unknown.
func (b *buckets) change(ctx context.Context, what string, try func(lost error) (done bool, err error)) error {
	var lost error
	for range maxTries {
		done, err := try(lost)
		switch {
		case done || err == nil:
			return err
		case errors.Is(err, errConflict), errors.Is(err, errBusy):
			if err := b.sync(ctx); err != nil {
				return cmp.Or(lost, err)
			}
		case isLost(err) && ctx.Err() == nil && b.nc.ended.Err() == nil:
			lost = err
		default:
			return cmp.Or(lost, err)
		}
	}
	return cmp.Or(lost, fmt.Errorf("%w: gave up after %d conflicting updates of %s", driver.ErrUncertain, maxTries, what))
}
