package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/timingwheel"
)

type newChannel = func(d time.Duration) (c <-chan time.Time, stop func())

// BenchmarkChannel makes a timer with a channel and stops it. With use=none nobody receives,
// and package time does not keep the timer in its heap at all. With use=select a goroutine
// waits for the timer or for a message of another goroutine, which comes first.
func BenchmarkChannel(b *testing.B) {
	subjects := both("time.NewTimer", func(d time.Duration) (<-chan time.Time, func()) {
		t := time.NewTimer(d)
		return t.C, func() { t.Stop() }
	}, "wheel.NewTimer", func(w *timingwheel.TimingWheel) newChannel {
		return func(d time.Duration) (<-chan time.Time, func()) {
			t := w.NewTimer(d)
			return t.C, func() { t.Stop() }
		}
	})
	eachSize(b, []int{0, 1_000_000}, func(b *testing.B, n int) {
		for _, use := range []string{"none", "select"} {
			b.Run("use="+use, func(b *testing.B) {
				compare(b, subjects, func(b *testing.B, s beside[newChannel]) {
					fill(s.timers, n)
					r, other := random(n), make(chan struct{})
					send := func() { other <- struct{}{} }
					loop(b, func() {
						c, stop := s.make(farOff(r))
						if use == "select" {
							go send()
							select {
							case <-c:
							case <-other:
							}
						}
						stop()
					})
				})
			})
		}
	})
}

// BenchmarkTicker has 100,000 tickers of a second, each with a goroutine that receives. CPU is
// the whole process's over two seconds, for each tick received. Most of it is the waking of
// the goroutines.
func BenchmarkTicker(b *testing.B) {
	subjects := both("time.NewTicker", func(d time.Duration) (<-chan time.Time, func()) {
		t := time.NewTicker(d)
		return t.C, t.Stop
	}, "wheel.NewTicker", func(w *timingwheel.TimingWheel) newChannel {
		return func(d time.Duration) (<-chan time.Time, func()) {
			t := w.NewTicker(d)
			return t.C, t.Stop
		}
	})
	compare(b, subjects, func(b *testing.B, s beside[newChannel]) {
		var received atomic.Int64
		var receivers sync.WaitGroup
		end := make(chan struct{})
		recur(b, size(100_000, 100), &received, func(period time.Duration) {
			c, stop := s.make(period)
			receivers.Go(func() {
				defer stop()
				for {
					select {
					case <-c:
						received.Add(1)
					case <-end:
						return
					}
				}
			})
		})
		close(end)
		receivers.Wait()
	})
}

// BenchmarkJob has 300,000 functions that run each second: a Job of the wheel, or a function
// that resets its own timer of package time. CPU is the whole process's over two seconds, for
// each run. Where the machine is too slow for all, runs/s is below 300,000.
func BenchmarkJob(b *testing.B) {
	type every = func(period time.Duration, f func())
	var stopping atomic.Bool
	var ended sync.WaitGroup
	subjects := both("time.AfterFunc+Reset", func(period time.Duration, f func()) {
		ended.Add(1)
		var t *time.Timer
		t = time.AfterFunc(time.Hour, func() {
			if stopping.Load() {
				ended.Done()
				return
			}
			f()
			t.Reset(period)
		})
		t.Reset(period) // only now, so that the function knows its timer
	}, "wheel.ScheduleAtFixedRate", func(w *timingwheel.TimingWheel) every {
		return func(period time.Duration, f func()) {
			if _, err := w.ScheduleAtFixedRate(period, period, f); err != nil {
				panic(err)
			}
		}
	})
	compare(b, subjects, func(b *testing.B, s beside[every]) {
		stopping.Store(false)
		var runs atomic.Int64
		f := func() { runs.Add(1) }
		recur(b, size(300_000, 100), &runs, func(period time.Duration) { s.make(period, f) })
		stopping.Store(true)
		ended.Wait()
	})
}

// recur starts n things that happen each second, over the first second, and measures what
// they take in the two seconds after they have all begun.
func recur(b *testing.B, n int, happened *atomic.Int64, start func(period time.Duration)) {
	period := size(time.Second, 20*time.Millisecond)
	once(b, func() {
		measure.ResetPeak()
		begin := time.Now()
		for i := range n {
			if i%100 == 0 {
				time.Sleep(time.Until(begin.Add(period * time.Duration(i) / time.Duration(n))))
			}
			start(period)
		}
		time.Sleep(period)
		measure.Settle()
		before, first := measure.Now(), happened.Load()
		time.Sleep(2 * period)
		after := measure.Now()
		ran := int(happened.Load() - first)
		if ran == 0 {
			tooSlow(b, "nothing has run")
		}
		reportCPU(b, before, after, ran, "run")
		b.ReportMetric(float64(ran)/after.Time.Sub(before.Time).Seconds(), "runs/s")
		b.ReportMetric(measure.PeakMB(), "peak-MB")
	})
}
