// Package scaling measures what SCALING.md says about many processors.
package scaling

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// BenchmarkScaling is an add and a cancel by all processors at the same time, for SCALING.md:
// on shards of their own, on one that they share, under a limit, and on package time. The
// last row adds and fires, which all drivers there are, one, have to keep up with.
//
//	go test ./internal/scaling -run xxx -bench Scaling -cpu 1,2,4,8,16,64 -count 5
func BenchmarkScaling(b *testing.B) {
	pairs := func(opts ...timingwheel.Option) func(b *testing.B) {
		return func(b *testing.B) {
			w := timingwheel.New(opts...)
			defer w.Stop()
			parallel(b, func() {
				t, err := w.Schedule(time.Hour, func() {})
				if err != nil || !t.Cancel() {
					b.Error(err)
				}
			})
		}
	}
	b.Run("own", pairs())
	b.Run("shared", pairs(timingwheel.WithShards(1)))
	b.Run("limit", pairs(timingwheel.WithMaxPending(1<<30)))
	b.Run("time", func(b *testing.B) {
		parallel(b, func() { time.AfterFunc(time.Hour, func() {}).Stop() })
	})
	b.Run("fire", func(b *testing.B) {
		w := timingwheel.New()
		defer w.Stop()
		var fired atomic.Int64
		f := func() { fired.Add(1) }
		parallel(b, func() { w.Schedule(10*time.Millisecond, f) })
		for fired.Load() < int64(b.N) {
			time.Sleep(time.Millisecond)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "M-fires/s")
	})
}

// parallel reports the processor time of an operation, besides the time.
func parallel(b *testing.B, op func()) {
	before := measure.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			op()
		}
	})
	b.ReportMetric(float64(measure.Now().CPU-before.CPU)/float64(b.N), "cpu-ns/op")
}
