package jetstream

import (
	"context"
	"errors"
	"maps"
	"slices"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A near bucket is closed in this order, and by any worker:
//
//  1. all that was handed out of it is acknowledged, that is, has ended, or was set aside into
//     another of its queues; so all queues are polled once more after that;
//  2. the mark m.<bucket> is written, and the watermark with it: from now on no copy enters;
//  3. its jobs are removed, up to the last one that was acknowledged;
//  4. it is empty: what was on its way when the mark was written has arrived by now,
//     since the removal was behind it;
//  5. the note e.<bucket> says up to which message of the stream it was empty;
//  6. the statuses are removed, up to that message.
//
// Any error ends it, and it begins anew with the next poll; the message p.<bucket>, which
// is written with the mark and removed at the end, says after a crash that it is to. A
// status must outlive its job: if it were gone first, the job would look as if it waited.
//
// A server that is killed may take the removal of jobs back, and not that of statuses: NATS 2.15 keeps the file of a
// block that has become empty if tombstones of older blocks are in it, writes none for the messages of the block
// itself, and reads them again when it starts. The note tells such a job from one that has come late.

// mark is the message that says that a bucket is closed.
func (b *buckets) mark(subject string) write {
	return write{subject: subject, data: []byte("closed"), rollup: true, ttl: markTTL}
}

// emptied returns up to which sequence of the stream a consumer's messages have ended, 0 if it
// has more, or is not there: then its readers make it anew.
func (f *fetcher) emptied(ctx context.Context, consumer string) (last uint64, err error) {
	last, all, err := f.ended(ctx, consumer)
	if !all {
		return 0, err
	}
	return last, err
}

// ended is the same though a consumer has more, and all says whether it has none. A consumer on a server that is
// behind, as one is that was started again, does not know of what came last. So the leader is asked, too.
func (f *fetcher) ended(ctx context.Context, consumer string) (last uint64, all bool, err error) {
	var info natsjs.ConsumerInfo
	try, cancel := context.WithTimeout(ctx, silentAfter)
	defer cancel()
	err = f.ask(try, "CONSUMER.INFO."+f.name+"."+consumer, nil, &info)
	if errors.Is(err, driver.ErrNotFound) || timedOut(ctx, err) { // its readers make it anew
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	return f.endedBy(ctx, &info)
}

// endedBy is ended by what a server says of the consumer.
func (f *fetcher) endedBy(ctx context.Context, info *natsjs.ConsumerInfo) (last uint64, all bool, err error) {
	last, all = info.AckFloor.Stream, info.NumPending == 0 && info.NumAckPending == 0
	if !all || f.replicas == 1 {
		return last, all, nil
	}
	next, err := f.ofLeader(ctx, map[string]any{"next_by_subj": info.Config.FilterSubject, "seq": last + 1})
	return last, err == nil && next.Seq == 0, err
}

// closeBuckets closes what has ended, as the polls show it. It is not part of a poll: it
// takes several commits and questions a bucket.
func (f *fetcher) closeBuckets(ctx context.Context, views <-chan view) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case v := <-views:
			err := f.closeOnce(ctx, v, n%resumeEvery == 0)
			if err != nil && ctx.Err() == nil && !isUnanswered(err) { // jobs are read, though buckets stay
				return err
			}
		}
	}
}

func (f *fetcher) closeOnce(ctx context.Context, v view, resume bool) error {
	ctx, cancel := context.WithTimeout(ctx, 4*answerTimeout)
	defer cancel()
	f.closing = f.history.now().backs
	if f.part.admission.pressed() {
		if err := f.removeEnded(ctx, v.near); err != nil {
			return err
		}
	}
	if is, err := f.isBackedUp(ctx); is || err != nil {
		return err
	}
	if err := f.closeEmptied(ctx, v); err != nil || !resume {
		return err
	}
	return f.resume(ctx)
}

// closeEmptied closes the near buckets that have ended, and of which this worker reads
// something, or nobody does. Of those that have not, because other jobs wait there, it removes
// what has ended.
func (f *fetcher) closeEmptied(ctx context.Context, v view) error {
	fl, past := f.part.queues.fleet.Load(), map[int64]bool{}
	isPast := func(b int64) bool { return v.now.After(f.closeAt(b)) && v.far[f.farOf(b)] == 0 }
	for b, had := range v.near { // what nobody reads
		if isPast(b) && !slices.ContainsFunc(slices.Collect(maps.Keys(had)), func(q string) bool { return !fl.isNobodys(q) }) {
			past[b] = true
		}
	}
	f.mu.Lock()
	for at := range f.near {
		if isPast(at.bucket) {
			past[at.bucket] = true
		}
	}
	for at, r := range f.near {
		if r.busy {
			delete(past, at.bucket)
		}
	}
	f.mu.Unlock()
	for _, b := range sorted(past) {
		if err := f.closeNear(ctx, b, v.near[b]); err != nil {
			return err
		}
	}
	return nil
}

// endedOf finds out up to where each queue of a bucket has ended; all is false if one has not.
func (f *fetcher) endedOf(ctx context.Context, b int64, had map[string]uint64) (upTo map[string]uint64, all bool, err error) {
	upTo, fl := map[string]uint64{}, f.part.queues.fleet.Load()
	for queue := range had {
		var last uint64
		if fl.isNobodys(queue) {
			last, err = f.endedNobodys(ctx, spot{b, queue})
		} else {
			last, err = f.emptied(ctx, spot{b, queue}.consumer())
		}
		if err != nil {
			return nil, false, err
		}
		if last > 0 {
			upTo[queue] = last
		}
	}
	return upTo, len(upTo) == len(had), nil
}

// closeNear closes a bucket in which all has ended, and ends the reading of it. If some has not
// it removes what has, and ends the reading of queues in which there was nothing. The statuses
// stay then, so a copy that comes after that is known to have ended.
func (f *fetcher) closeNear(ctx context.Context, b int64, had map[string]uint64) error {
	upTo, all, err := f.endedOf(ctx, b, had)
	if err != nil {
		return err
	}
	used := len(had) > 0
	if !used {
		used, err = f.hasStatuses(ctx, b)
	}
	if !all {
		err = f.purgeEnded(ctx, b, upTo)
	} else if used && err == nil {
		var closed bool
		if closed, err = f.stillEnded(ctx, b, had, upTo); err == nil && closed {
			closed, err = f.markAndForget(ctx, b, upTo)
		}
		if !closed {
			return err
		}
	}
	if err != nil {
		return err
	}
	return f.leave(ctx, b, func(queue string) bool { return all || had[queue] == 0 })
}

// hasStatuses reports whether a bucket in which nothing is has statuses: jobs that leave a far
// bucket never come to the near one, and their statuses stay until that is over.
func (f *fetcher) hasStatuses(ctx context.Context, b int64) (bool, error) {
	info, err := f.info(ctx, f.subject("c."+itoa(b)+".>"))
	return len(info.subjects) > 0, err
}

// stillEnded looks once more at a bucket in which all has ended that it had. A job that is set
// aside is in its new queue before it is acknowledged in the one where it was. So if that one was
// found to have ended, the other one shows now.
func (f *fetcher) stillEnded(ctx context.Context, b int64, had, upTo map[string]uint64) (bool, error) {
	now, err := f.contents(ctx, "q."+itoa(b)+".*")
	if err != nil {
		return false, err
	}
	for queue, n := range now[b] {
		if upTo[queue] == 0 || n > had[queue] {
			return false, nil
		}
		if f.part.queues.fleet.Load().isNobodys(queue) {
			continue
		}
		if last, err := f.emptied(ctx, spot{b, queue}.consumer()); err != nil || last == 0 {
			return false, err
		}
	}
	return true, nil
}

// markAndForget is what closes a bucket. False: it is not closed yet.
func (f *fetcher) markAndForget(ctx context.Context, b int64, upTo map[string]uint64) (bool, error) {
	closing := write{subject: f.closingSubject(b), rollup: true}
	ok, err := f.markClosed(ctx, f.nearMark(b), func(fl *watermark) { fl.near = max(fl.near, b) }, closing)
	if err != nil || !ok {
		return false, err
	}
	if err := f.purgeEnded(ctx, b, upTo); err != nil {
		return false, err
	}
	return f.forget(ctx, b)
}

// purgeEnded removes jobs that have ended: of each queue up to where its consumer says so.
func (f *fetcher) purgeEnded(ctx context.Context, b int64, upTo map[string]uint64) error {
	for queue, last := range upTo {
		if f.history.now().backs != f.closing {
			return errWentBack
		}
		if err := f.purge(ctx, f.queueSubject(b, queue), last); err != nil {
			return err
		}
	}
	return nil
}

// leave ends the reading of some queues of a bucket, and their consumers. Those of others lapse,
// if their workers do not delete them.
func (f *fetcher) leave(ctx context.Context, b int64, of func(queue string) bool) error {
	var done []spot
	f.mu.Lock()
	for at, r := range f.near {
		if at.bucket == b && of(at.queue) {
			r.cancel()
			delete(f.near, at)
			done = append(done, at)
		}
	}
	f.mu.Unlock()
	for _, at := range done {
		if err := f.deleteConsumer(ctx, at.consumer()); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the statuses of a marked bucket, if that is empty. So must be its far
// bucket: a cascade that was cut off between its copy and the acknowledgment has left a
// job in there, too, that may have ended since.
func (f *fetcher) forget(ctx context.Context, b int64) (bool, error) {
	far, err := f.info(ctx, f.farSubject(f.farOf(b)))
	if err != nil || len(far.subjects) > 0 {
		return false, err
	}
	near, err := f.info(ctx, f.queueSubject(b, "*"))
	if err != nil || len(near.subjects) > 0 {
		return false, err
	}
	if is, err := f.isBackedUp(ctx); is || err != nil {
		return false, err // it has read the jobs, maybe, and not the statuses
	}
	if err := f.noteEmpty(ctx, f.nearMark(b), near.last); err != nil {
		return false, err
	}
	if err := f.purge(ctx, f.subject("c."+itoa(b)+".>"), near.last); err != nil {
		return false, err
	}
	return true, f.purge(ctx, f.closingSubject(b), 0)
}

// resume ends what closings of workers that died have left.
func (f *fetcher) resume(ctx context.Context) error {
	closing, err := f.bucketsOf(ctx, "p")
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
func (f *fetcher) removeEnded(ctx context.Context, near map[int64]map[string]uint64) error {
	f.mu.Lock()
	read := slices.Collect(maps.Keys(f.near))
	f.mu.Unlock()
	for _, at := range read {
		if near[at.bucket][at.queue] == 0 {
			continue
		}
		last, _, err := f.ended(ctx, at.consumer())
		if err != nil || last <= 1 {
			continue
		}
		if err := f.purge(ctx, f.queueSubject(at.bucket, at.queue), last-1); err != nil {
			return err
		}
	}
	return nil
}
