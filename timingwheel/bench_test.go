package timingwheel_test

import (
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The benchmarks in this file are for a look at a change. What the wheel costs beside
// package time and other libraries is measured in the module benchmarks.

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
