package jetstream_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// BenchmarkKeyedAdds compares Adds of 256 goroutines, a second: without keys, of keys that are free, and
// of keys whose job they push back. The three take turns.
func BenchmarkKeyedAdds(b *testing.B) {
	q, err := durable.Open(b.Context(), newStore(b, jetstream.WithBuckets(jetstream.Buckets{})).Open(b))
	require.NoError(b, err)
	defer q.Close()
	var fresh atomic.Int64
	adds := map[string]func(i int) durable.Job{
		"plain": func(int) durable.Job { return durable.Job{} },
		"keyed": func(int) durable.Job { return durable.Job{Key: "fresh" + strconv.FormatInt(fresh.Add(1), 10)} },
		"later": func(i int) durable.Job {
			return durable.Job{Key: "later" + strconv.Itoa(i), OnKey: durable.Later, MaxWait: 24 * time.Hour}
		},
		"onekey": func(int) durable.Job { return durable.Job{Key: "one", OnKey: durable.Replace} },
	}
	rates := map[string][]float64{}
	for b.Loop() {
		for range 5 {
			for name, job := range adds {
				rates[name] = append(rates[name], rate(b, q, 256, time.Second, job))
			}
		}
	}
	for name, all := range rates {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"/s")
	}
}

// rate returns how many Adds a second some goroutines complete.
func rate(b *testing.B, q *durable.Queue, callers int, length time.Duration, job func(i int) durable.Job) float64 {
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for i := range callers {
		wg.Go(func() {
			for time.Since(began) < length {
				j := job(i)
				j.Kind, j.After, j.Payload = "k", time.Hour, make([]byte, 100)
				if _, err := q.Add(b.Context(), j); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

// BenchmarkPlainBesideKeyed tells how late plain jobs of a queue are, 100 a second, alone and beside 25
// debounced Adds a second. The two take turns.
func BenchmarkPlainBesideKeyed(b *testing.B) {
	q, err := durable.Open(b.Context(), newStore(b, jetstream.WithBuckets(jetstream.Buckets{})).Open(b))
	require.NoError(b, err)
	defer q.Close()
	var mu sync.Mutex
	var late []float64
	q.Handle("plain", func(_ context.Context, a *durable.Attempt) error {
		mu.Lock()
		defer mu.Unlock()
		late = append(late, float64(time.Since(a.Due))/1e6)
		return nil
	})
	q.Handle("keyed", func(context.Context, *durable.Attempt) error { return nil })
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	defer func() { stop(); <-ended }()
	medians := map[bool][]float64{}
	for b.Loop() {
		for range 3 {
			for _, beside := range []bool{false, true} {
				time.Sleep(2 * time.Second)
				mu.Lock()
				late = nil
				mu.Unlock()
				var wg sync.WaitGroup
				every := func(d time.Duration, job func(n int) durable.Job) {
					wg.Go(func() {
						for began, n := time.Now(), 0; time.Since(began) < 5*time.Second; n++ {
							time.Sleep(time.Until(began.Add(time.Duration(n) * d)))
							wg.Go(func() {
								if _, err := q.Add(b.Context(), job(n)); err != nil {
									b.Error(err)
								}
							})
						}
					})
				}
				every(10*time.Millisecond, func(int) durable.Job { return durable.Job{Kind: "plain", After: time.Second} })
				if beside {
					every(40*time.Millisecond, func(n int) durable.Job {
						return durable.Job{Kind: "keyed", Key: fmt.Sprint("k", n%5), OnKey: durable.Later, After: time.Second, MaxWait: 2 * time.Second, FreeWhenBegun: true}
					})
				}
				wg.Wait()
				time.Sleep(1500 * time.Millisecond)
				mu.Lock()
				slices.Sort(late)
				medians[beside] = append(medians[beside], late[len(late)/2])
				mu.Unlock()
			}
		}
	}
	for beside, name := range map[bool]string{false: "ms-alone", true: "ms-beside-keyed"} {
		slices.Sort(medians[beside])
		b.ReportMetric(medians[beside][len(medians[beside])/2], name)
	}
}
