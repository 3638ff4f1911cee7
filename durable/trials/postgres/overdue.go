package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// overdue measures how fast jobs are worked off that are overdue when a worker starts,
// until the last of their ends is written down, but for no longer than the patience.
func (b *bench) overdue(ctx context.Context) error {
	const patience = 10 * time.Second
	t := newTable(fmt.Sprintf("%d overdue, or as many as are run in %v", b.size.overdue, patience), b.systems)
	rates, server, client := newSamples(), newSamples(), newSamples()
	for range b.size.rounds {
		for _, s := range b.systems {
			n, took, u, err := b.workOff(ctx, s, patience)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			rates.add(s.name, n/took.Seconds())
			server.add(s.name, float64(u.server.Microseconds())/n)
			client.add(s.name, float64(u.client.Microseconds())/n)
		}
	}
	t.row("run and ended, a second", rates.medians("%.0f"))
	t.row("- processor time of the server, each", server.medians("%.0f us"))
	t.row("- of the client, each", client.medians("%.0f us"))
	t.print()
	return nil
}

// workOff returns how many were run, in what time, and at what cost.
func (b *bench) workOff(ctx context.Context, s system, patience time.Duration) (float64, time.Duration, used, error) {
	q, closeAll, err := b.open(ctx, s)
	if err != nil {
		return 0, 0, used{}, err
	}
	defer closeAll()
	for left := b.size.overdue; left > 0; left -= 1000 {
		if err := q.add(ctx, dueIn(-time.Second, min(left, 1000))); err != nil {
			return 0, 0, used{}, err
		}
	}
	var ran atomic.Int64
	working, stop := context.WithTimeout(ctx, patience)
	defer stop()
	before, began := b.server.used(), time.Now()
	err = q.work(working, func(job) {
		if ran.Add(1) == int64(b.size.overdue) {
			stop()
		}
	})
	return float64(ran.Load()), time.Since(began), b.server.used().since(before), err
}
