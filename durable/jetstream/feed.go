package jetstream

import (
	"context"
	"math/rand/v2"
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
	busyAtOnce  = 16 // overdue buckets of a bunch that are read at one time

	// viewShare is how much of the time it may take to see what all buckets have: one in so
	// many. Those that are due now are read in any case.
	viewShare = 20
)

// feed is one Feed of one partition. It looks what buckets there are, and has a goroutine
// for each that is due: a near one is read, a far one is moved to its near ones.
//
// Each bucket has a consumer for each bunch of kinds (bunch.go) that all workers of it
// share, so that each job goes to one of them. It is disposable: if it is lost, with the
// server that had it, it is made anew and hands out all that is in the bucket, and the
// claims tell what has ended.
type feed struct {
	*part
	w    *worker
	give func([]*durable.Held)

	viewed    time.Time // when a look has shown all buckets
	viewTook  time.Duration
	regrouped time.Time
	said      life // as of then

	mu      sync.Mutex
	bunches []*bunch // of all workers
	near    map[spot]*reader
	far     map[int64]bool     // being moved
	swept   map[spot]time.Time // when endedNobodys has looked; the bunch is a token
}

// spot is what one reader reads: a bunch in a near bucket.
type spot struct {
	bucket int64
	bunch  string // its name
}

type reader struct {
	cancel context.CancelFunc
	busy   bool // it has had something at the last look, or was not looked at
}

func (w *worker) Feed(ctx context.Context, give func([]*durable.Held)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.e.parts[0].closed, cancel)()
	defer w.e.listen(ctx, w)()
	return w.each(func(p *part) error {
		f := &feed{part: p, w: w, give: give, near: map[spot]*reader{}, far: map[int64]bool{}, swept: map[spot]time.Time{}}
		ctx, stop := p.denials.during(ctx, p.working())
		defer stop()
		err := f.run(ctx)
		if denial := denied(ctx, nil); denial != nil {
			err = denial
		}
		if p.closed.Err() != nil {
			err = p.over()
		}
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
		if f.w.c.Looked != nil {
			f.w.c.Looked()
		}
		if v.all {
			select {
			case views <- v:
			default: // the closing is not done with an earlier one
			}
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

// view is what a look has found: how many messages each bucket has, and a near one of each
// token.
type view struct {
	near map[int64]map[string]uint64
	far  map[int64]uint64
	now  time.Time
	all  bool // else near is empty
}

// lookAround finds out what is due, and has it read or moved. It does no more than that:
// while a look takes long, what comes due is late.
func (f *feed) lookAround(ctx context.Context, readers *sync.WaitGroup) (v view, err error) {
	try, cancel := context.WithTimeout(ctx, 4*answerTimeout)
	defer cancel()
	if err := f.sync(try); err != nil {
		return v, err
	}
	if err := f.regroup(try); err != nil {
		return v, err
	}
	if v.far, err = f.buckets(try, "h"); err != nil {
		return v, err
	}
	if v.all = time.Since(f.viewed) >= viewShare*f.viewTook; v.all {
		began := time.Now()
		if v.near, err = f.contents(try, "q.>"); err != nil {
			return v, err
		}
		f.viewed, f.viewTook = time.Now(), time.Since(began)
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
func (p *part) buckets(ctx context.Context, level string) (map[int64]uint64, error) {
	prefix := p.subject(level) + "."
	info, err := p.info(ctx, prefix+"*")
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

// contents returns what the near buckets have that a filter selects.
func (p *part) contents(ctx context.Context, filters ...string) (map[int64]map[string]uint64, error) {
	found := map[int64]map[string]uint64{}
	for _, filter := range filters {
		info, err := p.info(ctx, p.subject(filter))
		if err != nil {
			return nil, err
		}
		for s, n := range info.subjects {
			b, token, ok := p.parseNear(s)
			if !ok {
				continue
			}
			if found[b] == nil {
				found[b] = map[string]uint64{}
			}
			found[b][token] = n
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
func (f *feed) startNear(ctx context.Context, near map[int64]map[string]uint64, now time.Time, readers *sync.WaitGroup) {
	current, ahead, first := f.nearOf(now), f.nearOf(now.Add(f.w.c.Ahead+lookEvery)), f.openFor(now)
	overdue := slices.DeleteFunc(sorted(near), func(b int64) bool { return b > max(ahead, first) })
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.bunches {
		if !n.mine {
			continue
		}
		for b := current; n != old && b <= ahead; b++ {
			f.start(ctx, n, b, readers)
		}
		if n != old {
			f.start(ctx, n, first, readers)
		}
		busy := f.busyOf(n)
		for _, b := range overdue {
			if busy >= busyAtOnce {
				break
			}
			if n.in(near[b]) && f.start(ctx, n, b, readers) {
				busy++
			}
		}
	}
}

// busyOf is how many buckets of a bunch have something to hand out. f.mu is held.
func (f *feed) busyOf(n *bunch) (busy int) {
	for at, r := range f.near {
		if at.bunch == n.name && r.busy {
			busy++
		}
	}
	return busy
}

// start has a bunch of a bucket read; false if it is already. f.mu is held.
func (f *feed) start(ctx context.Context, n *bunch, b int64, readers *sync.WaitGroup) bool {
	at := spot{b, n.name}
	if f.near[at] != nil {
		return false
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &reader{cancel: cancel, busy: true}
	f.near[at] = r
	readers.Go(func() {
		defer cancel()
		f.read(ctx, n, b, r)
	})
	return true
}

// consumer returns the consumer of a bucket, and makes it if it is not there.
func (f *feed) consumer(ctx context.Context, name string, filters ...string) (natsjs.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c := natsjs.ConsumerConfig{
		Name: name, FilterSubjects: filters, DeliverPolicy: natsjs.DeliverAllPolicy,
		AckPolicy: natsjs.AckExplicitPolicy, AckWait: f.w.c.Lease, MaxAckPending: -1, MaxDeliver: -1,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: 10 * time.Minute,
	}
	if len(filters) == 1 { // as version 2 says it
		c.FilterSubject, c.FilterSubjects = filters[0], nil
	}
	return f.js.CreateOrUpdateConsumer(ctx, f.stream, c)
}

// nearConsumer is the name of a bunch's consumer in a bucket. That of what has no token has
// none of its own, as in version 2.
func nearConsumer(b int64, n *bunch) string { return strings.TrimSuffix("q"+itoa(b)+"_"+n.name, "_") }
func farConsumer(h int64) string            { return "h" + itoa(h) }

func (p *part) filtersOf(n *bunch, b int64) []string {
	if n == old {
		return []string{p.nearToken(b, "")}
	}
	filters := make([]string, len(n.tokens))
	for i, t := range n.tokens {
		filters[i] = p.nearToken(b, t)
	}
	return filters
}

// read hands out what is in a bucket of a bunch until the bucket is closed. A reader of a
// bucket that has nothing more waits for what is handed out again.
func (f *feed) read(ctx context.Context, n *bunch, b int64, r *reader) {
	f.w.wait.join(1)
	defer f.w.wait.join(-1)
	name := nearConsumer(b, n)
	for ctx.Err() == nil {
		_, err := f.consumer(ctx, name, f.filtersOf(n, b)...)
		for err == nil && f.awaitOpen(ctx, n) {
			var got int
			got, err = f.fetch(ctx, name, !f.now().After(f.closeAt(b)))
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
		// Not as long each time: of workers that ask in step one would get what is handed back
		// again and again, though it leaves that to the others.
		expires := fetchWait*3/4 + rand.N(fetchWait/2)
		if got, err := f.fetchOf(ctx, f.w.wait, consumer, pullRequest{MaxBytes: n, Expires: expires}); got > 0 || err != nil {
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
// lease, because the clock may be set forward meanwhile. So does what came of a kind that
// the worker cannot run, or has no room for, with others of its bunch.
func (f *feed) putOff(h *durable.Held) bool {
	kind := h.Record.Job.Kind
	open, _ := f.w.c.Kinds.Open()
	if !f.w.c.Kinds.Has(kind) || !has(open, kind) && f.w.setApart(kind) {
		h.Handle.(*handle).nak(f.w.c.Lease/8 + rand.N(f.w.c.Lease/4)) // or it comes here in step, too
		return true
	}
	bucket := time.Duration(f.geometry.near) * time.Microsecond
	early := h.Record.Due.Sub(f.now()) - f.w.c.Ahead - lookEvery - bucket
	if early <= 0 {
		return false
	}
	h.Handle.(*handle).nak(min(early, f.w.c.Lease))
	return true
}
