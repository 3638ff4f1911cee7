package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// insert stores records: it learns which queues there are, and whether jobs still fit; then it refuses what is too large,
// stores those with keys by what each key says, and all others at once. A retried one keeps its id and its bucket, so
// that copies have one claim between them. From withoutReserve on nothing may take the room that ends need.
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

// insertTries bounds how often a record is stored anew because a bucket was closed, or
// the server is busy, meanwhile.
const insertTries = 20

// insertGroups writes records, and repeats those whose answer was lost until there is one
// or ctx ends. A record that is refused because its bucket is closed may have been stored, and
// run, by an earlier try. It never reports that a record was not stored while an earlier try may have stored it: such an
// error is ErrUncertain, and the caller may add the job again under its id. Refusals are counted, lost answers are not: the
// caller's ctx bounds those, and to give up early would leave the outcome unknown.
func (is *inserts) insertGroups(ctx context.Context, all []*inserting) []error {
	errs := make([]error, len(all))
	trying := make([]int, len(all))
	for i := range trying {
		trying[i] = i
	}
	for refusals := 0; len(trying) > 0; {
		groups := make([]stream.Group, len(trying))
		for k, i := range trying {
			groups[k] = all[i].group
		}
		var again, refused []int
		for k, res := range is.Commit(ctx, groups) {
			i := trying[k]
			errs[i] = res.Err
			switch {
			case errors.Is(res.Err, stream.ErrWentBack): // it was not sent
				again = append(again, i)
			case errors.Is(res.Err, stream.ErrConflict), errors.Is(res.Err, stream.ErrBusy):
				errs[i] = errTooLate
				refused = append(refused, i)
			case stream.IsLost(res.Err) && ctx.Err() == nil && is.Conn.Ended.Err() == nil:
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

// refused finds out why a record was not stored, once the watermark has been read, and
// whether it is to be tried again, perhaps elsewhere.
func (is *inserts) refused(ctx context.Context, in *inserting) (again bool, err error) {
	if in.displaced {
		m, err := is.Last(ctx, is.forward(in.r.ID))
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
