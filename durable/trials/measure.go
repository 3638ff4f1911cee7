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
	"syscall"
	"time"
)

// ranJob is a job that has run.
type ranJob struct {
	timedJob
	began time.Time
}

// lateOf returns how late jobs began, sorted.
func lateOf(runs []ranJob) (all []time.Duration) {
	for _, r := range runs {
		all = append(all, max(0, r.began.Sub(r.due)))
	}
	slices.Sort(all)
	return all
}

// flow is jobs that run. Its zero value is empty.
type flow struct {
	mu   sync.Mutex
	runs []ranJob
	all  group
}

func (f *flow) note(j timedJob) {
	began := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs = append(f.runs, ranJob{j, began})
}

// since returns the jobs that have run after the first n.
func (f *flow) since(n int) []ranJob {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.runs[n:])
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

// work runs the jobs of peers, until the function that it returns is called.
func (f *flow) work(peers ...peer) (end func()) {
	ctx, stop := context.WithCancel(background)
	for _, p := range peers {
		f.all.run(func() { p.work(ctx, f.note) })
	}
	return func() { stop(); f.all.wait() }
}

// within returns random times, between least and least + more ahead.
func within(least, more time.Duration) func() time.Duration {
	return func() time.Duration { return least + rand.N(more) }
}

// addAhead adds jobs at a rate, in calls with those of a step. At most 64 calls are under way at once: a
// system that cannot keep up gets fewer.
func addAhead(p peer, rate int, length, step time.Duration, ahead func() time.Duration) (added int) {
	var all group
	all.SetLimit(64)
	for began := time.Now(); time.Since(began) < length; time.Sleep(step) {
		jobs := jobsAhead(int(time.Since(began).Seconds()*float64(rate))-added, ahead)
		if added += len(jobs); len(jobs) > 0 {
			all.run(func() { p.add(jobs) })
		}
	}
	all.wait()
	return added
}

// fill adds n jobs, from four callers.
func fill(p peer, n int, ahead func() time.Duration) {
	const callers, most = 4, 1000
	var all group
	for i := range callers {
		all.run(func() {
			for left := n*(i+1)/callers - n*i/callers; left > 0; left -= most {
				p.add(jobsAhead(min(left, most), ahead))
			}
		})
	}
	all.wait()
}

// quantile returns one of durations, which are sorted.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return all[int(q*float64(len(all)-1))]
}

// heap returns what is live, in MB.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// cpu returns the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

func each(d time.Duration, n int) time.Duration {
	return (d / time.Duration(max(n, 1))).Round(time.Microsecond)
}

func median[T cmp.Ordered](v []T) T {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
