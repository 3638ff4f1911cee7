package jetstream

import (
	"context"
	"errors"

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
	info, err := cons.Info(ctx)
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

// closeEmptied closes the near buckets that are read here and have ended, and stops
// reading those that another worker has closed.
func (f *feed) closeEmptied(ctx context.Context, v view) error {
	f.mu.Lock()
	var old []int64
	for b, r := range f.near {
		if !r.busy && v.now.After(f.closeAt(b)) && v.far[f.farOf(b)] == 0 {
			old = append(old, b)
		}
	}
	f.mu.Unlock()
	for _, b := range old {
		closed, err := f.closeNear(ctx, b, v.near[b] > 0)
		if err != nil {
			return err
		}
		if closed {
			f.mu.Lock()
			f.near[b].cancel()
			delete(f.near, b)
			f.mu.Unlock()
		}
	}
	return nil
}

func (f *feed) closeNear(ctx context.Context, b int64, had bool) (bool, error) {
	if had {
		cons, err := f.js.Consumer(ctx, f.stream, nearConsumer(b))
		if errors.Is(err, natsjs.ErrConsumerNotFound) {
			return false, nil // its reader makes it anew
		}
		if err != nil {
			return false, err
		}
		upTo, ok, err := f.emptied(ctx, cons)
		if err != nil || !ok || upTo == 0 {
			return false, err
		}
		closing := write{subject: f.closingSubject(b), rollup: true}
		ok, err = f.markClosed(ctx, f.nearMark(b), func(fl *floor) { fl.near = max(fl.near, b) }, closing)
		if err != nil || !ok {
			return false, err
		}
		if err := f.purge(ctx, f.nearSubject(b), upTo); err != nil {
			return false, err
		}
	}
	if had {
		if empty, err := f.forget(ctx, b); err != nil || !empty {
			return false, err
		}
	}
	err := f.js.DeleteConsumer(ctx, f.stream, nearConsumer(b))
	if errors.Is(err, natsjs.ErrConsumerNotFound) {
		err = nil
	}
	return err == nil, err
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
	info, err := f.info(ctx, f.nearSubject(b))
	if err != nil || len(info.subjects) > 0 {
		return false, err
	}
	if err := f.purge(ctx, f.subject("c."+itoa(b)+".>"), info.last); err != nil {
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
func (f *feed) removeEnded(ctx context.Context, near map[int64]uint64) error {
	f.mu.Lock()
	var read []int64
	for b := range f.near {
		if near[b] > 1 {
			read = append(read, b)
		}
	}
	f.mu.Unlock()
	for _, b := range read {
		cons, err := f.js.Consumer(ctx, f.stream, nearConsumer(b))
		if err != nil {
			continue // it is made by its reader
		}
		if floor, _, err := f.emptied(ctx, cons); err == nil && floor > 1 {
			if err := f.purge(ctx, f.nearSubject(b), floor-1); err != nil {
				return err
			}
		}
	}
	return nil
}
