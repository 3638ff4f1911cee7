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

	call      *call
	answered  atomic.Bool // ref, found and err are set
	contended bool        // it waits for a key, or has waited
}

// call is an Add that waits for its records.
type call struct {
	left atomic.Int64  // records without an answer
	done chan struct{} // closed when there is none
}

// answer tells the Add that ref, found and err are set.
func (it *adding) answer() {
	it.answered.Store(true)
	if it.call.left.Add(-1) == 0 {
		close(it.call.done)
	}
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

// split returns the Adds for whose keys others wait, which wait with these at once, and the rest. It looks at all Adds of a
// call at one time: two jobs of one key stay in their order.
func (c *contended) split(items []*adding) (waiting, rest []*adding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range items {
		if c.keys[it.rec.Key] > 0 {
			waiting = append(waiting, it)
		} else {
			rest = append(rest, it)
		}
	}
	return waiting, rest
}

// put adds Adds to those that wait, together: two jobs of one key stay in their order. It returns false if the
// Queue is closed.
func (c *contended) put(items []*adding) bool {
	c.mu.Lock()
	for _, it := range items {
		if !it.contended {
			it.contended = true
			c.keys[it.rec.Key]++
		}
	}
	c.mu.Unlock()
	return c.batch.Put(items...)
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
	items := make([]adding, len(jobs))
	now := a.clock.Time()
	for i, j := range jobs {
		it := &items[i]
		if it.rec, err = driver.NewRecord(j, now); err != nil {
			return make([]Ref, len(jobs)), ofJob(i, len(jobs), err)
		}
		it.rec.Payload = bytes.Clone(j.Payload) // a record may be on its way after Add has returned
		it.rec.Found = &it.found
	}
	return a.add(ctx, jobs, items)
}

// ofJob says of which of n jobs an error is.
func ofJob(i, n int, err error) error {
	if n == 1 {
		return fmt.Errorf("durable: Add: %w", err)
	}
	return fmt.Errorf("durable: AddMany: job %d: %w", i, err)
}

// add stores the items of jobs, in the same order.
func (a *adder) add(ctx context.Context, jobs []Job, items []adding) ([]Ref, error) {
	refs := make([]Ref, len(items))
	if err := ctx.Err(); err != nil {
		return refs, context.Cause(ctx)
	}
	if a.closed.Err() != nil {
		return refs, ErrClosed
	}
	if len(items) == 0 {
		return refs, nil
	}
	c := &call{done: make(chan struct{})}
	c.left.Store(int64(len(items)))
	plain := make([]*adding, 0, len(items))
	var keyed []*adding
	for i := range items {
		it := &items[i]
		if it.call = c; it.rec.Key == "" {
			plain = append(plain, it)
		} else {
			keyed = append(keyed, it)
		}
	}
	waiting, keyed := a.contended.split(keyed)
	a.await(waiting)
	a.put(a.plain, plain)
	a.put(a.keyed, keyed)
	select {
	case <-c.done:
	case <-ctx.Done():
	}
	var errs []error
	for i := range items {
		it := &items[i]
		if !it.answered.Load() {
			errs = append(errs, ofJob(i, len(items), fmt.Errorf("%w: %w", ErrUncertain, context.Cause(ctx))))
			continue
		}
		refs[i] = it.ref
		if found := jobs[i].Found; found != nil {
			*found = it.found
		}
		if errors.Is(it.err, ErrExists) {
			it.err = fmt.Errorf("the key %.300q: %w", it.rec.Key, it.err)
		}
		if it.err != nil {
			errs = append(errs, ofJob(i, len(items), it.err))
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
		it.answer()
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
	var waiting []*adding
	defer func() { a.await(waiting) }()
	for i, it := range items {
		if errors.Is(errs[i], held.Err) {
			waiting = append(waiting, it)
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
		it.answer()
	}
}

// await puts Adds aside until their keys are free.
func (a *adder) await(items []*adding) {
	if len(items) == 0 || a.contended.put(items) {
		return
	}
	for _, it := range items {
		a.contended.leave(it)
		it.err = ErrClosed
		it.answer()
	}
}

// addTimeout is how long an engine may try to store: longer than an election.
const addTimeout = 30 * time.Second
