package jetstream

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// A near bucket is closed in this order, and by any worker:
//
//  1. all that was handed out of it is acknowledged, that is, has ended, or was set aside into
//     another of its queues; so all queues are polled once more after that;
//  2. the mark m.<bucket> is written, and the watermark with it: from now on no copy enters;
//  3. its jobs are removed, up to the last one that was acknowledged;
//  4. it is empty: what was on its way when the mark was written has arrived by now,
//     since the removal was behind it;
//  5. the note e.<bucket> says up to which message of the stream it and its far bucket were empty;
//  6. the statuses are removed, up to that message.
//
// Any error ends it, and it begins anew with the next poll; the message p.<bucket>, which
// is written with the mark and removed at the end, says after a crash that it is to. A
// status must outlive its job: if it were gone first, the job would look as if it waited.
//
// A server that is killed may take the removal of jobs back, and not that of statuses: NATS
// 2.15 keeps the file of a block that has become empty if tombstones of older blocks are in
// it, writes none for the messages of the block itself, and reads them again when it
// starts. The note tells such a job from one that has come late.

// resumeEvery is how many closings, a minute or more, are between two searches for those
// that were left.
const resumeEvery = 120

// closer closes near buckets in which all has ended, and removes their statuses. One
// goroutine uses it, so it has no lock but that of the readers. It never marks a bucket in
// which a job waits, nor purges by sequences of before the stream went back.
//
// A bucket of one queue costs 12 requests on one replica, two of them commits, however many
// jobs it has had. Several workers may close one bucket at a time: each step may be done
// twice.
type closer struct {
	*consumers
	readers *readers
	closing int64              // the history.backs of what is known of the buckets that are being closed
	swept   map[spot]time.Time // when endedNobodys has checked it
	// Of the buckets that findStrays has found, those that are still to be closed.
	strays   []int64
	searched bool
}

// view is the result of a poll: how many messages each bucket has, and each queue of a near
// one. It may be old when it is used. So it says only what is worth a question: each step
// of a closing reads anew what it rests on.
type view struct {
	near map[int64]map[string]uint64
	far  map[int64]uint64
	now  time.Time
	all  bool // else near is empty
}

// closeBuckets closes what has ended, as the polls show it. It is not part of a poll: it
// takes several commits and questions a bucket. A poll does not wait for it either: a view
// that comes while it is at work is dropped, and the next one has all of it.
func (c *closer) closeBuckets(ctx context.Context, views <-chan view) error {
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case v := <-views:
			err := c.closeOnce(ctx, v, n%resumeEvery == 0)
			if err != nil && ctx.Err() == nil && !isUnanswered(err) { // jobs are read, though buckets stay
				return err
			}
		}
	}
}

// closeOnce is one round. It takes four times AnswerTimeout at most. The rest is
// begun anew with a later view.
func (c *closer) closeOnce(ctx context.Context, v view, resume bool) error {
	ctx, cancel := context.WithTimeout(ctx, 4*stream.AnswerTimeout)
	defer cancel()
	c.closing = c.Backs()
	if c.part.admission.pressed() {
		if err := c.removeEnded(ctx, v.near); err != nil {
			return err
		}
	}
	past := c.pastOf(v)
	if len(past)+len(c.strays) == 0 && c.searched && !resume {
		return nil
	}
	if is, err := c.isBackedUp(ctx); is || err != nil {
		return err
	}
	for _, b := range past {
		if err := c.closeNear(ctx, b, v.near[b]); err != nil {
			return err
		}
	}
	if !c.searched {
		if err := c.findStrays(ctx, v); err != nil {
			return err
		}
	}
	for ; len(c.strays) > 0; c.strays = c.strays[1:] {
		if err := c.closeNear(ctx, c.strays[0], v.near[c.strays[0]]); err != nil {
			return err
		}
	}
	if !resume {
		return nil
	}
	return c.resume(ctx)
}

// findStrays finds the past buckets that have statuses and no jobs: all of these were canceled or
// moved in the far bucket. No poll shows such a bucket, and a worker reads it only if it lives at
// the bucket's time. So each worker searches once, when it begins. It costs one request for each
// page of statuses.
func (c *closer) findStrays(ctx context.Context, v view) error {
	info, err := c.Info(ctx, c.subject("c.>"))
	if err != nil {
		return err
	}
	strays := map[int64]bool{}
	for subject := range info.Subjects {
		at, ok := c.parseFate(subject)
		if ok && len(v.near[at.bucket]) == 0 && c.isPast(v, at.bucket) {
			strays[at.bucket] = true
		}
	}
	c.searched, c.strays = true, sorted(strays)
	return nil
}

// isPast reports whether the time of a near bucket is over. One whose far bucket still has jobs is
// not past: they come to near buckets first.
func (c *closer) isPast(v view, b int64) bool {
	return v.now.After(c.closeAt(b)) && v.far[c.farOf(b)] == 0
}

// pastOf returns the near buckets that are to be closed, or whose ended jobs are to be removed,
// because others wait there: their time has ended, and this worker reads something of them, or
// nobody does.
//
// A bucket that some reader of this worker is reading is left alone.
func (c *closer) pastOf(v view) []int64 {
	fl, past := c.part.queues.fleet.Load(), map[int64]bool{}
	for b, had := range v.near { // what nobody reads
		if c.isPast(v, b) && !slices.ContainsFunc(slices.Collect(maps.Keys(had)), func(q string) bool { return !fl.isNobodys(q) }) {
			past[b] = true
		}
	}
	c.readers.mu.Lock()
	for at := range c.readers.near {
		if c.isPast(v, at.bucket) {
			past[at.bucket] = true
		}
	}
	for at, r := range c.readers.near {
		if r.busy {
			delete(past, at.bucket)
		}
	}
	c.readers.mu.Unlock()
	return sorted(past)
}

// endedOf finds out up to where each queue of a bucket has ended; all is false if one has not.
//
// Each queue has its own position, and they are not compared: messages of the queues of a
// bucket are mixed in the stream, and one queue may have ended far behind a job that waits
// in another.
func (c *closer) endedOf(ctx context.Context, b int64, had map[string]uint64) (upTo map[string]uint64, all bool, err error) {
	upTo, fl := map[string]uint64{}, c.part.queues.fleet.Load()
	for queue := range had {
		var last uint64
		if fl.isNobodys(queue) {
			last, err = c.endedNobodys(ctx, spot{b, queue})
		} else {
			last, err = c.emptied(ctx, spot{b, queue}.consumer())
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
func (c *closer) closeNear(ctx context.Context, b int64, had map[string]uint64) error {
	upTo, all, err := c.endedOf(ctx, b, had)
	if err != nil {
		return err
	}
	if all {
		if closed, err := c.markAndForget(ctx, b, had, upTo); !closed || err != nil {
			return err
		}
	} else if err := c.purgeEnded(ctx, b, upTo); err != nil {
		return err
	}
	return c.leave(ctx, b, func(queue string) bool { return all || had[queue] == 0 })
}

// stillEnded looks once more at a bucket in which all has ended that it had. A job that is set
// aside is in its new queue before it is acknowledged in the one where it was. So if that one was
// found to have ended, the other one shows now.
func (c *closer) stillEnded(ctx context.Context, b int64, had, upTo map[string]uint64) (bool, error) {
	now, err := c.contents(ctx, "q."+itoa(b)+".*")
	if err != nil {
		return false, err
	}
	for queue, n := range now[b] {
		if upTo[queue] == 0 || n > had[queue] {
			return false, nil
		}
		if c.part.queues.fleet.Load().isNobodys(queue) {
			continue
		}
		if last, err := c.emptied(ctx, spot{b, queue}.consumer()); err != nil || last == 0 {
			return false, err
		}
	}
	return true, nil
}

// markAndForget is what closes a bucket. False without an error: it is not closed yet.
//
// A bucket in which nothing is needs that, too, if it has statuses: jobs that leave a far
// bucket never come to the near one, and their statuses stay until its time has ended. One that
// has none was never used, or is closed already, and gets no mark.
func (c *closer) markAndForget(ctx context.Context, b int64, had, upTo map[string]uint64) (bool, error) {
	if len(had) == 0 {
		info, err := c.Info(ctx, c.subject("c."+itoa(b)+".>"))
		if err != nil || len(info.Subjects) == 0 {
			return err == nil, err
		}
	}
	if still, err := c.stillEnded(ctx, b, had, upTo); err != nil || !still {
		return false, err
	}
	closing := stream.Write{Subject: c.closingSubject(b), Rollup: true}
	ok, err := c.markClosed(ctx, c.nearMark(b), func(fl *watermark) { fl.near = max(fl.near, b) }, closing)
	if err != nil || !ok {
		return false, err
	}
	if err := c.purgeEnded(ctx, b, upTo); err != nil {
		return false, err
	}
	return c.forget(ctx, b)
}

// purgeEnded removes jobs that have ended: of each queue up to where its consumer says so.
//
// Queue by queue, since one purge for the whole bucket would go up to one sequence for all.
// Between two of them the stream may go back. Then the rest is not purged: ErrWentBack ends
// the round.
func (c *closer) purgeEnded(ctx context.Context, b int64, upTo map[string]uint64) error {
	for queue, last := range upTo {
		if err := c.Purge(ctx, c.closing, c.queueSubject(b, queue), last); err != nil {
			return err
		}
	}
	return nil
}

// leave ends the reading of some queues of a bucket, and their consumers. Those of others lapse,
// if their workers do not delete them.
func (c *closer) leave(ctx context.Context, b int64, of func(queue string) bool) error {
	var done []spot
	c.readers.mu.Lock()
	for at, r := range c.readers.near {
		if at.bucket == b && of(at.queue) {
			r.cancel()
			delete(c.readers.near, at)
			done = append(done, at)
		}
	}
	c.readers.mu.Unlock()
	for _, at := range done {
		if err := c.deleteConsumer(ctx, at.consumer()); err != nil {
			return err
		}
	}
	return nil
}

// forget removes the statuses of a marked bucket, if that is empty. So must be its far
// bucket: a cascade that was cut off between its copy and the acknowledgment has left a job
// in there, too, that may have ended since.
//
// It may be called any number of times, by any worker, until the message p is gone: that is
// removed last. The note is written before the statuses go, so a job that comes back
// without its status is known to be one that had been removed, from either bucket. The far
// bucket needs no note of its own, which it would not get if it is never marked, since all
// of its jobs were canceled.
// A job that comes to the far bucket after it was read is not in the note.
func (c *closer) forget(ctx context.Context, b int64) (bool, error) {
	backs := c.Backs()
	far, err := c.Info(ctx, c.farSubject(c.farOf(b)))
	if err != nil || len(far.Subjects) > 0 {
		return false, err
	}
	near, err := c.Info(ctx, c.queueSubject(b, "*"))
	if err != nil || len(near.Subjects) > 0 {
		return false, err
	}
	if is, err := c.isBackedUp(ctx); is || err != nil {
		return false, err // it has read the jobs, maybe, and not the statuses
	}
	if err := c.noteEmpty(ctx, b, far.Last); err != nil {
		return false, err
	}
	if err := c.Purge(ctx, backs, c.subject("c."+itoa(b)+".>"), far.Last); err != nil {
		return false, err
	}
	return true, c.PurgeAll(ctx, c.closingSubject(b))
}

// resume ends what closings of workers that died have left. It does not ask who has begun
// them: one that is under way in another worker is only done twice.
func (c *closer) resume(ctx context.Context) error {
	closing, err := c.bucketsOf(ctx, "p")
	if err != nil {
		return err
	}
	for b := range closing {
		if _, err := c.forget(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// removeEnded removes jobs that have ended from buckets that are still open, but for the
// last one, by which the bucket is known to be there when it is to be closed.
//
// It is for a store that is seven tenths full. An error of one consumer is passed over: to
// make room elsewhere is worth more than to know why.
func (c *closer) removeEnded(ctx context.Context, near map[int64]map[string]uint64) error {
	c.readers.mu.Lock()
	read := slices.Collect(maps.Keys(c.readers.near))
	c.readers.mu.Unlock()
	for _, at := range read {
		if near[at.bucket][at.queue] == 0 {
			continue
		}
		backs := c.Backs()
		last, _, err := c.ended(ctx, at.consumer())
		if err != nil || last <= 1 {
			continue
		}
		if err := c.Purge(ctx, backs, c.queueSubject(at.bucket, at.queue), last-1); err != nil {
			return err
		}
	}
	return nil
}

// A job that no worker can run is in a queue that has no consumer, and costs nothing while it
// waits. Its bucket is not closed. A search now and then finds those that were canceled meanwhile.

// endedNobodys returns up to where the jobs of a kind have ended that no worker can run, 0
// if one of them waits. It looks once in a while.
//
// It reads the jobs of the queue up to the first that has not ended, with their statuses.
// So a job that waits at the head of a long queue makes it one page, every sweepEvery.
func (c *closer) endedNobodys(ctx context.Context, at spot) (last uint64, err error) {
	if time.Since(c.swept[at]) < sweepEvery {
		return 0, nil
	}
	maps.DeleteFunc(c.swept, func(_ spot, when time.Time) bool { return time.Since(when) > sweepEvery })
	c.swept[at] = time.Now()
	for v, err := range c.versions(ctx, c.queueSubject(at.bucket, at.queue)) {
		if err != nil || !v.s.fate.final() {
			return 0, err
		}
		if err := c.tidy(ctx, &v.r, v.at); err != nil {
			return 0, err
		}
		last = v.seq
	}
	return last, nil
}

const sweepEvery = 5 * time.Minute
