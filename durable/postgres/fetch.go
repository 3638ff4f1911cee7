package postgres

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

const (
	pollSize    = 1000 // jobs that a poll hands out, shared among the kinds that it reads
	leastOfKind = 8    // jobs of each kind, however many kinds there are

	// everyPoll is the pause between two polls if nothing is announced, and notifications may not
	// arrive (arrival.go). It bounds the lateness of a job that is found without an announcement.
	everyPoll = 200 * time.Millisecond

	// everyFar is the pause between two polls that read as far ahead as the worker has asked for.
	// The others read as far as jobs are announced: a poll passes all rows in its range of time, also
	// those that were handed out.
	everyFar = everyQuietPoll

	// reach and farReach are how much further ahead polls read than they have to: the next
	// poll may come that much later.
	reach    = 2 * everyPoll
	farReach = 2 * everyFar

	// pace is the least time between two polls, so that a flood of announcements costs little.
	pace = 5 * time.Millisecond

	// recent is how far back a quick poll reads. Rows of jobs that have ended stay in the
	// index on due until a vacuum, and a full poll has to pass them: 13 to 94 ms over a
	// million of them, against 0.05 ms.
	recent = time.Second

	// idleFactor is the pause after a full poll, in multiples of its time. It is no longer than
	// longestPause. A full poll also passes what has ended and is remembered.
	idleFactor = 50

	longestPause = 5 * time.Second // between full polls

	// missed is the longest time that a kind goes without a full poll. A kind may be shut at
	// each full poll of all kinds: after that time it gets one of its own.
	missed = 2 * longestPause

	fetchTimeout = 5 * time.Second // of a poll, with all its tries
)

// fetcher is one call of Fetch.
type fetcher struct {
	*worker
	listener  *listener
	notified  bool
	announced announcement // not polled for yet, if notified
	all       bool         // the next poll reads all kinds
	allFrom   time.Time    // the time of the next poll of all kinds
	far       bool         // the next poll reads as far ahead as the worker has asked for
	farFrom   time.Time    // the time from which the next poll of all kinds does so
	newsFrom  time.Time    // the time from which the next such poll also asks news.sql
	owed      bool         // a full poll is to be made
	fullFrom  time.Time    // the time from which it may be made
	cursors   map[string]*cursor
	rest      map[string]*cursor // the kinds that have more jobs
	opened    <-chan struct{}    // closed when a kind is opened or shut
}

// cursor is how far a kind has been read.
type cursor struct {
	more bool      // there may be more jobs
	from time.Time // if so: the due time from which the next poll reads
	full time.Time // the time of the last full poll
}

func newFetcher(w *worker) *fetcher {
	return &fetcher{worker: w, all: true, far: true, owed: true, cursors: map[string]*cursor{}, rest: map[string]*cursor{}}
}

// Fetch polls for free jobs that are due soon: at once for kinds that are announced, are
// opened again, or had more jobs than a poll takes. It polls all kinds every 800 ms, or every 200 ms while
// notifications do not arrive; each second it reads as far ahead as the worker has asked for. The polls of all
// kinds are full if full polls are cheap: then overdue jobs, and the jobs of dead workers, are found in that
// time, too. If full polls are expensive, quick polls come in between.
func (w *worker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFetcher(w)
	var remove func()
	f.listener, remove = w.fetches.listen()
	if w.c.Notify != nil {
		f.listener.tell = w.c.Notify
	}
	defer remove()
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	defer w.notices.subscribe(w.c.Notify)()
	beside.Go(func() { w.receive(ctx, f.listener) })
	beside.Go(func() { w.sweepUntil(ctx, f.listener) })
	for {
		deliveries, err := f.poll(ctx, give)
		f.noteActivity(deliveries, err)
		if err == nil && f.c.Polled != nil {
			f.c.Polled()
		}
		if len(deliveries) > 0 {
			give(deliveries) // also at the end: a worker that takes no more releases them
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case w.usable() != nil:
			return w.usable()
		case err != nil:
			return err
		}
		if !f.notified && !f.hasMore() {
			f.pause(ctx)
		}
	}
}

// poll fetches once. If that takes long, jobs that are announced meanwhile are given at once.
func (f *fetcher) poll(ctx context.Context, give func([]*driver.Delivery)) ([]*driver.Delivery, error) {
	began := time.Now()
	full := f.owed && !began.Before(f.fullFrom)
	l := f.plan(began, full)
	var got fetched
	var left *announcement
	if len(l.kinds) > 0 {
		var err error
		if l.deep {
			got, left, err = f.whileListening(ctx, l, give)
		} else {
			got, err = f.fetch(ctx, l)
		}
		if err != nil {
			return got.deliveries, err
		}
		f.advance(l, got, began)
	}
	f.notified, f.all, f.far = false, false, f.far && f.hasMore()
	if full {
		f.owed = false
		f.fullFrom = time.Now().Add(min(idleFactor*time.Since(began), longestPause))
	}
	if left != nil {
		f.notified, f.announced = true, *left
		f.owe(*left)
	}
	return got.deliveries, nil
}

// pollPlan is what a poll reads.
type pollPlan struct {
	kinds []string
	from  []time.Time
	full  []bool
	ahead time.Duration
	limit int  // jobs of each kind
	deep  bool // it may pass many jobs that are not free
	news  bool // it also asks news.sql
}

// plan returns the plan of the next poll. The poll of a kind that opens begins at its last
// cursor, or else a second before the poll that it missed.
func (f *fetcher) plan(now time.Time, full bool) pollPlan {
	l := pollPlan{ahead: f.c.Ahead + farReach}
	server := f.now()
	quick := server.Add(-recent)
	announced := f.notified && !full && !f.all && !f.far && len(f.rest) == 0 // and nothing else is read
	switch {
	case announced:
		l.ahead = min(f.announced.ahead(server), l.ahead)
	case f.far:
		if l.news = !now.Before(f.newsFrom); l.news {
			f.newsFrom = now.Add(everyFar / 2)
		}
	case full || f.all:
		l.ahead = min(window+reach, l.ahead)
	default:
		l.ahead = min(window, l.ahead)
	}
	open, opened := f.c.Kinds.Open()
	f.opened = opened
	for _, kind := range f.candidates(full) {
		m := f.cursors[kind]
		if m == nil {
			m = &cursor{}
			f.cursors[kind] = m
		}
		_, isOpen := slices.BinarySearch(open, kind)
		whole := full || now.Sub(m.full) > missed
		switch {
		case !isOpen && !m.more:
			m.more, m.from = true, quick
			f.rest[kind] = m
		case !isOpen:
		case whole:
			l.add(kind, time.Unix(0, 0), true)
			l.deep = true
		case m.more:
			l.add(kind, m.from, false)
			l.deep = true
		case announced:
			l.add(kind, f.announced.kinds[kind].since(server), false)
		default:
			l.add(kind, quick, false)
		}
	}
	l.limit = max(pollSize/max(1, len(l.kinds)), leastOfKind)
	return l
}

func (l *pollPlan) add(kind string, from time.Time, full bool) {
	l.kinds, l.from, l.full = append(l.kinds, kind), append(l.from, from), append(l.full, full)
}

// candidates returns the kinds that may have free jobs. It walks over all kinds only if the poll
// reads all.
func (f *fetcher) candidates(full bool) []string {
	if full || f.all || f.notified && f.announced.kinds == nil {
		return f.c.Kinds.All()
	}
	kinds := slices.Collect(maps.Keys(f.rest))
	for kind := range f.announced.kinds {
		if f.notified && f.rest[kind] == nil && f.c.Kinds.Has(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// advance moves the cursors. A kind may have more jobs of the same time as the last one.
func (f *fetcher) advance(l pollPlan, got fetched, now time.Time) {
	last, n := map[string]time.Time{}, map[string]int{}
	for _, h := range got.deliveries {
		last[h.Record.Kind] = h.Record.Due
		n[h.Record.Kind]++
	}
	for i, kind := range l.kinds {
		m := f.cursors[kind]
		if l.full[i] {
			m.full = now
		}
		switch {
		case got.found > len(got.deliveries): // their payloads were too large
			m.more, m.from = true, l.from[i]
		case n[kind] >= l.limit:
			m.more, m.from = true, last[kind].Add(-time.Microsecond)
		default:
			m.more = false
		}
		if m.more {
			f.rest[kind] = m
		} else {
			delete(f.rest, kind)
		}
	}
}

// hasMore reports whether an open kind has more jobs.
func (f *fetcher) hasMore() bool {
	if len(f.rest) == 0 {
		return false
	}
	open, _ := f.c.Kinds.Open()
	for kind := range f.rest {
		if _, isOpen := slices.BinarySearch(open, kind); isOpen {
			return true
		}
	}
	return false
}

// owe notes that overdue jobs are announced. If there may be many, the full poll is made at once.
func (f *fetcher) owe(n announcement) {
	f.owed = f.owed || n.old
	if n.many {
		f.fullFrom = time.Time{}
	}
}

// uncut returns a context for a statement that must not be cut off when ctx ends. Otherwise the
// worker would not learn which jobs it has handed out.
func uncut(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// pause waits for the next poll. A poll of all kinds comes in its time, however many
// announcements of some kinds there are.
func (f *fetcher) pause(ctx context.Context) {
	sleep(ctx, pace)
	wait := time.Until(f.allFrom)
	if f.owed {
		wait = min(wait, time.Until(f.fullFrom))
	}
	t := time.NewTimer(max(0, wait))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-f.ended.Done():
	case <-f.opened:
	case <-f.listener.woken:
		if f.announced, f.notified = f.listener.take(); f.notified {
			f.owe(f.announced)
		}
	case <-t.C:
	}
	if now := time.Now(); !now.Before(f.allFrom) {
		f.all, f.owed, f.allFrom = true, true, now.Add(f.pollAfter())
		if !now.Before(f.farFrom) {
			f.far, f.farFrom = true, now.Add(everyFar)
		}
	}
}

// noteActivity notes whether the worker may have jobs, and that it may poll for nothing since a
// statement failed.
func (f *fetcher) noteActivity(deliveries []*driver.Delivery, err error) {
	if err != nil {
		f.frequent.extend(idleAfter)
	}
	if err != nil || len(deliveries) > 0 {
		f.active.extend(f.c.Ahead + farReach + idleAfter)
	}
}

// fetched is the answer to a poll.
type fetched struct {
	deliveries []*driver.Delivery
	found      int // with the jobs whose payloads were too large
}

// whileListening makes a poll that may take long, as where a lane has many deferred jobs. Jobs
// that are announced meanwhile are fetched at once: a lane with one job must not wait for the
// others. It returns the announcements that are still to be polled for, if there are any.
func (f *fetcher) whileListening(ctx context.Context, l pollPlan, give func([]*driver.Delivery)) (got fetched, left *announcement, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = f.fetch(ctx, l)
	}()
	for {
		select {
		case <-done:
			return got, left, err
		case <-f.listener.woken:
		}
		n, ok := f.listener.take()
		if ok && !f.fresh(ctx, n, give) {
			if left == nil {
				left = &announcement{kinds: map[string]span{}}
			}
			left.merge(n)
		}
		sleep(ctx, pace)
	}
}

// fresh gives the jobs that are announced, and reports whether no announced job is left.
func (f *fetcher) fresh(ctx context.Context, n announcement, give func([]*driver.Delivery)) bool {
	open, _ := f.c.Kinds.Open()
	server := f.now()
	l, all := pollPlan{ahead: min(n.ahead(server), f.c.Ahead+farReach)}, !n.old && n.kinds != nil
	for kind, s := range n.kinds {
		if _, isOpen := slices.BinarySearch(open, kind); isOpen {
			l.add(kind, s.since(server), false)
		} else if f.c.Kinds.Has(kind) {
			all = false
		}
	}
	if len(l.kinds) == 0 {
		return all
	}
	l.limit = max(pollSize/len(l.kinds), leastOfKind)
	got, err := f.fetch(ctx, l)
	if len(got.deliveries) > 0 {
		give(got.deliveries)
	}
	return all && err == nil && got.found == len(got.deliveries) && got.found < l.limit
}

// fetch hands out free jobs that are due soon. It repeats the statement for up to fetchTimeout.
func (f *fetcher) fetch(ctx context.Context, l pollPlan) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return retry(ctx, f.db, true, func() (fetched, error) {
		whole, cancel := uncut(ctx, fetchTimeout)
		defer cancel()
		return f.fetchOnce(whole, l)
	})
}

// fetchOnce runs the statement once. It does not wait for the disk: jobs that were handed out
// before a crash are handed out again.
func (f *fetcher) fetchOnce(ctx context.Context, l pollPlan) (got fetched, err error) {
	args := []any{f.id, l.kinds, l.from, micros(l.ahead), micros(f.c.Lease), l.limit}
	b := batch(&got.deliveries, func(row pgx.CollectableRow) (*driver.Delivery, error) {
		return f.delivery(row, &got.found)
	}, f.statements.fetch, args, []string{hot, relaxed})
	if l.news {
		err = f.fetchNews(ctx, b)
	} else {
		err = f.send(ctx, b)
	}
	if err != nil {
		return fetched{}, err // rows come before the commit
	}
	slices.SortFunc(got.deliveries, func(a, b *driver.Delivery) int { return a.Record.Due.Compare(b.Record.Due) })
	return got, err
}

// delivery reads a row of fetch.sql, and the number of jobs that the statement has found.
func (f *fetcher) delivery(row pgx.CollectableRow, found *int) (*driver.Delivery, error) {
	var id string
	var key *string
	h := &driver.Delivery{}
	r := &h.Record
	var more extras
	err := row.Scan(&id, &key, &r.Kind, &r.Payload, &r.At, &r.Due, &r.Born, &r.MaxAttempts,
		&r.Version, &r.Attempt, &r.Crashes, &r.LastError, &r.Schedule, &r.Occurrence,
		&r.Lane, &r.Priority, &r.Meta, &more.timeout, &more.expires, &r.Errors, &more.flags, &more.retain, &r.Signal, found)
	if err != nil {
		return nil, err
	}
	h.Ref, h.Claim, r.ID = f.refOf(id), &handle{id: id}, id[len(bornID(r.Born))+1:]
	if key != nil {
		r.Key = *key
	}
	more.addTo(r)
	return h, nil
}

// extras are the columns of a job that a Record has in another form.
type extras struct {
	timeout int64 // microseconds
	expires *time.Time
	flags   int16
	retain  int64 // microseconds
}

// The flags of a job.
const (
	freeWhenBegun = 1
	takesSignals  = 2
	retainPayload = 4
)

func flagsOf(r *driver.Record) (flags int16) {
	if r.FreeWhenBegun {
		flags |= freeWhenBegun
	}
	if r.Signals {
		flags |= takesSignals
	}
	if r.RetainPayload {
		flags |= retainPayload
	}
	return flags
}

func (x *extras) addTo(r *driver.Record) {
	r.Timeout = time.Duration(x.timeout) * time.Microsecond
	if x.expires != nil {
		r.Expires = *x.expires
	}
	r.FreeWhenBegun, r.Signals = x.flags&freeWhenBegun != 0, x.flags&takesSignals != 0
	r.Retain, r.RetainPayload = time.Duration(x.retain)*time.Microsecond, x.flags&retainPayload != 0
}
