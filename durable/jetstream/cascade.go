package jetstream

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable"
)

// startFar begins to move the far buckets whose time has come, the oldest first and one
// at a time. Workers share its consumer as they share those of near buckets.
func (f *feed) startFar(ctx context.Context, far map[int64]uint64, now time.Time, readers *sync.WaitGroup) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range sorted(far) {
		if len(f.far) > 0 || now.Before(f.cascadeAt(h)) {
			return
		}
		f.far[h] = true
		readers.Go(func() {
			f.cascade(ctx, h)
			f.mu.Lock()
			delete(f.far, h)
			f.mu.Unlock()
		})
	}
}

// cascade moves a far bucket to its near ones until it is empty. Jobs are acknowledged
// when they are stored in the near bucket, so that a crash leaves copies but no gap;
// copies have one claim between them.
func (f *feed) cascade(ctx context.Context, h int64) {
	cons, err := f.consumer(ctx, farConsumer(h), f.farSubject(h))
	for n := 1; err == nil && ctx.Err() == nil; n++ {
		var got int
		if got, err = f.movePage(ctx, h); err != nil {
			break
		}
		if got > 0 {
			if n%purgeEvery == 0 {
				err = f.purgeMoved(ctx, h, cons)
			}
			continue
		}
		done, closeErr := f.closeFar(ctx, h, cons)
		if done || closeErr != nil {
			return // or another look begins anew
		}
		f.wait(ctx, lookEvery)
	}
}

// movePage moves what one request brings, and returns how many that is.
func (f *feed) movePage(ctx context.Context, h int64) (int, error) {
	if !f.w.move.take(ctx, share) {
		return 0, ctx.Err()
	}
	defer f.w.move.give(share)
	var page []*nats.Msg
	got, err := f.pull(farConsumer(h), pullRequest{Batch: pageSize, MaxBytes: share, NoWait: true}, func(msgs []*nats.Msg) {
		page = append(page, msgs...)
	})
	if err != nil || got == 0 {
		return got, err
	}
	return got, f.moveDown(ctx, page)
}

// purgeEvery is after how many pages what was moved is removed, so that a cascade needs
// room for some ten thousand jobs rather than for all a second time.
const purgeEvery = 20

func (f *feed) purgeMoved(ctx context.Context, h int64, cons natsjs.Consumer) error {
	floor, _, err := f.emptied(ctx, cons)
	if err != nil || floor == 0 {
		return err
	}
	return f.purge(ctx, f.farSubject(h), floor)
}

// moveDown stores jobs in their near buckets, on the condition that these are open. What
// has ended is left behind.
func (f *feed) moveDown(ctx context.Context, msgs []*nats.Msg) error {
	held := make([]*durable.Held, 0, len(msgs))
	for _, m := range msgs {
		h, err := f.heldOf(m)
		if err != nil {
			continue
		}
		h.Handle.(*handle).again = true // it may have ended long ago
		held = append(held, h)
	}
	ended := f.endedAmong(ctx, held)
	var groups []group
	var moving []*handle
	for i, h := range held {
		hd := h.Handle.(*handle)
		if ended[i] {
			if f.tidy(ctx, &h.Record, hd.at) == nil {
				hd.ack()
			}
			continue
		}
		groups = append(groups, group{{
			subject: f.nearSubject(hd.at.bucket), data: encode(&h.Record), last: seq(0), guard: f.nearMark(hd.at.bucket),
		}})
		moving = append(moving, hd)
	}
	for i, res := range f.commit(ctx, groups) {
		switch {
		case res.err == nil:
			moving[i].ack()
		case errors.Is(res.err, errConflict):
			if err := f.moveLate(ctx, moving[i], groups[i]); err != nil {
				return err
			}
		default:
			return res.err // what is not acknowledged comes again
		}
	}
	return nil
}

// moveLate takes care of a job that comes to its far bucket after its near bucket was
// closed: only the first try of an insert can be so late, on a stream of several
// replicas. It is stored as a new version that is due now.
func (f *feed) moveLate(ctx context.Context, hd *handle, g group) error {
	r, err := decode(g[0].data)
	if err != nil {
		return err
	}
	r.Due, r.Version = f.now(), r.Version+1
	forward := f.forwardWrite(&r)
	forward.last = seq(0)
	err = f.write(ctx, forward, f.recordWrite(&r, f.now(), true))
	if err == nil || errors.Is(err, errConflict) { // or another one was faster
		hd.ack()
		return nil
	}
	return err
}

// closeFar ends a far bucket whose jobs have all been moved, in the order in which near
// ones are closed, and for the same reasons.
func (f *feed) closeFar(ctx context.Context, h int64, cons natsjs.Consumer) (bool, error) {
	floor, ok, err := f.emptied(ctx, cons)
	if err != nil || !ok {
		return false, err
	}
	if floor == 0 {
		return true, nil // another worker was faster
	}
	if err := f.write(ctx, f.mark(f.farMark(h))); err != nil {
		return false, err
	}
	if err := f.purge(ctx, f.farSubject(h), floor); err != nil {
		return false, err
	}
	info, err := f.info(ctx, f.farSubject(h))
	if err != nil || len(info.subjects) > 0 {
		return false, err
	}
	return true, f.js.DeleteConsumer(ctx, f.stream, farConsumer(h))
}
