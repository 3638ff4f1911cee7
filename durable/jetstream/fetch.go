package jetstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/stream"
)

const (
	fetchSize   = 256
	fetchWait   = time.Second
	roundEvery  = time.Second // of a queue in which there was nothing more
	maxRounds   = 16          // at one time
	maxAttended = 2 * maxApart

	// A queue of which nothing has come gets a request for one job, for as long as its bucket is attended.
	lullWait = 30 * time.Second
	lullSize = 4 << 10 // bytes; a larger job is read with readSize
)

// fetcher is one Fetch of one partition. It finds out which buckets there are. Far ones
// whose time has come it moves to their near ones, and of near ones it reads the queues
// (kinds.go).
//
// Each queue of a bucket has a consumer that workers share, so that each job goes to one of
// them. It is disposable: if it is lost, with the server that had it, it is made anew and
// hands out all that is in the queue, and the claims tell what has ended.
//
// The worker's own queues of the buckets that are current are attended: a goroutine waits
// at each for new jobs. All others, in whatever number, are read in rounds, until they
// have nothing more, some at a time and the oldest bucket first.
//
// The mu of its readers guards near, todo and rounds; the goroutine of run alone uses seen,
// regrouped and said. All goroutines that it starts are in running, and end with ctx: Fetch
// returns after the last one. It claims nothing, and acknowledges only what it has stored
// elsewhere.
type fetcher struct {
	*consumers
	*readers
	taking  *taking
	mover   *mover
	closer  *closer
	give    func([]*driver.Delivery)
	ctx     context.Context // ends with the Fetch
	running sync.WaitGroup

	seen      *seen
	regrouped time.Time
	said      life // as of then

	todo   []spot // what is to be read in rounds, until the next poll
	rounds int    // under way
}

// newFetcher joins the parts of a Fetch. They share the consumers and the readers. Cascades run
// in the fetcher's wait group, too, so that they have ended before Fetch returns.
func newFetcher(p *part, w *worker, give func([]*driver.Delivery)) *fetcher {
	cs, rs := &consumers{p, w}, &readers{near: map[spot]*reader{}}
	f := &fetcher{
		consumers: cs, readers: rs, seen: &seen{consumers: cs}, taking: &taking{w.heart, p.queues, w.kindsBy()}, give: give,
		closer: &closer{consumers: cs, readers: rs, swept: map[spot]time.Time{}},
	}
	f.mover = &mover{consumers: cs, running: &f.running}
	return f
}

// Fetch reads all partitions at once, each with a fetcher of its own, and hands out their
// jobs by one function. If one of them fails, all end, and the Queue calls Fetch again:
// what was handed out stays with the worker. A denial of a request that no single caller
// waits for, such as that of an ack, ends it, too, and so does the end of the engine.
func (w *worker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.e.parts[0].Conn.Ended, cancel)()
	defer w.e.notices.listen(ctx, &listener{w.c.Name, w.c.Notify, w.releases.recall, w.notifyAllCanceled, w.receive})()
	return w.each(func(p *part) error {
		f := newFetcher(p, w, give)
		ctx, stop := p.Denials.During(ctx, p.working())
		defer stop()
		err := stream.Denied(ctx, f.run(ctx))
		if p.Conn.Ended.Err() != nil {
			err = p.ClosedBy()
		}
		if err != nil {
			cancel() // the others are of no use alone: the Queue begins anew
		}
		return err
	})
}

// run polls until ctx ends, or something fails that a later poll would not mend. Closing
// buckets and the reserve have goroutines of their own, since a poll must not wait for
// their commits. The closing takes a view when it is done with the one before; the others
// are dropped.
func (f *fetcher) run(ctx context.Context) error {
	defer f.running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.ctx = ctx
	views, failed := make(chan view), make(chan error, 1)
	f.running.Go(func() { failed <- f.closer.closeBuckets(ctx, views) })
	if !f.part.admission.local {
		f.running.Go(func() {
			for ; ctx.Err() == nil; f.Wait(ctx, pollEvery) {
				f.part.admission.keepReserve(ctx)
			}
		})
	}
	for {
		v, err := f.poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if f.w.c.Polled != nil {
			f.w.c.Polled()
		}
		f.w.reconciler.reconcile(f.part)
		if err := f.Troubled(); err != nil && f.w.c.Trouble != nil {
			f.w.c.Trouble(err) // so that it is in the log
		}
		if v.all {
			select {
			case views <- v:
			default: // the closing is not done with an earlier one
			}
		}
		now := f.Now()
		select {
		case <-ctx.Done():
		case err = <-failed:
		case <-time.After(min(pollEvery, f.nextCascade(now).Sub(now))): // a lead may be short
		}
		if err != nil {
			return err
		}
	}
}

// poll finds out what is due, and begins to read or to move it. It does no more than that:
// while a poll takes long, jobs that come due are late.
//
// Each poll costs five requests at most: two for a landmark (LookBack), the watermark, the
// clock, and the far buckets. The list of all near buckets grows with the jobs that wait; so it is
// read less often, in a twentieth of the time at most. A poll starts the reads and moves that
// follow from it, and does not wait for them.
func (f *fetcher) poll(ctx context.Context) (v view, err error) {
	try, cancel := context.WithTimeout(ctx, 4*stream.AnswerTimeout)
	defer cancel()
	if err := f.seen.ask(try); err != nil {
		return v, err
	}
	if err := f.seen.look(try, &v); err != nil {
		return v, err
	}
	if f.part == f.w.e.parts[0] {
		f.seen.tellQueue(try)
	}
	if err := f.regroup(try); err != nil {
		return v, err
	}
	v.now = f.Now()
	f.mover.startFar(ctx, v.far, v.now)
	f.startNear(&v)
	return v, nil
}

// maxAhead is how many buckets ahead are attended at most: each is a consumer of the server. With a
// longer WithAhead, what is there is read in rounds.
const maxAhead = 60

// startNear attends the own queues of those buckets whose time comes before the next poll,
// and of those that are current, which may get something at any moment. Other
// queues up to then are read in rounds. If the clock was set back, jobs that are due now may
// also be in later buckets, up to the first one above the watermark.
//
// So a job that is stored in the bucket of now is handed out as it comes, without any poll.
// A queue beyond maxAttended is not attended: its jobs come by the rounds, and may be
// late by some polls.
func (f *fetcher) startNear(v *view) {
	current, ahead, first := f.nearOf(v.now), f.nearOf(v.now.Add(f.w.c.Ahead+pollEvery)), f.openFor(v.now)
	own := f.taking.own()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, queue := range own[:min(len(own), maxAttended)] {
		for b := current; b <= min(ahead, current+maxAhead); b++ {
			f.start(spot{b, queue}, f.attend)
		}
		f.start(spot{first, queue}, f.attend)
	}
	if v.all {
		f.planRounds(v, max(ahead, first))
		f.startRounds()
	}
}

// planRounds finds out what is to be read in rounds: first what was not read yet. f.mu is held.
//
// A queue whose round has found nothing more is read again after roundEvery: a job may have
// come late, or come again after a lease. A queue of a bucket that is not to be closed
// yet is read with each view, as its jobs may be due any moment.
func (f *fetcher) planRounds(v *view, last int64) {
	var again []spot
	f.todo = nil
	for _, b := range sorted(v.near) {
		if b > last {
			break
		}
		for queue := range v.near[b] {
			at := spot{b, queue}
			switch r := f.near[at]; {
			case !f.taking.reads(queue):
			case r == nil:
				f.todo = append(f.todo, at)
			case !r.busy && (time.Since(r.ended) >= roundEvery || !v.now.After(f.closeAt(b))):
				again = append(again, at)
			}
		}
	}
	slices.SortStableFunc(again, func(a, b spot) int { return f.near[a].ended.Compare(f.near[b].ended) })
	f.todo = append(f.todo, again...)
}

// startRounds begins as many rounds as there may be. Each round that ends begins the next,
// so that todo needs no goroutine of its own. f.mu is held.
func (f *fetcher) startRounds() {
	for ; f.rounds < maxRounds && len(f.todo) > 0; f.todo = f.todo[1:] {
		if f.start(f.todo[0], f.round) {
			f.rounds++
		}
	}
}

// start makes a goroutine read a queue; false if there is one already. The reader stays in
// near after that: it says when the queue was read last, and whether its consumer was lost
// once. f.mu is held.
func (f *fetcher) start(at spot, read func(context.Context, spot, *reader)) bool {
	r := f.near[at]
	if r == nil {
		r = &reader{}
		r.ctx, r.cancel = context.WithCancel(f.ctx)
		f.near[at] = r
	}
	if r.busy {
		return false
	}
	r.busy = true
	f.running.Go(func() {
		read(r.ctx, at, r)
		f.mu.Lock()
		defer f.mu.Unlock()
		r.busy, r.ended = false, time.Now()
	})
	return true
}

// attend hands out what comes to a queue until its bucket may be closed. While all kinds of
// the queue are shut it makes no request, and waits for the kinds. An error is no end: a
// consumer that was lost is made anew by the next request, and a stream without a leader
// has one soon.
func (f *fetcher) attend(ctx context.Context, at spot, r *reader) {
	f.w.wait.join(1)
	defer f.w.wait.join(-1)
	for left := f.closeAt(at.bucket).Sub(f.Now()); left > 0; left = f.closeAt(at.bucket).Sub(f.Now()) {
		open, cancel := context.WithTimeout(ctx, min(left, f.w.c.Lease)) // the clock may be set
		is := f.taking.awaitOpen(open, at.queue)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if !is {
			continue
		}
		if err := f.fetch(ctx, at, r); err != nil && !errors.Is(err, stream.ErrAbandoned) {
			f.Wait(ctx, 200*time.Millisecond) // the consumer was lost, or there is no leader
		}
	}
}

// round hands out what is in a queue, and what was handed out and not acknowledged for a
// lease.
//
// It ends with a request that brings nothing, or with an error; a later view plans the
// queue again.
func (f *fetcher) round(ctx context.Context, at spot, r *reader) {
	for is, _ := f.taking.isOpen(at.queue); is && ctx.Err() == nil; is, _ = f.taking.isOpen(at.queue) {
		if got, err := f.fetchOf(ctx, f.w.read, at.bucket, at, r, stream.PullRequest{Batch: fetchSize, MaxBytes: readSize, NoWait: true}); err != nil || got == 0 {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rounds--
	f.startRounds()
}

// fetch hands out what comes as it comes, and waits a while for it. If the server says that
// a job does not fit, it reads that job with readSize. It does not do so unasked: on a slow
// machine the readers of a worker with some hundred queues then waited for the budget, and
// jobs began up to 66 s late.
func (f *fetcher) fetch(ctx context.Context, at spot, r *reader) error {
	// Not as long each time: of workers that ask in step one would get what is handed back
	// again and again, though it leaves that to the others.
	request := stream.PullRequest{Batch: fetchSize, MaxBytes: f.w.wait.part(waitSize), Expires: fetchWait*3/4 + rand.N(fetchWait/2)}
	if f.isLull(r, request.MaxBytes) {
		left, end := f.leaveAfter(at)
		defer end()
		rest := f.closeAt(at.bucket).Sub(f.Now())
		request = stream.PullRequest{Batch: 1, MaxBytes: lullSize, Expires: min(max(rest, fetchWait), lullWait), Left: left}
	}
	_, err := f.fetchOf(ctx, f.w.wait, firstTurn, at, r, request)
	if !errors.Is(err, stream.ErrTooLarge) {
		return err
	}
	_, err = f.fetchOf(ctx, f.w.read, firstTurn, at, r, stream.PullRequest{Batch: fetchSize, MaxBytes: readSize, NoWait: true})
	return err
}

// isLull reports whether one long request for one job may replace a request each second: nothing has come of it, the
// server is of this process, and no other worker is known to share the consumer. It must not be a server that may be gone
// without a word. Nor may readers be so many that they wait for the budget.
func (f *fetcher) isLull(r *reader, part int) bool {
	return !r.got && f.part.admission.local && f.w.others.Load() == 0 && part >= 4*lullSize
}

// leaveAfter removes the consumer of a long request when the Fetch ends, which would wait for its end otherwise. It returns
// a channel that is closed after that. A job that comes at that moment is in the next consumer; if nobody asked any more,
// it would come again after a lease. End is called when the request has ended.
func (f *fetcher) leaveAfter(at spot) (left <-chan struct{}, end func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(f.ctx, func() {
		defer close(done)
		_ = f.deleteConsumer(context.WithoutCancel(f.ctx), at.consumer())
	})
	return done, func() {
		if !stop() {
			<-done
		}
	}
}

// firstTurn is that of a reader on whom jobs depend that are due now. It waits for no
// overdue bucket.
const firstTurn = 0

// fetchOf makes one request when its turn comes, and the consumer if it is not there.
//
// The bytes are taken of the budget before the request, and given back when what came was
// handed on: give blocks while the worker has no room, and so the reader stops by itself.
// With an error the consumer counts as lost. Then the next request makes it anew, and all
// that it hands out from then on may have ended: its status is read before it is claimed.
func (f *fetcher) fetchOf(ctx context.Context, b *budget, turn int64, at spot, r *reader, request stream.PullRequest) (got int, err error) {
	if !r.made {
		err = f.consumer(ctx, at.consumer(), f.queueSubject(at.bucket, at.queue))
	}
	if r.made = err == nil; !r.made {
		f.RefusedConsumer(err)
		return 0, err
	}
	if !b.take(ctx, request.MaxBytes, turn) {
		return 0, ctx.Err()
	}
	defer b.give(request.MaxBytes)
	got, err = f.Pull(at.consumer(), request, func(msgs []*nats.Msg) { f.handOut(ctx, at, msgs, r.again) })
	if r.made = err == nil || errors.Is(err, stream.ErrTooLarge); r.made {
		err = cmp.Or(ctx.Err(), err)
	}
	r.again, r.got = r.again || !r.made, r.got || got > 0
	return got, err
}

// handOut gives those jobs to the worker that it can run and has room for. The others are set
// aside, but not those of a queue of one kind: what comes of that while it is shut was on its
// way.
//
// A message that is not a job is passed over. It is not acknowledged either, so its bucket
// stays open, and nobody removes what this version cannot read.
func (f *fetcher) handOut(ctx context.Context, at spot, msgs []*nats.Msg, again bool) {
	open, _ := f.w.c.Kinds.Open()
	var held, aside []*driver.Delivery
	for _, m := range msgs {
		h, err := f.deliveryOf(m)
		if err != nil {
			continue // not ours, or damaged: it stays where it is
		}
		hd := h.Claim.(*handle)
		hd.again = hd.again || again // then its status is read before it is claimed
		kind := h.Record.Kind
		switch early := f.early(h); {
		case !f.w.c.Kinds.Has(kind), !isOneKind(at.queue) && !has(open, kind):
			aside = append(aside, h)
		case early > 0:
			hd.nak(min(early, f.w.c.Lease))
		default:
			held = append(held, h)
		}
	}
	f.setAside(ctx, at, aside)
	f.give(held)
}

// early is how long it takes until a job may be held, if it is in a bucket that is read long
// before its time: what is held for nothing would take the room of what is due. It is given
// back for no longer than a lease, because the clock may be set forward meanwhile.
func (f *fetcher) early(h *driver.Delivery) time.Duration {
	bucket := time.Duration(f.geometry.near) * time.Microsecond
	return h.Record.Due.Sub(f.Now()) - f.w.c.Ahead - pollEvery - bucket
}

// setAside stores jobs in the queues of those who can run them, and acknowledges them where
// they were. Copies have one claim between them, and none comes into a bucket that is
// closed. A job that cannot be stored there comes again, to another worker perhaps. So does
// a job in the queue of its kind, if that has the hash of another kind.
//
// The order is the safe one: first the copy, then the acknowledgment. A worker that is
// killed in between leaves two copies, which have one claim. A kind of this worker that has
// no room is apart from then on, so that jobs which are added later are stored in its queue
// at once. All of one call share a commit.
func (f *fetcher) setAside(ctx context.Context, from spot, held []*driver.Delivery) {
	var groups []stream.Group
	var moving []*handle
	fl, closed := f.part.queues.fleet.Load(), false
	if len(held) > 0 && from.bucket <= f.lowest().near {
		mark, err := f.Last(ctx, f.nearMark(from.bucket))
		closed = err != nil || mark.Seq > 0
	}
	for _, h := range held {
		hd, kind := h.Claim.(*handle), h.Record.Kind
		to := fl.queueOf(kind)
		if f.w.c.Kinds.Has(kind) {
			f.w.setApart(kind)
			to = hashOf(kind)
		}
		if to == anyQueue || to == from.queue {
			to = hashOf(kind)
		}
		if to == from.queue || closed || hd.stale() {
			f.giveBack(hd)
			continue
		}
		groups = append(groups, stream.Group{{
			Subject: f.queueSubject(from.bucket, to), Data: hd.data, Last: stream.Seq(0), Guard: f.nearMark(from.bucket),
		}})
		moving = append(moving, hd)
	}
	for i, res := range f.Commit(ctx, groups) {
		if res.Err != nil {
			f.giveBack(moving[i])
			continue
		}
		moving[i].ack()
	}
}

// giveBack leaves a job to others. It does not come again in step with theirs.
//
// A quarter of a lease on average: time enough for another worker to find it, and not so
// much that a job waits long if this worker has room soon.
func (f *fetcher) giveBack(hd *handle) { hd.nak(f.w.c.Lease/8 + rand.N(f.w.c.Lease/4)) }

// regroupEvery is how often a worker reads the heartbeats of others.
const regroupEvery = 2 * time.Second

// regroup finds out which queues there are, now and then, if the stream is another one.
//
// It costs one request for the heartbeats of all workers. It is done at once when the kinds
// of this worker have changed: its own heartbeat may not be written yet, so what is in it
// comes from here. Readers of queues that are no longer its own end; jobs that they have
// handed out stay.
func (f *fetcher) regroup(ctx context.Context) error {
	own, changed := f.w.own(f.said)
	if !changed && time.Since(f.regrouped) < regroupEvery {
		return nil
	}
	if !changed && !f.regrouped.Before(f.Since()) {
		f.part.queues.confirm()
		return nil
	}
	began := time.Now()
	lives, _, err := f.part.queues.lives(ctx)
	if err != nil {
		return err
	}
	f.regrouped, f.said = began, own
	lives[f.workerSubject(f.w.c.Name)] = own
	f.w.others.Store(int64(len(lives)) - 1)
	f.part.queues.fleet.Store(fleetOf(slices.Collect(maps.Values(lives))))
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, r := range f.near {
		if !f.taking.reads(at.queue) {
			r.cancel() // what it has handed out is acknowledged all the same
			delete(f.near, at)
		}
	}
	return nil
}
