package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// inserts stores new jobs. Turns are locks of this process, each for the keys of some hashes, and taken in one order;
// they spare conflicts, and decide nothing: the conditions of the commits do.
type inserts struct {
	*keys
	records   *records
	admission *admission
	turns     [32]chan struct{} // of inserts that may replace a job, by the hash of their key
}

func newInserts(k *keys, r *records, a *admission) *inserts {
	is := &inserts{keys: k, records: r, admission: a}
	for i := range is.turns {
		is.turns[i] = make(chan struct{}, 1)
	}
	return is
}

// insert stores records. A retried one keeps its id and its bucket, so that copies have
// one claim between them.
func (is *inserts) insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	is.records.queues.consult(ctx)
	err := is.admission.admit(ctx)
	ctx = withoutReserve(ctx)
	if err == nil && slices.ContainsFunc(recs, func(r driver.Record) bool { return is.openFor(r.Due) != is.nearOf(r.Due) }) {
		err = is.sync(ctx) // the clock was set back, maybe just now
	}
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
		return refs, errs
	}
	var groups []*inserting
	var of, keyed []int // which record a group is of
	for i := range recs {
		if errs[i] = is.records.checkRecord(&recs[i]); errs[i] != nil {
			continue
		}
		if recs[i].Key != "" {
			keyed = append(keyed, i)
			continue
		}
		groups = append(groups, is.insertion(&recs[i]))
		of = append(of, i)
	}
	is.insertKeys(ctx, recs, keyed, refs, errs)
	for k, err := range is.insertGroups(ctx, groups) {
		if errs[of[k]] = err; err == nil {
			refs[of[k]] = is.refOf(&recs[of[k]])
		}
	}
	return refs, errs
}

// inserting is a record on its way.
type inserting struct {
	r         *driver.Record
	group     group
	displaced bool // it goes to another bucket than that of its time, with a forward
	tried     bool // an earlier try may have stored it
}

// insertion returns what stores a record for the first time. If the bucket of its time is
// below the watermark it goes to the first open one, as its second version, but only if it is
// fresh: otherwise it may have been stored, and run, before that bucket was closed.
func (is *inserts) insertion(r *driver.Record) *inserting {
	bucket := is.openFor(r.Due)
	if bucket == is.nearOf(r.Due) || !is.fresh(r) {
		return &inserting{r: r, group: group{is.records.recordWrite(r, nil, is.nearOf(r.Due), r.Born, false)}}
	}
	in := &inserting{r: r, displaced: true, group: is.records.elsewhere(r, bucket, false)}
	in.group[0].last = seq(0)
	return in
}

// fresh reports whether the bucket of a record's time cannot have been closed since the
// record was born, but by a clock that was set in between: by the clock as it is now it is
// too soon for that. So if it is closed, it was so before.
func (is *inserts) fresh(r *driver.Record) bool {
	now, margin := is.now(), time.Duration(is.settle/2)*time.Microsecond
	return r.Born.Before(now.Add(margin)) && now.Add(margin).Before(is.closeAt(is.nearOf(r.Due)))
}

// insertTries bounds how often a record is stored anew because a bucket was closed, or
// the server is busy, meanwhile.
const insertTries = 20

// insertGroups writes records, and repeats those whose answer was lost until there is one
// or ctx ends. A record that is refused because its bucket is closed may have been stored, and
// run, by an earlier try.
func (is *inserts) insertGroups(ctx context.Context, all []*inserting) []error {
	errs := make([]error, len(all))
	trying := make([]int, len(all))
	for i := range trying {
		trying[i] = i
	}
	for refusals := 0; len(trying) > 0; {
		groups := make([]group, len(trying))
		for k, i := range trying {
			groups[k] = all[i].group
		}
		var again, refused []int
		for k, res := range is.commit(ctx, groups) {
			i := trying[k]
			errs[i] = res.err
			switch {
			case errors.Is(res.err, errWentBack): // it was not sent
				again = append(again, i)
			case errors.Is(res.err, errConflict), errors.Is(res.err, errBusy):
				errs[i] = errTooLate
				refused = append(refused, i)
			case isLost(res.err) && ctx.Err() == nil && is.closed.Err() == nil:
				all[i].repeat(is.buckets)
				again = append(again, i)
			}
		}
		if len(refused) > 0 && refusals < insertTries && is.sync(ctx) == nil {
			refusals++
			for _, i := range refused {
				var more bool
				if more, errs[i] = is.refused(ctx, all[i]); more {
					again = append(again, i)
				}
			}
		}
		trying = again
	}
	for i, in := range all {
		if in.tried && errs[i] != nil && !errors.Is(errs[i], driver.ErrUncertain) {
			errs[i] = fmt.Errorf("%w: %w", driver.ErrUncertain, errs[i]) // a later try was not made, or refused
		}
	}
	return errs
}

var errTooLate = fmt.Errorf("%w: it came too late for its bucket", driver.ErrUncertain)

// repeat prepares the next try, which may make a copy: it is refused where the bucket is closed. The first
// try has no such condition on several replicas, and may come after all others: it lies in a server that
// is frozen, until that goes on. So a note is stored with the copy; see isLateCopy.
func (in *inserting) repeat(b *buckets) {
	if in.tried {
		return
	}
	in.tried = true
	in.guard(&b.subjects)
	if b.replicas > 1 {
		in.group = append(in.group, write{subject: b.repeatedSubject(in.r.ID), data: []byte("repeated"), rollup: true, ttl: markTTL})
	}
}

// guard makes the write of the record, the last one, conditional on its bucket being open.
func (in *inserting) guard(s *subjects) {
	w := &in.group[len(in.group)-1]
	w.last, w.guard = seq(0), s.markOf(w.subject)
}

// refused finds out why a record was not stored, once the watermark has been read, and
// whether it is to be tried again, perhaps elsewhere.
func (is *inserts) refused(ctx context.Context, in *inserting) (again bool, err error) {
	if in.displaced {
		m, err := is.last(ctx, is.forward(in.r.ID))
		if err != nil || m.Seq > 0 {
			return false, err // nil: an earlier try has stored it; it may have ended since
		}
	}
	if in.tried || !is.fresh(in.r) {
		return false, errTooLate
	}
	*in = *is.insertion(in.r)
	return true, errTooLate
}
