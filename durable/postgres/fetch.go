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
	batch       = 1000 // jobs that are handed out at a time, shared among the kinds that are looked at
	leastOfKind = 8    // of each kind, however many these are

	// everyPoll is how often a Fetch looks if nobody rings. It bounds how late a job is
	// found that nobody has announced.
	everyPoll = 200 * time.Millisecond

	// reach is how much further a look goes than the worker has asked for: by what may
	// pass until the next one.
	reach = 2 * everyPoll

	// pace is the least time between two looks, so that a flood of rings costs little.
	pace = 5 * time.Millisecond

	// recent is how far back a quick look goes. The remains of jobs that have ended are
	// in the index on due until a vacuum, and a full look has to pass it: 13 to 94 ms
	// over a million of them, against 0.05 ms.
	recent = time.Second

	// share is how much of the time full looks may take: one in so many.
	share = 20

	longestPause = 5 * time.Second // between full looks

	// missed is after how long a kind is looked at in full that was shut whenever all were.
	missed = 2 * longestPause

	feedTimeout = 5 * time.Second // of a look, with all its tries
)

// feed is one call of Fetch.
type feed struct {
	*worker
	ear      *ear
	rung     bool
	news     news // heard and not looked at yet, if rung
	polled   bool // the next look is a poll: at all kinds
	pollFrom time.Time
	far      bool // and it reaches as far ahead as the worker has asked for
	owed     bool // a full look is to be made
	fullFrom time.Time
	marks    map[string]*mark
	rest     map[string]*mark // of those that have more
	opened   <-chan struct{}  // closed when a kind is opened or shut
}

// mark is how far a kind has been looked at.
type mark struct {
	more bool
	from time.Time // if there is more: after what is handed out
	full time.Time // when it was looked at from the beginning
}

func newFeed(w *worker) *feed {
	return &feed{worker: w, polled: true, owed: true, marks: map[string]*mark{}, rest: map[string]*mark{}}
}

// Fetch polls for free jobs that are due soon: at once for kinds that are announced, are
// opened again, or had more jobs than a poll takes, and every 200 ms for all kinds. The
// polls of all kinds are full if full polls are cheap: then overdue jobs, and the jobs of
// dead workers, are found in that time, too. If full polls are expensive, quick polls
// come in between.
func (w *worker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFeed(w)
	var off func()
	f.ear, off = w.e.feeds.listen()
	defer off()
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	defer w.e.notices.attend(w)()
	beside.Go(func() { w.e.listen(ctx, f.ear) })
	beside.Go(func() { w.sweepUntil(ctx) })
	for {
		held, err := f.look(ctx, give)
		if err == nil && f.c.Polled != nil {
			f.c.Polled()
		}
		if len(held) > 0 {
			give(held) // also at the end: who takes no more hands it back
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case w.e.usable() != nil:
			return w.e.usable()
		case err != nil:
			return err
		}
		if !f.rung && !f.hasMore() {
			f.pause(ctx)
		}
	}
}

// look fetches once. Jobs that are announced while that takes long are given meanwhile.
func (f *feed) look(ctx context.Context, give func([]*driver.Delivery)) ([]*driver.Delivery, error) {
	began := time.Now()
	full := f.owed && !began.Before(f.fullFrom)
	l := f.plan(began, full)
	var got fetched
	var left *news
	if len(l.kinds) > 0 {
		var err error
		if l.deep {
			got, left, err = f.besideNews(ctx, l, give)
		} else {
			got, err = f.fetch(ctx, l)
		}
		if err != nil {
			return got.held, err
		}
		f.note(l, got, began)
	}
	f.rung, f.polled, f.far = false, false, (f.far || f.polled) && f.hasMore()
	if full {
		f.owed = false
		f.fullFrom = time.Now().Add(min(share*time.Since(began), longestPause))
	}
	if left != nil {
		f.rung, f.news = true, *left
		f.owe(*left)
	}
	return got.held, nil
}

// planned is what a look is for.
type planned struct {
	kinds []string
	from  []time.Time
	full  []bool
	ahead time.Duration
	limit int  // of each kind
	deep  bool // it may pass many that are not free
}

// plan returns what is to be looked at. A kind that is shut is to be looked at when it is
// opened, from where it was shut.
func (f *feed) plan(now time.Time, full bool) planned {
	l := planned{ahead: f.c.Ahead + reach}
	if !full && !f.polled && !f.far {
		l.ahead = min(window, l.ahead) // nothing else is announced
	}
	quick := f.e.now().Add(-recent)
	open, opened := f.c.Kinds.Open()
	f.opened = opened
	for _, kind := range f.candidates(full) {
		m := f.marks[kind]
		if m == nil {
			m = &mark{}
			f.marks[kind] = m
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
		default:
			l.add(kind, quick, false)
		}
	}
	l.limit = max(batch/max(1, len(l.kinds)), leastOfKind)
	return l
}

func (l *planned) add(kind string, from time.Time, full bool) {
	l.kinds, l.from, l.full = append(l.kinds, kind), append(l.from, from), append(l.full, full)
}

// candidates returns the kinds of which there may be something, without a look at all
// kinds where that can be.
func (f *feed) candidates(full bool) []string {
	if full || f.polled || f.rung && f.news.kinds == nil {
		return f.c.Kinds.All()
	}
	kinds := slices.Collect(maps.Keys(f.rest))
	for kind := range f.news.kinds {
		if f.rung && f.rest[kind] == nil && f.c.Kinds.Has(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// note keeps of which kinds there may be more of the same, and from where on. There may be more
// of the time of the last one, too.
func (f *feed) note(l planned, got fetched, now time.Time) {
	last, n := map[string]time.Time{}, map[string]int{}
	for _, h := range got.held {
		last[h.Record.Kind] = h.Record.Due
		n[h.Record.Kind]++
	}
	for i, kind := range l.kinds {
		m := f.marks[kind]
		if l.full[i] {
			m.full = now
		}
		switch {
		case got.found > len(got.held): // their payloads were too large
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

// hasMore reports whether there is reason to look again at once.
func (f *feed) hasMore() bool {
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

// owe notes that something old is announced: at once if it may be many.
func (f *feed) owe(n news) {
	f.owed = f.owed || n.old
	if n.many {
		f.fullFrom = time.Time{}
	}
}

// uncut returns a context for a statement that is not to be cut off when ctx ends:
// nobody would know what it has handed out.
func uncut(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// pause waits until there is reason to look. A poll comes in its time however often it is
// rung for some kinds.
func (f *feed) pause(ctx context.Context) {
	sleep(ctx, pace)
	wait := time.Until(f.pollFrom)
	if f.owed {
		wait = min(wait, time.Until(f.fullFrom))
	}
	t := time.NewTimer(max(0, wait))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-f.e.closed.Done():
	case <-f.opened:
	case <-f.ear.rung:
		if f.news, f.rung = f.ear.heard(); f.rung {
			f.owe(f.news)
		}
	case <-t.C:
	}
	if now := time.Now(); !now.Before(f.pollFrom) {
		f.polled, f.owed, f.pollFrom = true, true, now.Add(f.e.poll)
	}
}

// fetched is the answer to a look.
type fetched struct {
	held  []*driver.Delivery
	found int // with what was too large
}

// besideNews fetches what may take long, as where a lane has many jobs that were put off. What
// is announced meanwhile is fetched at once: a lane with one job is not to wait for that. It
// returns what was heard and is still to be looked at, if there is such.
func (f *feed) besideNews(ctx context.Context, l planned, give func([]*driver.Delivery)) (got fetched, left *news, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = f.fetch(ctx, l)
	}()
	for {
		select {
		case <-done:
			return got, left, err
		case <-f.ear.rung:
		}
		n, ok := f.ear.heard()
		if ok && !f.fresh(ctx, n, give) {
			if left == nil {
				left = &news{kinds: map[string]bool{}}
			}
			left.add(n)
		}
		sleep(ctx, pace)
	}
}

// fresh gives what is announced, and reports whether that is all of it.
func (f *feed) fresh(ctx context.Context, n news, give func([]*driver.Delivery)) bool {
	open, _ := f.c.Kinds.Open()
	l, all := planned{ahead: min(window, f.c.Ahead+reach), limit: batch}, !n.old && n.kinds != nil
	for kind := range n.kinds {
		if _, isOpen := slices.BinarySearch(open, kind); isOpen {
			l.add(kind, f.e.now().Add(-recent), false)
		} else if f.c.Kinds.Has(kind) {
			all = false
		}
	}
	if len(l.kinds) == 0 {
		return all
	}
	l.limit = max(batch/len(l.kinds), leastOfKind)
	got, err := f.fetch(ctx, l)
	if len(got.held) > 0 {
		give(got.held)
	}
	return all && err == nil && got.found == len(got.held) && got.found < l.limit
}

// fetch hands out what is due soon and free, and tries again for a while.
func (f *feed) fetch(ctx context.Context, l planned) (fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	return retry(ctx, f.e, true, func() (fetched, error) {
		whole, cancel := uncut(ctx, feedTimeout)
		defer cancel()
		return f.fetchOnce(whole, l)
	})
}

// fetchOnce is one statement. Jobs whose hand is lost in a crash are handed out again, so it
// does not wait for the disk.
func (f *feed) fetchOnce(ctx context.Context, l planned) (got fetched, err error) {
	args := []any{f.id, l.kinds, l.from, micros(l.ahead), micros(f.c.Lease), l.limit}
	got.held, err = ask(ctx, f.e, func(row pgx.CollectableRow) (*driver.Delivery, error) {
		return f.e.held(row, &got.found)
	}, f.e.statements.fetch, args, hot, relaxed)
	slices.SortFunc(got.held, func(a, b *driver.Delivery) int { return a.Record.Due.Compare(b.Record.Due) })
	return got, err
}

// held reads a row of fetch.sql, and how many jobs that has found.
func (e *Engine) held(row pgx.CollectableRow, found *int) (*driver.Delivery, error) {
	var id string
	var key *string
	h := &driver.Delivery{}
	r := &h.Record
	var more extras
	err := row.Scan(&id, &key, &r.Kind, &r.Payload, &r.At, &r.Due, &r.Born, &r.MaxAttempts,
		&r.Version, &r.Attempt, &r.Crashes, &r.LastError, &r.Schedule, &r.Occurrence,
		&r.Lane, &r.Priority, &r.Meta, &more.timeout, &more.expires, &r.Errors, &more.flags, &r.Signal, found)
	if err != nil {
		return nil, err
	}
	h.Ref, h.Handle, r.ID = e.refOf(id), &handle{id: id}, id[len(bornID(r.Born))+1:]
	if key != nil {
		r.Key = *key
	}
	more.addTo(r)
	return h, nil
}

// extras are of a job what its row has otherwise.
type extras struct {
	timeout int64 // microseconds
	expires *time.Time
	flags   int16
}

// The flags of a job.
const (
	freeWhenBegun = 1
	takesSignals  = 2
)

func flagsOf(r *driver.Record) (flags int16) {
	if r.FreeWhenBegun {
		flags |= freeWhenBegun
	}
	if r.Signals {
		flags |= takesSignals
	}
	return flags
}

func (x *extras) addTo(r *driver.Record) {
	r.Timeout = time.Duration(x.timeout) * time.Microsecond
	if x.expires != nil {
		r.Expires = *x.expires
	}
	r.FreeWhenBegun, r.Signals = x.flags&freeWhenBegun != 0, x.flags&takesSignals != 0
}
