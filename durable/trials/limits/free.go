//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

const (
	freeRounds = 9
	freeJobs   = 3000
	freeCost   = 1.03
)

// free measures what jobs pay that no limit covers: the processor time of a life, of this
// process and of the server, with no rules at all and with those of others. The two are
// alternated, and the median of the ratios counts.
func free(ctx context.Context, q *durable.Queue, f *fleet) ([]row, error) {
	var done atomic.Int64
	q.Handle(kindFree, func(context.Context, *durable.Attempt) error { done.Add(1); return nil })
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	var ratios []float64
	for i := range freeRounds + 1 {
		var took [2]time.Duration
		for k := range took {
			with := (i + k) % 2
			if err := othersLimits(ctx, q, with == 1); err != nil {
				return nil, err
			}
			d, err := lives(ctx, q, f, &done)
			if err != nil {
				return nil, err
			}
			took[with] = d
		}
		if i > 0 { // the first is a warm-up
			ratios = append(ratios, float64(took[1])/float64(took[0]))
		}
	}
	stop()
	if err := <-ended; err != nil {
		return nil, err
	}
	slices.Sort(ratios)
	median := ratios[len(ratios)/2]
	return []row{{
		fmt.Sprintf("jobs without a limit pay at most %v", freeCost),
		fmt.Sprintf("%.3f of the processor time, median of %d (%.3f to %.3f)", median, len(ratios), ratios[0], ratios[len(ratios)-1]),
		median <= freeCost,
	}}, nil
}

// othersLimits sets limits for other kinds, or removes them.
func othersLimits(ctx context.Context, q *durable.Queue, there bool) error {
	for i := range 10 {
		l := durable.Limit{}
		if there {
			l = durable.Limit{Kind: fmt.Sprint("other", i), Running: 1, PerLane: i%2 == 0}
		}
		if err := q.SetLimit(ctx, fmt.Sprint("other", i), l); err != nil && (there || !errors.Is(err, durable.ErrNotFound)) {
			return err
		}
	}
	sleep(ctx, time.Second) // until it is known everywhere
	return nil
}

// lives returns the processor time of the whole lives of jobs.
func lives(ctx context.Context, q *durable.Queue, f *fleet, done *atomic.Int64) (time.Duration, error) {
	from, began := done.Load(), f.cpu()
	for range freeJobs / 30 {
		jobs := make([]durable.Job, 30)
		for i := range jobs {
			jobs[i] = durable.Job{Kind: kindFree, Lane: "l"}
		}
		if err := addAll(q, jobs); err != nil {
			return 0, err
		}
		sleep(ctx, 10*time.Millisecond)
	}
	for end := time.Now().Add(time.Minute); ; sleep(ctx, 5*time.Millisecond) {
		if st := q.Stats(); done.Load()-from == freeJobs && st.Ending == 0 && st.Held == 0 {
			return f.cpu() - began, nil
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("of %d jobs without a limit %d have run", freeJobs, done.Load()-from)
		}
	}
}

// own is the processor time of this process.
func own() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
