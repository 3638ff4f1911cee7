package postgres

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable"
)

const (
	batch = 1000 // jobs that are handed out at a time

	// everyPoll is how often a Feed looks if nobody rings. It bounds how late a job is
	// found that nobody has announced.
	everyPoll = 200 * time.Millisecond

	// reach is how much further a look goes than the worker has asked for: by what may
	// pass until the next one.
	reach = 2 * everyPoll

	// pace is the least time between two looks, so that a flood of rings costs little.
	pace = 5 * time.Millisecond

	// recent is how far back a quick look goes. What is left of jobs that have ended is
	// in the index on due until a vacuum, and a full look has to pass it: 13 to 94 ms
	// over a million of them, against 0.05 ms.
	recent = time.Second

	// share is how much of the time full looks may take: one in so many.
	share = 20

	longestPause = 5 * time.Second // between full looks

	feedTimeout = 5 * time.Second // of a look, with all its tries
)

// feed is one call of Feed.
type feed struct {
	*worker
	ear      *ear
	polled   bool      // the next look is a poll, not the answer to a ring
	owed     bool      // a full look is to be made
	fullFrom time.Time // not before
}

// Feed looks for what is due soon and free, at once when something is announced, and else
// every 200 ms. Each look is full if full looks are cheap: then what is overdue, and what
// dead workers have left, is found in that time, too. Where they are dear quick ones come
// between.
func (w *worker) Feed(ctx context.Context, give func([]*durable.Held)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &feed{worker: w, polled: true, owed: true}
	var off func()
	f.ear, off = w.e.feeds.listen()
	defer off()
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	beside.Go(func() { w.e.listen(ctx, f.ear) })
	beside.Go(func() { w.e.sweepUntil(ctx, w.c.Lease) })
	for {
		held, more, err := f.look(ctx)
		if len(held) > 0 {
			give(held) // also at the end: who takes no more hands it back
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case w.e.closed.Err() != nil:
			return durable.ErrClosed
		case err != nil:
			return err
		}
		if !more {
			f.pause(ctx)
		}
	}
}

// look fetches once, and tells whether there may be more of the same.
func (f *feed) look(ctx context.Context) (held []*durable.Held, more bool, err error) {
	began := time.Now()
	full := f.owed && !began.Before(f.fullFrom)
	ctx, cancel := context.WithTimeout(ctx, feedTimeout)
	defer cancel()
	got, err := retry(ctx, f.e, true, func() (fetched, error) {
		whole, cancel := finishing(ctx, feedTimeout)
		defer cancel()
		return f.fetch(whole, full)
	})
	held, more = got.held, got.more
	if err == nil && !more {
		f.polled = false
	}
	if err == nil && full && !more {
		f.owed = false
		f.fullFrom = time.Now().Add(min(share*time.Since(began), longestPause))
	}
	return held, more, err
}

// finishing returns a context for a statement that is not to be cut off when ctx ends:
// nobody would know what it has handed out.
func finishing(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// pause waits until there is reason to look.
func (f *feed) pause(ctx context.Context) {
	sleep(ctx, pace)
	wait := f.e.poll
	if f.owed {
		wait = min(wait, max(0, time.Until(f.fullFrom)))
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-f.e.closed.Done():
	case <-f.ear.rung:
		f.owed = f.ear.wasAll() || f.owed
	case <-t.C:
		f.polled, f.owed = true, true
	}
}

// fetched is the answer to a look.
type fetched struct {
	held []*durable.Held
	more bool // there may be more of the same
}

// fetch hands out what is due soon and free. What is lost of it in a crash is handed out
// again, so it does not wait for the disk.
func (f *feed) fetch(ctx context.Context, full bool) (fetched, error) {
	from, ahead := time.Unix(0, 0), f.c.Ahead+reach
	if !full {
		from = f.e.now().Add(-recent)
	}
	if !full && !f.polled {
		ahead = min(window, ahead) // nothing else is announced
	}
	found := 0
	args := []any{f.id, from, micros(ahead), micros(f.c.Lease), batch}
	held, err := ask(ctx, f.e, func(row pgx.CollectableRow) (*durable.Held, error) {
		return f.e.held(row, &found)
	}, f.e.statements.fetch, args, hot, relaxed)
	slices.SortFunc(held, func(a, b *durable.Held) int { return a.Record.Due.Compare(b.Record.Due) })
	return fetched{held, len(held) > 0 && found > len(held) || found == batch}, err
}

// held reads a row of fetch.sql, and how many jobs that has found.
func (e *Engine) held(row pgx.CollectableRow, found *int) (*durable.Held, error) {
	var id string
	var key *string
	h := &durable.Held{}
	r := &h.Record
	var more extras
	err := row.Scan(&id, &key, &r.Job.Kind, &r.Job.Payload, &r.Job.At, &r.Due, &r.Born, &r.Job.MaxAttempts,
		&r.Version, &r.Attempt, &r.Crashes, &r.LastError, &r.Series, &r.Plan,
		&r.Job.Lane, &r.Job.Priority, &r.Job.Meta, &more.timeout, &more.expires, found)
	if err != nil {
		return nil, err
	}
	h.Ref, h.Handle, r.ID = e.refOf(id), &handle{id: id}, id[len(bornID(r.Born))+1:]
	if key != nil {
		r.Job.Key = *key
	}
	more.addTo(&r.Job)
	return h, nil
}

// extras are of a job what its row has otherwise.
type extras struct {
	timeout int64 // microseconds
	expires *time.Time
}

func (x *extras) addTo(j *durable.Job) {
	j.Timeout = time.Duration(x.timeout) * time.Microsecond
	if x.expires != nil {
		j.Expires = *x.expires
	}
}
