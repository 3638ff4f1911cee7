package timingwheel_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Use the benchmarks in this file to check a change. The module benchmarks compares the cost of the
// wheel with package time and other libraries.

// BenchmarkNew makes and stops wheels.
func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		timingwheel.New().Stop()
	}
}

func BenchmarkSchedule(b *testing.B) {
	w := timingwheel.New()
	defer w.Stop()
	b.ReportAllocs()
	for b.Loop() {
		timeout, _ := w.Schedule(time.Hour, noop)
		timeout.Cancel()
	}
}

func BenchmarkAfterFunc(b *testing.B) {
	w := timingwheel.New()
	defer w.Stop()
	b.ReportAllocs()
	for b.Loop() {
		w.AfterFunc(time.Hour, noop).Stop()
	}
}

// BenchmarkTick is one session after the other, of up to half an hour each, on wheels of
// different ticks: the table at WithTick. Time is virtual, so a wake-up of the driver
// costs no sleep.
func BenchmarkTick(b *testing.B) {
	for _, tick := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		b.Run(tick.String(), func(b *testing.B) {
			const sessions, longest = 100_000, 30 * time.Minute
			r := rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				w := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithManualClock(time.Unix(0, 0)))
				for range sessions {
					w.Schedule(time.Duration(r.Int64N(int64(longest))), noop)
				}
				w.Advance(longest + tick)
				w.Stop()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/sessions, "ns/session")
		})
	}
}
