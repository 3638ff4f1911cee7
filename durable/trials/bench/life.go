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
)

// lives measures whole lives at several rates: add, fetch, claim, run, done.
func lives() error {
	for _, rate := range []int{1000, 5000, 10000} {
		q, _, remove, err := open()
		if err != nil {
			return err
		}
		if err := life(q, rate, fmt.Sprintf("whole life at %5d/s", rate)); err != nil {
			return err
		}
		remove()
	}
	return nil
}

// life adds jobs that are due 1 to 3 s later at a rate, and runs them.
func life(q *durable.Queue, rate int, title string) error {
	var ran atomic.Int64
	q.Handle("k", func(context.Context, *durable.Attempt) error { ran.Add(1); return nil })
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var runErr error
	wg.Go(func() { runErr = q.Run(ctx) })
	time.Sleep(time.Second)
	before := cpu()
	added, err := add(q, rate, *length)
	for end := time.Now().Add(time.Minute); ran.Load() < added && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	used := cpu() - before
	stop()
	wg.Wait()
	st := q.Stats()
	fmt.Printf("%s: %d added, %d ran; late by p50 %s, p99 %s, max %s; %v of CPU each\n", title, added, ran.Load(),
		ms(st.Lateness.P50), ms(st.Lateness.P99), ms(st.Lateness.Max), (used / time.Duration(max(added, 1))).Round(time.Microsecond))
	if err != nil {
		return err
	}
	return runErr
}

// add adds jobs at a rate, in calls of those of a millisecond.
func add(q *durable.Queue, rate int, length time.Duration) (int64, error) {
	var wg sync.WaitGroup
	var firstErr error
	var mu sync.Mutex
	added := int64(0)
	began := time.Now()
	for time.Since(began) < length {
		due := int64(time.Since(began).Seconds() * float64(rate))
		jobs := make([]durable.Job, due-added)
		added = due
		for i := range jobs {
			jobs[i] = durable.Job{Kind: "k", After: time.Second + rand.N(2*time.Second), Payload: make([]byte, 100)}
		}
		if len(jobs) > 0 {
			wg.Go(func() {
				if _, err := q.AddMany(context.Background(), jobs...); err != nil {
					mu.Lock()
					firstErr = err
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Millisecond)
	}
	wg.Wait()
	return added, firstErr
}
