//go:build unix

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// accept measures how many jobs a second are accepted, each by a call of its own.
func accept() error {
	for _, callers := range []int{1, 64, 256, 2000} {
		q, _, remove, err := open()
		if err != nil {
			return err
		}
		acceptBy(q, callers, "accepted a second")
		remove()
	}
	return nil
}

// acceptBy has so many callers add jobs to a Queue that are due in a day.
func acceptBy(q *durable.Queue, callers int, title string) {
	var accepted atomic.Int64
	var wg sync.WaitGroup
	job := durable.Job{Kind: "k", After: 24 * time.Hour, Payload: make([]byte, 100)}
	before, began := cpu(), time.Now()
	end := began.Add(*length / 2)
	for range callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				if _, err := q.Add(context.Background(), job); err == nil {
					accepted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	took, count := time.Since(began), accepted.Load()
	fmt.Printf("%s, %4d callers: %.0f, %v of CPU each\n", title, callers,
		float64(count)/took.Seconds(), ((cpu() - before) / time.Duration(max(count, 1))).Round(time.Microsecond))
}
