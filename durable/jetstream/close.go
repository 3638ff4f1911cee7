package jetstream

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A near bucket is closed in this order, and by any worker:
//
//  1. all that was handed out of it is acknowledged, that is, has ended;
//  2. the mark m.<bucket> is written, and the floor with it: from now on no copy enters;
//  3. its jobs are removed, up to the last one that was acknowledged;
//  4. it is empty: what was on its way when the mark was written has arrived by now,
//     since the removal was behind it;
//  5. the statuses are removed, up to the last message of the stream at that time.
//
// Any error ends it, and it begins anew with the next look; the message p.<bucket>, which
// is written with the mark and removed at the end, says after a crash that it is to. A
// status must outlive its job: if it were gone first, the job would look as if it waited.

// mark is the message that says that a bucket is closed.
func (p *part) mark(subject string) write {
	return write{subject: subject, data: []byte("closed"), rollup: true, ttl: markTTL}
}

// emptied reports whether a consumer has handed out all it has, and all of that has
// ended, and up to which sequence of the stream.
func (f *feed) emptied(ctx context.Context, cons natsjs.Consumer) (floor uint64, ok bool, err error) {
	info, err := call(ctx, f.nc, func() (*natsjs.ConsumerInfo, error) { return cons.Info(ctx) })
	if err != nil {
		return 0, false, err
	}
	return info.AckFloor.Stream, info.NumPending == 0 && info.NumAckPending == 0, nil
}

// closeBuckets closes what has ended, as the looks show it. It is not part of a look: it
// takes several commits and questions a bucket.
func (f *feed) closeBuckets(ctx context.Context, views <-chan view) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case v := <-views:
			if err := f.closeOnce(ctx, v, n%resumeEvery == 0); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

func (f *feed) closeOnce(ctx context.Context, v view, resume bool) error {
	ctx, cancel := context.WithTimeout(ctx, 4*answerTimeout)
	defer cancel()
	if f.pressed() {
		if err := f.removeEnded(ctx, v.near); err != nil {
			return err
		}
	}
	if err := f.closeEmptied(ctx, v); err != nil || !resume {
		return err
	}
	return f.resume(ctx)
}

// closeEmptied closes the near buckets that are read here and have ended. Of those that
// have not, because others of their kinds wait, it removes what has ended, and ends the
// reading of it.
func (f *feed) closeEmptied(ctx context.Context, v view) error {
	f.mu.Lock()
	bunches := f.bunches
	past := map[int64]bool{} // whether all that are read here have nothing more
	for at, r := range f.near {
		if v.now.After(f.closeAt(at.bucket)) && v.far[f.farOf(at.bucket)] == 0 {
			idle, seen := past[at.bucket]
			past[at.bucket] = !r.busy && (idle || !seen)
		}
	}
	f.mu.Unlock()
	for b, had := range v.near { // what nobody reads
		if _, read := past[b]; !read && v.now.After(f.closeAt(b)) && v.far[f.farOf(b)] == 0 {
			past[b] = !slices.ContainsFunc(slices.Collect(maps.Keys(had)), func(t string) bool { return !isNobodys(t, bunches) })
		}
	}
	for _, b := range sorted(past) {
		if !past[b] {
			continue
		}
		done, err := f.closeNear(ctx, b, v.near[b], bunches)
		if err != nil {
			return err
		}
		f.mu.Lock()
		for _, n := range done {
			if r := f.near[spot{b, n.name}]; r != nil {
				r.cancel()
				delete(f.near, spot{b, n.name})
			}
		}
		f.mu.Unlock()
	}
	return nil
}

// emptiedOf finds out up to where each bunch that a bucket has something of has ended; all
// is false if one has not, or some of the messages are of kinds that no worker can run.
func (f *feed) emptiedOf(ctx context.Context, b int64, had map[string]uint64, bunches []*bunch) (upTo map[*bunch]uint64, all bool, err error) {
	upTo, known := map[*bunch]uint64{}, 0
	for _, n := range bunches {
		if !n.in(had) {
			continue
		}
		for t := range had {
			if _, ok := slices.BinarySearch(n.tokens, t); ok || n == old && t == "" {
				known++
			}
		}
		cons, err := f.js.Consumer(ctx, f.stream, nearConsumer(b, n))
		if errors.Is(err, natsjs.ErrConsumerNotFound) {
			continue // its readers make it anew
		}
		if err != nil {
			return nil, false, err
		}
		last, ok, err := f.emptied(ctx, cons)
		if err != nil {
			return nil, false, err
		}
		if ok && last > 0 {
			upTo[n] = last
		}
	}
	for t := range had {
		if !isNobodys(t, bunches) {
			continue
		}
		last, err := f.endedNobodys(ctx, b, t)
		if err != nil {
			return nil, false, err
		}
		if last > 0 {
			upTo[&bunch{tokens: []string{t}}] = last
			known++
		}
	}
	for _, n := range bunches {
		if n.in(had) && upTo[n] == 0 {
			return upTo, false, nil
		}
	}
	return upTo, known == len(had), nil
}

// closeNear closes a bucket in which all has ended, and returns the bunches that need not
// be read there any more.
func (f *feed) closeNear(ctx context.Context, b int64, had map[string]uint64, bunches []*bunch) ([]*bunch, error) {
	if len(had) > 0 {
		upTo, all, err := f.emptiedOf(ctx, b, had, bunches)
		if err != nil {
			return nil, err
		}
		if !all {
			return f.thinOut(ctx, b, had, upTo, bunches)
		}
		closing := write{subject: f.closingSubject(b), rollup: true}
		ok, err := f.markClosed(ctx, f.nearMark(b), func(fl *floor) { fl.near = max(fl.near, b) }, closing)
		if err != nil || !ok {
			return nil, err
		}
		if err := f.purgeEnded(ctx, b, had, upTo); err != nil {
			return nil, err
		}
		if empty, err := f.forget(ctx, b); err != nil || !empty {
			return nil, err
		}
	}
	return bunches, f.deleteConsumers(ctx, b, bunches)
}

// thinOut removes what has ended from a bucket that cannot be closed, and returns the
// bunches of which there is nothing. Their statuses stay, so a copy that comes after that
// is known to have ended.
func (f *feed) thinOut(ctx context.Context, b int64, had map[string]uint64, upTo map[*bunch]uint64, bunches []*bunch) ([]*bunch, error) {
	if err := f.purgeEnded(ctx, b, had, upTo); err != nil {
		return nil, err
	}
	var done []*bunch
	for _, n := range bunches {
		if !n.in(had) && n.mine { // as of the look; what is removed now the next one shows
			done = append(done, n)
		}
	}
	return done, f.deleteConsumers(ctx, b, done)
}

// purgeEnded removes jobs that have ended: of each bunch up to where its consumer says so.
func (f *feed) purgeEnded(ctx context.Context, b int64, had map[string]uint64, upTo map[*bunch]uint64) error {
	if len(had) > fewTokens {
		var err error
		if had, err = f.purgeTogether(ctx, b, had, upTo); err != nil {
			return err
		}
	}
	for n, last := range upTo {
		tokens := n.tokens
		if n == old {
			tokens = []string{""}
		}
		for _, t := range tokens {
			if had[t] == 0 {
				continue
			}
			if err := f.purge(ctx, f.nearToken(b, t), last); err != nil {
				return err
			}
		}
	}
	return nil
}

// fewTokens is for how many kinds of a bucket one request each is cheap.
const fewTokens = 4

// purgeTogether removes by one request what has ended of all bunches, up to where the first
// of them has, and returns what is left. It does so only if there is nothing else up to
// there. That is what the answer of a server says that has got as far, if it was asked after
// the consumers: what is stored later comes after that.
func (f *feed) purgeTogether(ctx context.Context, b int64, had map[string]uint64, upTo map[*bunch]uint64) (map[string]uint64, error) {
	lowest := uint64(math.MaxUint64)
	for n, last := range upTo {
		if n != old {
			lowest = min(lowest, last)
		}
	}
	info, err := f.info(ctx, f.nearToken(b, "*"))
	if err != nil || info.last < lowest {
		return had, err
	}
	for s := range info.subjects {
		_, t, _ := f.parseNear(s)
		if !slices.ContainsFunc(slices.Collect(maps.Keys(upTo)), func(n *bunch) bool { return n.in(map[string]uint64{t: 1}) }) {
			return had, nil
		}
	}
	if err := f.purge(ctx, f.nearToken(b, "*"), lowest); err != nil {
		return nil, err
	}
	left, err := f.contents(ctx, "q."+itoa(b)+".*", "q."+itoa(b))
	return left[b], err
}

// deleteConsumers ends those of this worker's bunches; others lapse, if their workers do not
// delete them.
func (f *feed) deleteConsumers(ctx context.Context, b int64, bunches []*bunch) error {
	for _, n := range bunches {
		f.mu.Lock()
		read := f.near[spot{b, n.name}] != nil
		f.mu.Unlock()
		if !read {
			continue
		}
		err := f.js.DeleteConsumer(ctx, f.stream, nearConsumer(b, n))
		if err != nil && !errors.Is(err, natsjs.ErrConsumerNotFound) {
			return err
		}
	}
	return nil
}

func (p *part) closingSubject(b int64) string { return p.subject("p." + itoa(b)) }

// forget removes the statuses of a marked bucket, if that is empty. So must be its far
// bucket: a cascade that was cut off between its copy and the acknowledgment has left a
// job in there, too, that may have ended since.
func (f *feed) forget(ctx context.Context, b int64) (bool, error) {
	far, err := f.info(ctx, f.farSubject(f.farOf(b)))
	if err != nil || len(far.subjects) > 0 {
		return false, err
	}
	last := uint64(0)
	for i, filter := range f.nearFilters(b) {
		info, err := f.info(ctx, filter)
		if err != nil || len(info.subjects) > 0 {
			return false, err
		}
		if i == 0 {
			last = info.last
		}
	}
	if err := f.purge(ctx, f.subject("c."+itoa(b)+".>"), last); err != nil {
		return false, err
	}
	return true, f.purge(ctx, f.closingSubject(b), 0)
}

// resume ends what closings of workers that died have left.
func (f *feed) resume(ctx context.Context) error {
	closing, err := f.buckets(ctx, "p")
	if err != nil {
		return err
	}
	for b := range closing {
		if _, err := f.forget(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// removeEnded removes jobs that have ended from buckets that are still open, but for the
// last one, by which the bucket is known to be there when it is to be closed.
func (f *feed) removeEnded(ctx context.Context, near map[int64]map[string]uint64) error {
	f.mu.Lock()
	bunches, read := f.bunches, slices.Collect(maps.Keys(f.near))
	f.mu.Unlock()
	for _, at := range read {
		i := slices.IndexFunc(bunches, func(n *bunch) bool { return n.name == at.bunch })
		if i < 0 || !bunches[i].in(near[at.bucket]) {
			continue
		}
		cons, err := f.js.Consumer(ctx, f.stream, nearConsumer(at.bucket, bunches[i]))
		if err != nil {
			continue // it is made by its reader
		}
		last, _, err := f.emptied(ctx, cons)
		if err != nil || last <= 1 {
			continue
		}
		if err := f.purgeEnded(ctx, at.bucket, near[at.bucket], map[*bunch]uint64{bunches[i]: last - 1}); err != nil {
			return err
		}
	}
	return nil
}
