package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// insert stores records: it learns which queues there are, and whether jobs still fit; then it
// refuses records that are too large, stores those with keys as each key demands, and all others at
// once. From withoutReserve on nothing may take the room that ends need.
//
// Records without a key cost one commit for all, and no read of their own: consult and admit read
// for all calls of some time. One with a key reads the key, and what became of the job that has it.
//
// A retried record keeps its ID and its bucket, so that copies have one claim between them.
//
// An error is that of one record, unless nothing was tried: one that is too large, or whose key is
// taken, does not keep the others of its call from being stored.
func (is *inserts) insert(ctx context.Context, recs []driver.Record) ([]driver.Ref, []error) {
	refs, errs := make([]driver.Ref, len(recs)), make([]error, len(recs))
	is.records.queues.consult(ctx)
	err := is.admission.admit(ctx)
	ctx = withoutReserve(ctx)
	if err == nil && slices.ContainsFunc(recs, func(r driver.Record) bool { return is.openFor(r.Due) != is.nearOf(r.Due) }) {
		err = is.sync(ctx) // the clock was set back, maybe just now
	}
	if err != nil {
		return refs, slices.Repeat([]error{err}, len(recs))
	}
	var groups []*inserting
	var of []int // which record a group is of; those of keys and those that are too large have none
	var keyed []*keyedRecord
	for i := range recs {
		switch errs[i] = is.records.checkRecord(&recs[i]); {
		case errs[i] != nil:
		case recs[i].Key != "":
			keyed = append(keyed, &keyedRecord{Record: &recs[i], index: i})
		default:
			groups, of = append(groups, is.insertion(&recs[i])), append(of, i)
		}
	}
	is.insertKeys(ctx, keyed)
	for _, r := range keyed {
		refs[r.index], errs[r.index] = r.ref, r.err
	}
	for k, err := range is.insertGroups(ctx, groups) {
		if errs[of[k]] = err; err == nil {
			refs[of[k]] = is.refOf(&recs[of[k]])
		}
	}
	return refs, errs
}

// insertTries bounds how often a call stores records anew because a bucket was closed, or the
// server was busy, meanwhile. Each of these tries reads the clock and the watermark anew, so a
// second refusal means that yet another bucket was closed, or that the server is busy for long.
const insertTries = 20

// insertGroups writes records, and repeats those whose answer was lost until there is one or ctx
// ends.
//
// It never reports that a record was not stored while an earlier try may have stored it: such an
// error is ErrUncertain, and the caller may add the job again under its ID. A record that is
// refused because its bucket is closed may have been stored, and run, by an earlier try.
//
// Refusals are counted, lost answers are not: the caller's ctx bounds those, and to give up early
// would leave the outcome unknown. All records without a result share the next try.
func (is *inserts) insertGroups(ctx context.Context, all []*inserting) []error {
	for trying, refusals := all, 0; len(trying) > 0; {
		groups := make([]stream.Group, len(trying))
		for k, in := range trying {
			groups[k] = in.group
		}
		var again, refused []*inserting
		for k, res := range is.Commit(ctx, groups) {
			in := trying[k]
			in.err = res.Err
			switch {
			case errors.Is(res.Err, stream.ErrWentBack): // it was not sent
				again = append(again, in)
			case errors.Is(res.Err, stream.ErrConflict), errors.Is(res.Err, stream.ErrBusy):
				in.err = errTooLate
				refused = append(refused, in)
			case stream.IsLost(res.Err) && ctx.Err() == nil && is.Conn.Ended.Err() == nil:
				in.repeat(is.buckets)
				again = append(again, in)
			}
		}
		if len(refused) > 0 && refusals < insertTries && is.sync(ctx) == nil {
			refusals++
			for _, in := range refused {
				if is.refused(ctx, in) {
					again = append(again, in)
				}
			}
		}
		trying = again
	}
	errs := make([]error, len(all))
	for i, in := range all {
		if errs[i] = in.err; in.tried && in.err != nil && !errors.Is(in.err, driver.ErrUncertain) {
			errs[i] = fmt.Errorf("%w: %w", driver.ErrUncertain, in.err) // a later try was not made, or refused
		}
	}
	return errs
}

// refused finds out why a record was not stored, once the watermark has been read, and whether it
// is to be tried again, perhaps elsewhere. It sets the error only if it knows better than
// errTooLate.
//
// A displaced record that was refused has a forward already, or its open bucket was closed in
// between. A forward is that of an earlier try, since IDs are not used again: that try has stored
// the record.
func (is *inserts) refused(ctx context.Context, in *inserting) (again bool) {
	if in.displaced {
		m, err := is.Last(ctx, is.forward(in.r.ID))
		if err != nil || m.Seq > 0 {
			in.err = err // nil: an earlier try has stored it; it may have ended since
			return false
		}
	}
	if in.tried || !is.fresh(in.r) {
		return false
	}
	*in = *is.insertion(in.r)
	return true
}
