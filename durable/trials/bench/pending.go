//go:build unix

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// fill adds jobs that are due in a span of time, from several goroutines.
func fill(q *durable.Queue, n int, from, span time.Duration) error {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	errs := make(chan error, 4)
	for range 4 {
		wg.Go(func() {
			for left.Add(-1000) > -1000 {
				jobs := make([]durable.Job, 1000)
				for i := range jobs {
					jobs[i] = durable.Job{Kind: "k", After: from + rand.N(span), Payload: make([]byte, 100)}
				}
				if _, err := q.AddMany(context.Background(), jobs...); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// pending measures what jobs take that wait, and how long it takes to open their store.
func pending() error {
	q, dir, remove, err := open()
	if err != nil {
		return err
	}
	defer func() { remove() }()
	before, began := heap(), time.Now()
	if err := fill(q, *n, 2*time.Hour, 22*time.Hour); err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Printf("%d pending: added in %v (%.0f/s), heap %.0f MB more\n", *n, took.Round(time.Millisecond), float64(*n)/took.Seconds(), heap()-before)
	if err := q.Close(); err != nil {
		return err
	}
	began = time.Now()
	if q, err = reopen(dir); err != nil {
		return err
	}
	remove = func() { q.Close() }
	fmt.Printf("%d pending: opened in %v\n", *n, time.Since(began).Round(time.Millisecond))
	return life(q, 1000, fmt.Sprintf("whole life at 1000/s beside %d pending", *n))
}

// overdue measures how long it takes to work off what is overdue at the start.
func overdue() error {
	const jobs = 100_000
	q, _, remove, err := open()
	if err != nil {
		return err
	}
	defer remove()
	if err := fill(q, jobs, 0, time.Millisecond); err != nil {
		return err
	}
	var ran atomic.Int64
	q.Handle("k", func(context.Context, *durable.Attempt) error { ran.Add(1); return nil })
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	before, peak := heap(), 0.0
	began := time.Now()
	wg.Go(func() { err = q.Run(ctx) })
	for ran.Load() < jobs && time.Since(began) < 5*time.Minute {
		peak = max(peak, heap())
		time.Sleep(200 * time.Millisecond)
	}
	fmt.Printf("%d overdue at the start: ran in %v, heap at most %.0f MB more\n", ran.Load(), time.Since(began).Round(time.Millisecond), peak-before)
	stop()
	wg.Wait()
	return err
}

// cascade measures how late jobs are while those of a far bucket are moved to near ones.
func cascade() error {
	const near, lead = 5 * time.Second, 20 * time.Second
	filling := time.Duration(*n / *rate)*time.Second + 30*time.Second
	// Buckets begin at the multiples of their width since 1970. The second far bucket of
	// this width begins when the filling and a margin of half a lead are over.
	start := time.Now().Add(filling + 2*lead).Truncate(near)
	far := time.Duration(start.Unix()) * time.Second
	q, _, remove, err := open(jetstream.Buckets(near, far, lead, 10*time.Second))
	if err != nil {
		return err
	}
	defer remove()
	began := time.Now()
	if err := fill(q, *n, time.Until(start)+10*time.Minute, time.Hour); err != nil {
		return err
	}
	fmt.Printf("cascade: heap %.0f MB\n", heap())
	fmt.Printf("cascade: %d added in %v; it begins in %v\n", *n, time.Since(began).Round(time.Second), time.Until(start.Add(-lead)).Round(time.Second))
	time.Sleep(time.Until(start.Add(-lead)))
	return life(q, 1000, fmt.Sprintf("whole life at 1000/s while %d cascade", *n))
}
