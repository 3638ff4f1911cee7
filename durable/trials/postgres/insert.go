package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// insert measures how many jobs a second are stored, each system on one database, in
// turns.
func (b *bench) insert(ctx context.Context) error {
	ways := []struct {
		title          string
		callers, batch int
	}{{"1 caller, one job a call", 1, 1}, {"32 callers, one job a call", 32, 1}, {"1 caller, 1000 jobs a call", 1, 1000}, {"4 callers, 1000 jobs a call", 4, 1000}}
	t := newTable("jobs stored a second", b.adders())
	for _, w := range ways {
		rates, costs := newSamples(), newSamples()
		err := b.inTurns(ctx, b.adders(), func(name string, q queue) error {
			before, began := b.server.used(), time.Now()
			n, err := insertFor(ctx, q, b.size.insert, w.callers, w.batch)
			rates.add(name, float64(n)/time.Since(began).Seconds())
			u := b.server.used().since(before)
			costs.add(name, float64((u.server+u.client)/time.Duration(max(n, 1)))/1e3)
			return err
		})
		if err != nil {
			return err
		}
		t.row(w.title, rates.medians("%.0f"))
		t.row("- processor time each, server and client", costs.medians("%.0f us"))
	}
	t.print()
	return nil
}

// insertFor adds jobs that are due in an hour, from so many callers.
func insertFor(ctx context.Context, q queue, length time.Duration, callers, batch int) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var added atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(length)
	for range callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := q.add(ctx, dueIn(time.Hour, batch)); err != nil {
					cancel(err)
					return
				}
				added.Add(int64(batch))
			}
		})
	}
	wg.Wait()
	return int(added.Load()), context.Cause(ctx)
}

// dueIn returns n jobs that are due so long from now.
func dueIn(d time.Duration, n int) []job {
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{time.Now().Add(d), d}
	}
	return jobs
}

// inTurns opens each system on a database of its own, and measures them in turns, so that
// what else the machine does meets all of them.
func (b *bench) inTurns(ctx context.Context, systems []system, measure func(string, queue) error) error {
	queues := make([]queue, len(systems))
	for i, s := range systems {
		q, closeAll, err := b.open(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer closeAll()
		queues[i] = q
	}
	for range b.size.rounds {
		for i, s := range systems {
			if err := measure(s.name, queues[i]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}

// open opens a system on a new database.
func (b *bench) open(ctx context.Context, s system) (queue, func(), error) {
	dsn, drop, err := b.server.database(ctx)
	if err != nil {
		return nil, nil, err
	}
	q, err := s.open(ctx, dsn)
	if err != nil {
		drop()
		return nil, nil, err
	}
	return q, func() { q.close(); drop() }, nil
}

// adders returns the systems, without those that add as the one before does.
func (b *bench) adders() []system {
	return slices.DeleteFunc(slices.Clone(b.systems), func(s system) bool { return s.twin })
}
