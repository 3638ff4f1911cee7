package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// late measures how late jobs are that are added at a rate. Half of them are due soon
// after, and half later than any system's scheduler takes to find them.
func (b *bench) late(ctx context.Context) error {
	t := newTable(fmt.Sprintf("%d scheduled jobs a second for %v: late by p50, p99, max", b.size.rate, b.size.late), b.systems)
	rows := [3][]string{}
	for _, s := range b.systems {
		l, err := b.lateness(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		rows[0] = append(rows[0], quantiles(l.near))
		rows[1] = append(rows[1], quantiles(l.far))
		rows[2] = append(rows[2], l.used.per(l.added))
		if n := len(l.near) + len(l.far); n != l.added {
			return fmt.Errorf("%s: %d added, %d ran", s.name, l.added, n)
		}
	}
	t.row(fmt.Sprintf("due %v to %v after they were added", b.size.near, 3*b.size.near), rows[0])
	t.row(fmt.Sprintf("due %v to %v after", b.size.far, b.size.far*5/3), rows[1])
	t.row("processor time each, server + client", rows[2])
	t.print()
	return nil
}

// lateness is how late jobs were.
type lateness struct {
	added int
	used  used
	isFar time.Duration // from so far ahead on

	mu        sync.Mutex
	near, far []time.Duration
}

func (l *lateness) ran(j job) {
	late := time.Since(j.due)
	l.mu.Lock()
	defer l.mu.Unlock()
	if j.ahead < l.isFar {
		l.near = append(l.near, late)
	} else {
		l.far = append(l.far, late)
	}
}

func (l *lateness) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.near) + len(l.far)
}

func (b *bench) lateness(ctx context.Context, s system) (*lateness, error) {
	q, closeAll, err := b.open(ctx, s)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	l := &lateness{isFar: b.size.far}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var workErr error
	before := b.server.used()
	wg.Go(func() { workErr = q.work(working, l.ran) })
	time.Sleep(time.Second) // it starts
	l.added, err = addAt(ctx, q, b.size.rate, b.size.late, func() job {
		ahead := b.size.near + rand.N(2*b.size.near)
		if rand.N(2) == 0 {
			ahead = b.size.far + rand.N(b.size.far*2/3)
		}
		return job{time.Now().Add(ahead), ahead}
	})
	for end := time.Now().Add(time.Minute); l.count() < l.added && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	l.used = b.server.used().since(before)
	stop()
	wg.Wait()
	if err == nil {
		err = workErr
	}
	return l, err
}

// addAt adds jobs at a rate, in calls of those of 5 ms, and returns how many. At most 64
// calls are under way at once: a system that cannot keep up gets fewer.
func addAt(ctx context.Context, q queue, rate int, length time.Duration, next func() job) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	calls := make(chan struct{}, 64)
	added := 0
	began := time.Now()
	for time.Since(began) < length && ctx.Err() == nil {
		jobs := make([]job, int(time.Since(began).Seconds()*float64(rate))-added)
		for i := range jobs {
			jobs[i] = next()
		}
		if added += len(jobs); len(jobs) > 0 {
			calls <- struct{}{}
			wg.Go(func() {
				defer func() { <-calls }()
				if err := q.add(ctx, jobs); err != nil {
					cancel(err)
				}
			})
		}
		time.Sleep(5 * time.Millisecond)
	}
	wg.Wait()
	return added, context.Cause(ctx)
}

func quantiles(d []time.Duration) string {
	if len(d) == 0 {
		return "-"
	}
	slices.Sort(d)
	ms := func(i int) string { return fmt.Sprintf("%.1f", float64(d[i])/1e6) }
	return fmt.Sprintf("%s, %s, %s ms", ms(len(d)/2), ms(len(d)*99/100), ms(len(d)-1))
}
