//go:build unix

// Package dropin_test measures each call of dropin beside package time and package context:
// what wins on the wheel is forwarded to it, see the table in dropin/README.md.
//
//	go test ./dropin -bench .
package dropin_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// A side is where timers are: in package time, or on the wheel.
type side struct {
	after       func(time.Duration) <-chan time.Time
	sleep       func(time.Duration)
	newTicker   func(time.Duration) (c <-chan time.Time, stop func())
	newTimer    func(time.Duration) (<-chan time.Time, timer)
	afterFunc   func(time.Duration, func()) timer
	withTimeout func(context.Context, time.Duration) (context.Context, context.CancelFunc)
}

type timer interface {
	Stop() bool
	Reset(time.Duration) bool
}

var packageTime = side{
	after:     time.After,
	sleep:     time.Sleep,
	newTicker: func(d time.Duration) (<-chan time.Time, func()) { t := time.NewTicker(d); return t.C, t.Stop },
	newTimer:  func(d time.Duration) (<-chan time.Time, timer) { t := time.NewTimer(d); return t.C, t },
	afterFunc: func(d time.Duration, f func()) timer { return time.AfterFunc(d, f) },

	withTimeout: context.WithTimeout,
}

func onWheel(w *timingwheel.TimingWheel) side {
	return side{
		after:     w.After,
		sleep:     w.Sleep,
		newTicker: func(d time.Duration) (<-chan time.Time, func()) { t := w.NewTicker(d); return t.C, t.Stop },
		newTimer:  func(d time.Duration) (<-chan time.Time, timer) { t := w.NewTimer(d); return t.C, t },
		afterFunc: func(d time.Duration, f func()) timer { return w.AfterFunc(d, f) },

		withTimeout: w.WithTimeout,
	}
}

const (
	rounds = 5
	spell  = 500 * time.Millisecond // of each side in each round, about
	long   = 10 * time.Second       // of timers that do not fire
)

// A set-up starts what is measured: work does it n times, and stop ends it.
type setUp func(s side) (work func(n int), stop func())

// beside runs both sides by turns, and reports the processor time of the process for each
// operation, garbage collection included. The ratio is the wheel's to package time's: the median
// of the rounds.
func beside(b *testing.B, name string, start setUp) {
	b.Run(name, func(b *testing.B) {
		if testing.Short() {
			b.Skip("it takes ten seconds")
		}
		w := timingwheel.New()
		defer w.Stop()
		sides := []side{packageTime, onWheel(w)}
		n := enough(start, packageTime)
		each, ratios := [2][]float64{}, []float64{}
		for range rounds {
			for i, s := range sides {
				work, stop := start(s)
				runtime.GC()
				before := processorTime()
				work(n)
				each[i] = append(each[i], float64(processorTime()-before)/float64(n))
				stop()
			}
			last := len(ratios)
			ratios = append(ratios, each[1][last]/each[0][last])
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(median(each[0]), "time-ns/op")
		b.ReportMetric(median(each[1]), "wheel-ns/op")
		b.ReportMetric(median(ratios), "ratio")
		b.ReportMetric(slices.Min(ratios), "least")
		b.ReportMetric(slices.Max(ratios), "most")
	})
}

// enough returns how many operations take a spell.
func enough(start setUp, s side) (n int) {
	work, stop := start(s)
	defer stop()
	for n = 1; ; n *= 4 {
		begin := time.Now()
		work(n)
		if took := time.Since(begin); took > spell/8 {
			return int(float64(n)*float64(spell)/float64(took)) + 1
		}
	}
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// loop is a set-up whose operation is one call.
func loop(start func(s side) (once func())) setUp {
	return func(s side) (func(int), func()) {
		once := start(s)
		return func(n int) {
			for range n {
				once()
			}
		}, func() {}
	}
}

// fewAndMany measures a call with nothing else pending, and beside a million functions that are.
func fewAndMany(b *testing.B, name string, start setUp) {
	beside(b, name+"/few", start)
	beside(b, name+"/million", func(s side) (func(int), func()) {
		others := make([]timer, 1e6)
		for i := range others {
			others[i] = s.afterFunc(time.Hour+time.Duration(i)*time.Millisecond, func() {})
		}
		work, stop := start(s)
		return work, func() {
			stop()
			for _, t := range others {
				t.Stop()
			}
		}
	})
}

// waiting is a set-up of goroutines that wait for 10 to 15 ms again and again. An operation
// is one wait.
func waiting(goroutines int, wait func(s side, d time.Duration)) setUp {
	return func(s side) (func(int), func()) {
		return func(n int) {
			done := make(chan bool)
			for g := range goroutines {
				go func() {
					for i := g; i < n; i += goroutines {
						wait(s, 10*time.Millisecond+time.Duration(i*7919%5000)*time.Microsecond)
					}
					done <- true
				}()
			}
			for range goroutines {
				<-done
			}
		}, func() {}
	}
}

// ticking is a set-up of tickers that were started in the course of a period. An operation
// is a millisecond.
func ticking(tickers int, period time.Duration, received bool) setUp {
	return func(s side) (func(int), func()) {
		done := make(chan bool)
		for range tickers {
			c, stop := s.newTicker(period)
			go func() {
				defer stop()
				for tick := c; ; {
					if !received {
						tick = nil
					}
					select {
					case <-tick:
					case <-done:
						return
					}
				}
			}()
			time.Sleep(period / time.Duration(tickers))
		}
		return func(n int) { time.Sleep(time.Duration(n) * time.Millisecond) }, func() { close(done) }
	}
}

func BenchmarkTicker(b *testing.B) {
	beside(b, "no receiver/10000 of 250ms", ticking(10000, 250*time.Millisecond, false))
	beside(b, "receiver/1 of 10ms", ticking(1, 10*time.Millisecond, true))
	beside(b, "receiver/1000 of 100ms", ticking(1000, 100*time.Millisecond, true))
	beside(b, "receiver/10000 of 250ms", ticking(10000, 250*time.Millisecond, true))
}

// One that nobody waits for is that of a select in which another channel is ready, 50 times
// in each millisecond.
func BenchmarkAfter(b *testing.B) {
	for _, d := range []time.Duration{100 * time.Millisecond, time.Second} {
		beside(b, fmt.Sprintf("nobody waits/%v", d), func(s side) (func(int), func()) {
			ready := make(chan bool)
			close(ready)
			return func(n int) {
				next := time.Now()
				for i := range n {
					select {
					case <-ready:
					case <-s.after(d):
					}
					if i%50 == 0 {
						next = next.Add(time.Millisecond)
						time.Sleep(time.Until(next))
					}
				}
			}, func() { time.Sleep(d) }
		})
	}
	await := func(s side, d time.Duration) { <-s.after(d) }
	beside(b, "awaited/by 1", waiting(1, await))
	beside(b, "awaited/by 1000", waiting(1000, await))
}

func BenchmarkSleep(b *testing.B) {
	beside(b, "1", waiting(1, side.doSleep))
	beside(b, "1000", waiting(1000, side.doSleep))
}

func (s side) doSleep(d time.Duration) { s.sleep(d) }

// Answered is a select that waits for an answer, and for a timer.
func BenchmarkNewTimer(b *testing.B) {
	fewAndMany(b, "stopped, nobody waits", loop(func(s side) func() {
		return func() { _, t := s.newTimer(long); t.Stop() }
	}))
	answered := func(s side, newTimer func() (<-chan time.Time, timer), after func(timer)) (func(int), func()) {
		ask, answer := make(chan bool), make(chan bool)
		go func() {
			for range ask {
				answer <- true
			}
		}()
		return func(n int) {
			for range n {
				c, t := newTimer()
				ask <- true
				select {
				case <-answer:
				case <-c:
				}
				after(t)
			}
		}, func() { close(ask) }
	}
	fewAndMany(b, "answered and stopped", func(s side) (func(int), func()) {
		return answered(s, func() (<-chan time.Time, timer) { return s.newTimer(long) }, func(t timer) { t.Stop() })
	})
	fewAndMany(b, "answered and reset", func(s side) (func(int), func()) {
		c, t := s.newTimer(long)
		return answered(s, func() (<-chan time.Time, timer) { return c, t }, func(t timer) { t.Reset(long) })
	})
	fire := func(s side, d time.Duration) { c, _ := s.newTimer(d); <-c }
	beside(b, "fires/1", waiting(1, fire))
	beside(b, "fires/1000", waiting(1000, fire))
}

func BenchmarkAfterFunc(b *testing.B) {
	fewAndMany(b, "stopped", loop(func(s side) func() {
		return func() { s.afterFunc(long, func() {}).Stop() }
	}))
	beside(b, "reset/hot", loop(func(s side) func() {
		t := s.afterFunc(long, func() {})
		return func() { t.Reset(long) }
	}))
	beside(b, "reset/one of 100,000", loop(func(s side) func() {
		all, at := make([]timer, 100_000), 0
		for i := range all {
			all[i] = s.afterFunc(time.Minute, func() {})
		}
		return func() { all[at].Reset(time.Minute); at = (at + 7919) % len(all) }
	}))
	fire := func(s side, d time.Duration) {
		fired := make(chan bool)
		s.afterFunc(d, func() { close(fired) })
		<-fired
	}
	beside(b, "fires/1", waiting(1, fire))
	beside(b, "fires/1000", waiting(1000, fire))
}

func BenchmarkContext(b *testing.B) {
	parent, cancel := context.WithCancel(context.Background())
	defer cancel()
	with := func(use func(ctx context.Context)) setUp {
		return loop(func(s side) func() {
			return func() {
				ctx, cancel := s.withTimeout(parent, long)
				use(ctx)
				cancel()
			}
		})
	}
	fewAndMany(b, "canceled", with(func(context.Context) {}))
	fewAndMany(b, "Done called", with(func(ctx context.Context) { ctx.Done() }))
	fewAndMany(b, "another derived", with(func(ctx context.Context) {
		_, cancel := context.WithCancel(ctx)
		cancel()
	}))
}
