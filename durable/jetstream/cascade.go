package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

// mover moves the far buckets of a partition to their near ones. A job is acknowledged in
// its far bucket only when it is stored in the near one, and the mark of a far bucket is
// written when it has nothing left.
//
// It has no lock: one goroutine moves at a time, and moving says whether there is one. The
// stream and the claims decide what a second worker may do that moves the same bucket.
type mover struct {
	*consumers
	running *sync.WaitGroup // of the Fetch
	moving  atomic.Bool     // a goroutine moves a bucket
}

// startFar begins to move the oldest far bucket if its time has come, and none is being
// moved. Workers share its consumer as they share those of near buckets. The next one
// begins with a later poll: moveBytes is the size of one request, so two cascades would
// only wait for each other.
func (mv *mover) startFar(ctx context.Context, far map[int64]uint64, now time.Time) {
	if len(far) == 0 {
		return
	}
	oldest := sorted(far)[0]
	if now.Before(mv.cascadeAt(oldest)) || !mv.moving.CompareAndSwap(false, true) {
		return
	}
	mv.running.Go(func() {
		defer mv.moving.Store(false)
		mv.cascade(ctx, oldest)
	})
}

// cascade moves a far bucket to its near ones until it is empty. Jobs are acknowledged when
// they are stored in the near bucket, so that a crash leaves copies but no gap; copies have
// one claim between them.
//
// A page costs one request to the consumer, one for the statuses, and one commit. After an
// error it ends, and the next poll begins anew: what was not acknowledged comes again after
// a lease. While another worker has jobs of the bucket under way it waits here, so that one
// of them closes it.
func (mv *mover) cascade(ctx context.Context, h int64) {
	err := mv.consumer(ctx, farConsumer(h), mv.farSubject(h))
	mv.RefusedConsumer(err)
	for n := 1; err == nil && ctx.Err() == nil; n++ {
		var got int
		if got, err = mv.movePage(ctx, h); err != nil {
			break
		}
		if got > 0 {
			if n%purgeEvery == 0 || mv.part.admission.pressed() {
				err = mv.purgeMoved(ctx, h)
			}
			continue
		}
		if done, err := mv.closeFar(ctx, h); done || err != nil {
			return // or another poll begins anew
		}
		mv.Wait(ctx, pollEvery)
	}
}

// movePage moves what one request brings, and returns how many that is. It waits for the
// whole page: messages come in small parts, and each part would be a commit of its own. Its
// turn is the number of the bucket, so that of several partitions the oldest goes first.
func (mv *mover) movePage(ctx context.Context, h int64) (int, error) {
	if !mv.w.move.take(ctx, readSize, h) {
		return 0, ctx.Err()
	}
	defer mv.w.move.give(readSize)
	var page []*nats.Msg
	got, err := mv.Pull(farConsumer(h), stream.PullRequest{Batch: stream.PageSize, MaxBytes: readSize, NoWait: true}, func(msgs []*nats.Msg) {
		page = append(page, msgs...)
	})
	if err != nil || got == 0 {
		return got, err
	}
	return got, mv.moveDown(ctx, page)
}

// purgeEvery is after how many pages what was moved is removed, so that a cascade needs
// room for some ten thousand jobs rather than for all a second time.
const purgeEvery = 20

// purgeMoved removes jobs up to the ack position. There may be jobs behind it that were
// moved, too: those go with the next one, or with the bucket.
func (mv *mover) purgeMoved(ctx context.Context, h int64) error {
	backs := mv.Backs()
	upTo, _, err := mv.ended(ctx, farConsumer(h))
	if err != nil || upTo == 0 {
		return err
	}
	return mv.Purge(ctx, backs, mv.farSubject(h), upTo)
}

// moveDown stores jobs in their near buckets, on the condition that these are open. What
// has ended is left behind.
//
// The condition is on the mark of the bucket, and not on the subject, under which many jobs
// are. So nothing keeps a copy out that another cascade has stored: the claim does. Jobs of
// a page share a commit; if one of them meets a mark, Commit finds out which, in halves.
// Without an answer none is acknowledged, and all come again.
func (mv *mover) moveDown(ctx context.Context, msgs []*nats.Msg) error {
	held := make([]*driver.Delivery, 0, len(msgs))
	for _, m := range msgs {
		h, err := mv.deliveryOf(m)
		if err != nil {
			continue
		}
		h.Claim.(*handle).again = true // it may have ended long ago
		held = append(held, h)
	}
	statuses := mv.statusesAmong(ctx, held)
	var groups []stream.Group
	var moving []*driver.Delivery
	for i, h := range held {
		hd := h.Claim.(*handle)
		if statuses[i].fate.final() {
			if mv.tidy(ctx, &h.Record, hd.at) == nil {
				hd.ack()
			}
			continue
		}
		groups = append(groups, stream.Group{{
			Subject: mv.part.queues.nearSubject(hd.at.bucket, h.Record.Kind), Data: hd.data, Last: stream.Seq(0), Guard: mv.nearMark(hd.at.bucket),
		}})
		moving = append(moving, h)
	}
	for i, res := range mv.Commit(ctx, groups) {
		hd := moving[i].Claim.(*handle)
		switch {
		case res.Err == nil:
			hd.ack()
		case errors.Is(res.Err, stream.ErrConflict):
			if err := mv.moveLate(ctx, hd, &moving[i].Record); err != nil {
				return err
			}
		default:
			return res.Err // what is not acknowledged comes again
		}
	}
	return nil
}

// moveLate takes care of a job whose near bucket is closed when it is moved there: that was
// done by a clock that was ahead, or the job has come to its far bucket late, as the first
// try of an insert can on a stream of several replicas. It is stored as a new version in
// the first open bucket, and is acknowledged then. It is acknowledged without that only if
// it has ended, or a newer version is there. A job that a worker has claimed comes again.
//
// First it writes a status that says that the job waits, unless there is a status, and then it
// reads whether the message is there still: if it is, the job has not ended, since the
// statuses of ended jobs are removed after their messages. And as long as that status is there
// the job has not ended since. A cascade that was frozen until all was forgotten would bring
// back to life a job that has run, or was canceled.
//
// A status that another writer has replaced is read again. After maxTries it gives up
// without an error: the job is not acknowledged, and comes again.
func (mv *mover) moveLate(ctx context.Context, hd *handle, r *driver.Record) error {
	for range maxTries {
		if err := mv.readWatermark(ctx); err != nil {
			return err
		}
		forward, replaced, err := mv.replaced(ctx, hd.at)
		if err != nil {
			return err
		}
		s, err := mv.status(ctx, hd.at)
		if err != nil {
			return err
		}
		if replaced || s.fate.final() {
			err := mv.tidy(ctx, r, hd.at)
			if err == nil {
				hd.ack()
			}
			return err
		}
		if s.fate == claimed {
			if left, err := mv.w.leaseOf(ctx, mv.leases, s.worker); err != nil || left > 0 {
				return err
			}
			r.Attempt = s.attempt
		}
		if s.fate == none {
			s = status{fate: freed, token: rand.Text(), attempt: r.Attempt}
			s.seq, err = mv.WriteSeq(ctx, stream.Write{Subject: mv.statusSubject(hd.at), Data: s.encode(), Last: stream.Seq(0), TTL: markTTL})
			if errors.Is(err, stream.ErrConflict) || errors.Is(err, stream.ErrBusy) {
				continue
			}
			if err != nil {
				return err
			}
		}
		hd.status = s
		if there, err := mv.reopened(ctx, hd, mv.farMark(mv.farOf(hd.at.bucket))); err != nil {
			return err
		} else if !there { // another one was done with it: it has ended, or is on its way
			if s.fate == claimed {
				return nil
			}
			err := mv.Purge(ctx, hd.backs, mv.statusSubject(hd.at), s.seq)
			if err == nil {
				hd.ack() // a late copy is there still
			}
			return err
		}
		g := mv.part.records.moveGroup(r, hd.data, hd.at, s, rand.Text(), r.Due, mv.Now())
		g[0].TTL = markTTL // nobody closes this bucket again
		g[1].Last, g[1].Guard = stream.Seq(forward), ""
		err = mv.Write(ctx, g...)
		if err == nil {
			hd.ack()
			return nil
		}
		if !errors.Is(err, stream.ErrConflict) && !errors.Is(err, stream.ErrBusy) {
			return err
		}
	}
	return nil
}

// replaced reports whether a newer version of a job is there, or was and has ended, and
// returns the sequence of the forward, or 0. A forward leads to each version
// but the first. The end of the job leaves a tombstone in its place, which goes after a
// minute.
func (mv *mover) replaced(ctx context.Context, at location) (uint64, bool, error) {
	m, err := mv.Last(ctx, mv.forward(at.id))
	if err != nil || len(m.Data) == 0 {
		return m.Seq, m.Seq > 0 || at.version > 0, err
	}
	newest, err := parseForward(at.id, m.Data)
	return m.Seq, newest.version > at.version, err
}

// closeFar ends a far bucket whose jobs have all been moved, in the order in which near
// ones are closed, and for the same reasons. False without an error: a job is still under
// way, or another worker has written the watermark meanwhile.
//
// If the stream went back since the ack position was read, it is not purged up to there:
// other jobs may have those sequences by now.
//
// It costs five requests on one replica, one of them a commit. While the last jobs are under
// way it is tried every pollEvery, and such a try costs one.
func (mv *mover) closeFar(ctx context.Context, h int64) (bool, error) {
	backs := mv.Backs()
	upTo, ok, err := mv.ended(ctx, farConsumer(h))
	if err != nil || !ok {
		return false, err
	}
	if upTo == 0 {
		return true, nil // another worker was faster
	}
	ok, err = mv.markClosed(ctx, mv.farMark(h), func(fl *watermark) { fl.far = max(fl.far, h) })
	if err != nil || !ok {
		return false, err
	}
	if err := mv.Purge(ctx, backs, mv.farSubject(h), upTo); err != nil {
		return false, err
	}
	info, err := mv.Info(ctx, mv.farSubject(h))
	if err != nil || len(info.Subjects) > 0 {
		return false, err
	}
	return true, mv.deleteConsumer(ctx, farConsumer(h))
}
