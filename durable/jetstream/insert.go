package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// insert stores records. A retried one keeps its id and its bucket, so that copies have
// one claim between them.
func (p *part) insert(ctx context.Context, recs []durable.Record) []error {
	errs := make([]error, len(recs))
	if err := p.room(ctx); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	var groups []group
	var of []int // which record a group is of
	for i := range recs {
		if recs[i].Job.Key != "" {
			errs[i] = p.insertKeyed(ctx, &recs[i])
			continue
		}
		groups = append(groups, group{p.recordWrite(&recs[i], recs[i].Born, false)})
		of = append(of, i)
	}
	for k, err := range p.insertGroups(ctx, groups) {
		errs[of[k]] = err
	}
	return errs
}

// insertGroups writes records, and repeats those whose answer was lost until there is one
// or ctx ends. What is refused because its bucket is closed may have been stored, and
// run, by an earlier try.
func (p *part) insertGroups(ctx context.Context, groups []group) []error {
	errs := make([]error, len(groups))
	trying := make([]int, len(groups))
	for i := range trying {
		trying[i] = i
	}
	for len(trying) > 0 {
		var again []int
		for k, res := range p.commit(ctx, pick(groups, trying)) {
			i := trying[k]
			errs[i] = res.err
			switch {
			case errors.Is(res.err, errConflict), errors.Is(res.err, errBusy):
				errs[i] = fmt.Errorf("%w: it came too late for its bucket", durable.ErrUncertain)
			case errors.Is(res.err, durable.ErrUncertain) && ctx.Err() == nil && p.closed.Err() == nil:
				again = append(again, i)
			}
		}
		for _, i := range again {
			w := &groups[i][0]
			w.last, w.guard = seq(0), p.markOf(w.subject)
		}
		trying = again
	}
	return errs
}

// markOf returns the mark of the bucket that a job's subject is of.
func (p *part) markOf(subject string) string {
	number := strings.TrimPrefix(subject, p.subject("q."))
	if number == subject {
		number = "h" + strings.TrimPrefix(subject, p.subject("h."))
	}
	return p.subject("m." + number)
}

// recordWrite is the message that stores a version of a job. On a stream of one replica
// it is refused once the bucket is closed, so that a late copy does not come back to life
// when nobody remembers that it ran. On several replicas such a condition would have
// writers wait for one another, so only what may be a copy has it; what comes late is
// found by the scan for old buckets.
func (p *part) recordWrite(r *durable.Record, now time.Time, guarded bool) write {
	bucket := p.nearOf(r.Due)
	far := p.isFar(bucket, now)
	w := write{subject: p.jobSubject(bucket, far), data: encode(r)}
	if guarded || p.replicas == 1 {
		w.last, w.guard = seq(0), p.jobMark(bucket, far)
	}
	return w
}

// insertKeyed stores a record and takes its key, in one commit.
func (p *part) insertKeyed(ctx context.Context, r *durable.Record) error {
	uncertain := error(nil)
	for try := 0; try < 20; try++ {
		h, err := p.keyHolder(ctx, r.Job.Key)
		switch {
		case err != nil:
			return err
		case h.ref == p.refOf(r):
			return nil // an earlier try has stored it; it may have ended since
		case h.alive:
			return durable.ErrExists
		}
		err = p.write(ctx, p.keyWrite(r, h.seq), p.recordWrite(r, r.Born, true))
		switch {
		case errors.Is(err, errConflict), errors.Is(err, errBusy):
			continue
		case errors.Is(err, durable.ErrUncertain) && ctx.Err() == nil && p.closed.Err() == nil:
			uncertain = err
			continue
		}
		return err
	}
	if uncertain != nil {
		return uncertain
	}
	return fmt.Errorf("%w: others take and leave the key %q all the time", durable.ErrExists, r.Job.Key)
}

// A key is a message of the subject k.<hash of it>, with the Ref of the job that has it.
// It is taken by a compare-and-set of its sequence. A job that ends leaves it with a
// tombstone in the same commit, but what counts is the job: one that was canceled has not
// the key, though nobody has written that down.

func (p *part) keySubject(key string) string {
	sum := sha256.Sum256([]byte(key))
	return p.subject("k." + hex.EncodeToString(sum[:16]))
}

func (p *part) keyWrite(r *durable.Record, last uint64) write {
	return write{subject: p.keySubject(r.Job.Key), data: []byte(p.refOf(r)), last: seq(last), rollup: true}
}

// grave is what a subject is left with when its message is to be gone: a message that
// replaces the others and itself goes after a while.
func grave(subject string) write {
	return write{subject: subject, rollup: true, ttl: time.Minute}
}

// holder is who has a key, or had it last.
type holder struct {
	ref   durable.Ref // "" for none
	seq   uint64      // of the message; 0 for none
	alive bool
}

func (p *part) keyHolder(ctx context.Context, key string) (holder, error) {
	m, err := p.last(ctx, p.keySubject(key))
	switch {
	case errors.Is(err, durable.ErrNotFound):
		return holder{}, nil
	case err != nil:
		return holder{}, err
	case len(m.Data) == 0:
		return holder{seq: m.Seq}, nil
	}
	h := holder{ref: durable.Ref(m.Data), seq: m.Seq}
	a, err := parseRef(h.ref, p.salt, p.of)
	if err != nil {
		return h, fmt.Errorf("%w: of the key %q: %w", durable.ErrStorage, key, err)
	}
	_, s, err := p.current(ctx, a)
	if err != nil {
		return h, err
	}
	h.alive = !s.fate.final()
	return h, nil
}

// leaveKey is what an ending job writes of its key: that it is free, or has the next
// occurrence. Nil if the key is not this job's.
func (p *part) leaveKey(ctx context.Context, r *durable.Record, next *durable.Record) (group, error) {
	if r.Job.Key == "" {
		return nil, nil
	}
	m, err := p.last(ctx, p.keySubject(r.Job.Key))
	if errors.Is(err, durable.ErrNotFound) || err == nil && durable.Ref(m.Data) != p.refOf(r) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := grave(p.keySubject(r.Job.Key))
	if next != nil {
		w = p.keyWrite(next, m.Seq)
	}
	w.last = seq(m.Seq)
	return group{w}, nil
}
