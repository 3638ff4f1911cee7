package main

import (
	"testing"
	"time"

	"github.com/panjf2000/ants/v2"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// BenchmarkPool runs 200,000 timers that come due within a second, or at the same moment, on
// eight workers: a pool.Pool, or the pool of github.com/panjf2000/ants, plugged in by its
// Submit. The row goroutines is the default executor, which has no bound. The units are those
// of BenchmarkFire.
func BenchmarkPool(b *testing.B) {
	const workers = 8
	subjects := []subject[timers]{
		{"ants", func(b *testing.B) timers {
			p, err := ants.NewPool(workers)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(p.Release)
			return schedule(newWheel(b, timingwheel.WithExecutor(timingwheel.SubmitFunc(p.Submit))))
		}},
		{"wheel.Pool", func(b *testing.B) timers {
			p := pool.New(workers, 0, pool.Wait)
			b.Cleanup(p.Close)
			return schedule(newWheel(b, timingwheel.WithExecutor(p)))
		}},
		{"wheel.Goroutines", func(b *testing.B) timers { return schedule(newWheel(b)) }},
	}
	n := size(200_000, 100)
	for _, spread := range []time.Duration{time.Second, 0} {
		b.Run("within="+spread.String(), func(b *testing.B) {
			compare(b, subjects, func(b *testing.B, t timers) {
				once(b, func() { burst(b, t, n, size(spread, spread/50), 0) })
			})
		})
	}
}
