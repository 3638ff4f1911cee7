package durable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/batch"
	"github.com/tickwheel/tickwheel/durable/internal/held"
)

// adding is a record on its way to the engine.
type adding struct {
	rec   driver.Record
	ref   Ref
	found Ref // for Job.Found, which must not change after Add has returned
	err   error
	done  chan struct{} // closed when ref, found and err are set

	contended bool // it waits for a key, or has waited
}

// contendedEvery is the least time between two tries of one key.
const contendedEvery = 20 * time.Millisecond

// contended are the Adds whose keys open transactions hold, or jobs that are about to begin
// (held.Err). They are tried again
// and again, apart from all others, which must not wait for a transaction or a key of somebody
// else. The engine
// decides how long: it returns another error for a key that stays held.
type contended struct {
	batch *batch.Batcher[*adding]

	mu   sync.Mutex
	keys map[string]int // how many Adds wait for each
}

func newContended(insert func([]*adding)) *contended {
	byKey := func(items []*adding) {
		slices.SortStableFunc(items, func(a, b *adding) int { return strings.Compare(a.rec.Key, b.rec.Key) })
		for len(items) > 0 {
			n := 1
			for n < len(items) && items[n].rec.Key == items[0].rec.Key {
				n++
			}
			insert(items[:n])
			items = items[n:]
		}
	}
	return &contended{batch: batch.New(byKey, contendedEvery, batch.Max), keys: map[string]int{}}
}

// has reports whether an Add waits for a key. The next Add of that key waits with it at once.
func (c *contended) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys[key] > 0
}

// put adds an Add to those that wait. It returns false if the Queue is closed.
func (c *contended) put(it *adding) bool {
	c.mu.Lock()
	if !it.contended {
		it.contended = true
		c.keys[it.rec.Key]++
	}
	c.mu.Unlock()
	return c.batch.Put(it)
}

// leave removes an Add that has its answer.
func (c *contended) leave(it *adding) {
	if !it.contended {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys[it.rec.Key]--; c.keys[it.rec.Key] == 0 {
		delete(c.keys, it.rec.Key)
	}
}

// adder passes records on to the engine, and each answer to the Add that waits for it: a record is in one batch at
// a time, and its Add is answered once. Only contended has a lock. It checks nothing but that the Queue is open.
type adder struct {
	*link
	added     *atomic.Int64
	replaced  func(Ref)               // is called with a job that Job.Found may tell of
	plain     *batch.Batcher[*adding] // jobs without a key
	keyed     *batch.Batcher[*adding] // jobs with one
	contended *contended
}

func newAdder(l *link, added *atomic.Int64, replaced func(Ref)) *adder {
	a := &adder{link: l, added: added, replaced: replaced}
	a.plain, a.keyed, a.contended = batch.New(a.insert, 0, 1), batch.New(a.insert, 0, 1), newContended(a.insert)
	return a
}

// addJobs is AddMany without the middleware.
func (a *adder) addJobs(ctx context.Context, jobs []Job) (refs []Ref, err error) {
	recs := make([]driver.Record, len(jobs))
	now := a.clock.Time()
	for i, j := range jobs {
		if recs[i], err = driver.NewRecord(j, now); err != nil {
			return make([]Ref, len(jobs)), ofJob(i, len(jobs), err)
		}
		recs[i].Payload = bytes.Clone(j.Payload) // a record may be on its way after Add has returned
	}
	return a.add(ctx, recs)
}

// ofJob says of which of n jobs an error is.
func ofJob(i, n int, err error) error {
	if n == 1 {
		return fmt.Errorf("durable: Add: %w", err)
	}
	return fmt.Errorf("durable: AddMany: job %d: %w", i, err)
}

func (a *adder) add(ctx context.Context, recs []driver.Record) ([]Ref, error) {
	refs := make([]Ref, len(recs))
	if err := ctx.Err(); err != nil {
		return refs, context.Cause(ctx)
	}
	if a.closed.Err() != nil {
		return refs, ErrClosed
	}
	items := make([]*adding, len(recs))
	var plain, keyed []*adding
	for i, r := range recs {
		items[i] = &adding{rec: r, done: make(chan struct{})}
		items[i].rec.Found = &items[i].found
		switch {
		case r.Key == "":
			plain = append(plain, items[i])
		case a.contended.has(r.Key):
			a.await(items[i])
		default:
			keyed = append(keyed, items[i])
		}
	}
	a.put(a.plain, plain)
	a.put(a.keyed, keyed)
	var errs []error
	for i, it := range items {
		select {
		case <-it.done:
			refs[i] = it.ref
			if found := recs[i].Found; found != nil {
				*found = it.found
			}
			if errors.Is(it.err, ErrExists) {
				it.err = fmt.Errorf("the key %.300q: %w", recs[i].Key, it.err)
			}
			if it.err != nil {
				errs = append(errs, ofJob(i, len(recs), it.err))
			}
		case <-ctx.Done():
			errs = append(errs, ofJob(i, len(recs), fmt.Errorf("%w: %w", ErrUncertain, context.Cause(ctx))))
		}
	}
	return refs, errors.Join(errs...)
}

// put hands items to a batcher; if it is closed they fail.
func (a *adder) put(b *batch.Batcher[*adding], items []*adding) {
	if b.Put(items...) {
		return
	}
	for _, it := range items {
		it.err = ErrClosed
		close(it.done)
	}
}

// insert stores what a batcher has collected.
func (a *adder) insert(items []*adding) {
	recs := make([]driver.Record, len(items))
	for i, it := range items {
		recs[i] = it.rec
	}
	ctx, cancel := context.WithTimeout(a.requests, addTimeout)
	defer cancel()
	refs, errs := make([]Ref, len(items)), slices.Repeat([]error{ErrClosed}, len(items))
	if ctx.Err() == nil {
		refs, errs = a.engine.Insert(held.NoWait(ctx), recs)
	}
	for i, it := range items {
		if errors.Is(errs[i], held.Err) {
			a.await(it)
			continue
		}
		it.ref, it.err = refs[i], errs[i]
		if errors.Is(it.err, context.DeadlineExceeded) && !errors.Is(it.err, ErrUncertain) { // of addTimeout, not of the caller's
			it.err = fmt.Errorf("%w: %w", ErrUncertain, it.err)
		}
		if it.err == nil {
			a.added.Add(1)
			if it.found != "" {
				a.replaced(it.found)
			}
		}
		a.contended.leave(it)
		close(it.done)
	}
}

// await puts an Add aside until its key is free.
func (a *adder) await(it *adding) {
	if !a.contended.put(it) {
		a.contended.leave(it)
		it.err = ErrClosed
		close(it.done)
	}
}

// addTimeout is how long an engine may try to store: longer than an election.
const addTimeout = 30 * time.Second
