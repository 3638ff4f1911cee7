//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// ranJob is a job that has run.
type ranJob struct{ ahead, late time.Duration }

func lateOf(runs []ranJob) (all []time.Duration) {
	for _, r := range runs {
		all = append(all, r.late)
	}
	return all
}

// flow is jobs that run.
type flow struct {
	mu   sync.Mutex
	runs []ranJob
}

// note notes a job that runs, and returns how many have.
func (f *flow) note(j timedJob) int {
	late := max(0, time.Since(j.due))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs = append(f.runs, ranJob{j.ahead, late})
	return len(f.runs)
}

func (f *flow) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.runs)
}

// await waits until so many have run.
func (f *flow) await(n int) {
	for end := time.Now().Add(2 * patience); f.count() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			must(fmt.Errorf("of %d jobs %d have run", n, f.count()))
		}
	}
}

// crew is workers that run in this process, each with a Queue of its own.
type crew struct {
	flow
	full   chan struct{} // closed: the handlers of full kinds return
	ctx    context.Context
	cancel func()
	all    group
}

func newCrew() *crew {
	c := &crew{full: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// work starts a worker of some kinds, and of one whose handlers do not return before the end;
// "": none.
func (c *crew) work(q *durable.Queue, kinds []string, full string) {
	for _, kind := range kinds {
		q.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
			c.note(timedJob{due: a.Due})
			return nil
		})
	}
	if full != "" {
		q.Handle(full, func(context.Context, *durable.Attempt) error { <-c.full; return nil })
	}
	c.all.run(func() { must(q.Run(c.ctx)) })
}

// end ends the workers.
func (c *crew) end() {
	c.cancel()
	close(c.full)
	c.all.wait()
}

// quantile returns one of how late handlers began. The workers have ended.
func quantile(late []time.Duration, q float64) time.Duration {
	if len(late) == 0 {
		return 0
	}
	slices.Sort(late)
	return late[int(q*float64(len(late)-1))]
}

// latest formats the lateness of a table's row.
func latest(late []time.Duration) string {
	return fmt.Sprintf("late by p50 %s, p99 %s, max %s", ms(quantile(late, 0.5)), ms(quantile(late, 0.99)), ms(quantile(late, 1)))
}

// addAtRate adds jobs of some kinds at a rate, which are due between least and two seconds
// more from then. All of a moment are added by one call.
func addAtRate(q *durable.Queue, kinds []string, rate int, length, least time.Duration) (added int) {
	var all group
	for began := time.Now(); time.Since(began) < length; time.Sleep(time.Millisecond) {
		jobs := make([]durable.Job, int(time.Since(began).Seconds()*float64(rate))-added)
		for i := range jobs {
			jobs[i] = durable.Job{Kind: kinds[added%len(kinds)], After: least + rand.N(2*time.Second), Payload: make([]byte, 100)}
			added++
		}
		if len(jobs) > 0 {
			all.run(func() { addAll(q, jobs...) })
		}
	}
	all.wait()
	return added
}

func addAll(q *durable.Queue, jobs ...durable.Job) {
	get(q.AddMany(context.Background(), jobs...))
}

// fill adds jobs like one that are due in a span of time, from several goroutines.
func fillStore(q *durable.Queue, n int, job durable.Job, from, span time.Duration) {
	var left atomic.Int64
	left.Store(int64(n))
	var all group
	for range 4 {
		all.run(func() {
			for had := left.Add(-1000) + 1000; had > 0; had = left.Add(-1000) + 1000 {
				jobs := slices.Repeat([]durable.Job{job}, int(min(had, 1000)))
				for i := range jobs {
					jobs[i].After = from + rand.N(span)
				}
				addAll(q, jobs...)
			}
		})
	}
	all.wait()
}

// heap returns what is live, in MB.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func each[N int | int64](d time.Duration, n N) time.Duration {
	return (d / time.Duration(max(n, 1))).Round(time.Microsecond)
}

func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
