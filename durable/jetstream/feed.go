package jetstream

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tickwheel/tickwheel/durable"
)

const (
	lookEvery   = 500 * time.Millisecond
	resumeEvery = 120 // closings: a minute or more
	fetchSize   = 256
	fetchWait   = time.Second
	busyAtOnce  = 16 // overdue buckets that are read at one time
)

// feed is one Feed of one partition. It looks what buckets there are, and has a goroutine
// for each that is due: a near one is read, a far one is moved to its near ones.
//
// Each bucket has a consumer that all workers share, so that each job goes to one of
// them. It is disposable: if it is lost, with the server that had it, it is made anew and
// hands out all that is in the bucket, and the claims tell what has ended.
type feed struct {
	*part
	w    *worker
	give func([]*durable.Held)

	mu   sync.Mutex
	near map[int64]*reader
	far  map[int64]bool // being moved
}

// reader is a near bucket that is read here.
type reader struct {
	cancel context.CancelFunc
	busy   bool // it has had something at the last look, or was not looked at
}

func (w *worker) Feed(ctx context.Context, give func([]*durable.Held)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.e.parts[0].closed, cancel)()
	return w.each(func(p *part) error {
		f := &feed{part: p, w: w, give: give, near: map[int64]*reader{}, far: map[int64]bool{}}
		err := f.run(ctx)
		if err != nil {
			cancel() // the others are of no use alone: the Queue begins anew
		}
		return err
	})
}

func (f *feed) run(ctx context.Context) error {
	var readers sync.WaitGroup
	defer readers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	views, failed := make(chan view), make(chan error, 1)
	readers.Go(func() { failed <- f.closeBuckets(ctx, views) })
	for {
		v, err := f.lookAround(ctx, &readers)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case views <- v:
		default: // the closing is not done with an earlier one
		}
		next := time.NewTimer(f.untilLook(f.now()))
		select {
		case <-ctx.Done():
		case err = <-failed:
		case <-next.C:
		}
		next.Stop()
		if err != nil {
			return err
		}
	}
}

// view is what a look has found: how many messages each bucket has.
type view struct {
	near, far map[int64]uint64
	now       time.Time
}

// lookAround finds out what is due, and has it read or moved. It does no more than that:
// while a look takes long, what comes due is late.
func (f *feed) lookAround(ctx context.Context, readers *sync.WaitGroup) (v view, err error) {
	try, cancel := context.WithTimeout(ctx, 4*answerTimeout)
	defer cancel()
	if err := f.sync(try); err != nil {
		return v, err
	}
	if v.far, err = f.buckets(try, "h"); err != nil {
		return v, err
	}
	if v.near, err = f.buckets(try, "q"); err != nil {
		return v, err
	}
	v.now = f.now()
	f.startFar(ctx, v.far, v.now, readers)
	f.startNear(ctx, v.near, v.now, readers)
	return v, nil
}

// untilLook returns when to look again: after lookEvery, or when the next far bucket
// begins to be moved, whose lead may be short.
func (f *feed) untilLook(now time.Time) time.Duration {
	return min(lookEvery, f.nextCascade(now).Sub(now))
}

// buckets returns the numbers of the buckets of a level that have something.
func (f *feed) buckets(ctx context.Context, level string) (map[int64]uint64, error) {
	prefix := f.subject(level) + "."
	info, err := f.info(ctx, prefix+"*")
	if err != nil {
		return nil, err
	}
	found := make(map[int64]uint64, len(info.subjects))
	for s, n := range info.subjects {
		number, err := strconv.ParseInt(strings.TrimPrefix(s, prefix), 10, 64)
		if err == nil {
			found[number] = n
		}
	}
	return found, nil
}

func sorted[V any](m map[int64]V) []int64 {
	keys := make([]int64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// startNear has those buckets read whose time comes before the next look, and those that
// are current, which may get something at any moment. Of those that are overdue only the
// oldest are begun: the others wait until these have nothing more to hand out. Of those
// whose time has not come any up to the first one above the floor may have what is due
// now, if the clock was set back.
func (f *feed) startNear(ctx context.Context, near map[int64]uint64, now time.Time, readers *sync.WaitGroup) {
	ahead, first := f.nearOf(now.Add(f.w.c.Ahead+lookEvery)), f.openFor(now)
	f.mu.Lock()
	defer f.mu.Unlock()
	busy := 0
	for _, r := range f.near {
		if r.busy {
			busy++
		}
	}
	current := f.nearOf(now)
	for b := current; b <= ahead; b++ {
		near[b] += 0
	}
	near[first] += 0
	for _, b := range sorted(near) {
		if b > max(ahead, first) {
			break
		}
		waits := b < current || b > ahead && b != first
		if f.near[b] != nil || waits && busy >= busyAtOnce {
			continue
		}
		busy++
		readCtx, cancel := context.WithCancel(ctx)
		r := &reader{cancel: cancel, busy: true}
		f.near[b] = r
		readers.Go(func() {
			defer cancel()
			f.read(readCtx, b, r)
		})
	}
}

// consumer returns the consumer of a bucket, and makes it if it is not there.
func (f *feed) consumer(ctx context.Context, name, filter string) (natsjs.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return f.js.CreateOrUpdateConsumer(ctx, f.stream, natsjs.ConsumerConfig{
		Name: name, FilterSubject: filter, DeliverPolicy: natsjs.DeliverAllPolicy,
		AckPolicy: natsjs.AckExplicitPolicy, AckWait: f.w.c.Lease, MaxAckPending: -1, MaxDeliver: -1,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * time.Minute,
	})
}

func nearConsumer(b int64) string { return "q" + itoa(b) }
func farConsumer(h int64) string  { return "h" + itoa(h) }

// read hands out what is in a bucket until the bucket is closed. A reader of a bucket
// that has nothing more waits for what is handed out again.
func (f *feed) read(ctx context.Context, b int64, r *reader) {
	f.w.wait.join(1)
	defer f.w.wait.join(-1)
	for ctx.Err() == nil {
		_, err := f.consumer(ctx, nearConsumer(b), f.nearSubject(b))
		for err == nil && ctx.Err() == nil {
			var got int
			got, err = f.fetch(ctx, nearConsumer(b), !f.now().After(f.closeAt(b)))
			f.mu.Lock()
			r.busy = got > 0
			f.mu.Unlock()
			if got == 0 && f.now().After(f.closeAt(b)) {
				f.wait(ctx, fetchWait) // what was not acknowledged comes again, some time
			}
		}
		f.wait(ctx, 200*time.Millisecond) // the consumer was lost, or there is no leader
	}
}

// fetch hands out what comes as it comes, and waits a while for it if it is told to. One
// that has waited for nothing then looks whether there is something that did not fit.
func (f *feed) fetch(ctx context.Context, consumer string, wait bool) (int, error) {
	if wait {
		n := f.w.wait.part(waitShare)
		if got, err := f.fetchOf(ctx, f.w.wait, consumer, pullRequest{MaxBytes: n, Expires: fetchWait}); got > 0 || err != nil {
			return got, err
		}
	}
	return f.fetchOf(ctx, f.w.read, consumer, pullRequest{MaxBytes: share, NoWait: true})
}

func (f *feed) fetchOf(ctx context.Context, b *budget, consumer string, r pullRequest) (int, error) {
	if !b.take(ctx, r.MaxBytes) {
		return 0, ctx.Err()
	}
	defer b.give(r.MaxBytes)
	r.Batch = fetchSize
	got, err := f.pull(consumer, r, func(msgs []*nats.Msg) {
		held := make([]*durable.Held, 0, len(msgs))
		for _, m := range msgs {
			h, err := f.heldOf(m)
			if err == nil && !f.putOff(h) { // with an error not ours, or damaged: it stays where it is
				held = append(held, h)
			}
		}
		f.give(held)
	})
	if err == nil {
		err = ctx.Err()
	}
	return got, err
}

// putOff gives back what is in a bucket that is read long before its time, and is not due
// soon: what is held for nothing would take the room of what is due. It comes again after a
// lease, because the clock may be set forward meanwhile.
func (f *feed) putOff(h *durable.Held) bool {
	bucket := time.Duration(f.geometry.near) * time.Microsecond
	early := h.Record.Due.Sub(f.now()) - f.w.c.Ahead - lookEvery - bucket
	if early <= 0 {
		return false
	}
	h.Handle.(*handle).nak(min(early, f.w.c.Lease))
	return true
}
