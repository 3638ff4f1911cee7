//go:build unix

package timingwheel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// The benchmarks in this file run the wheel and time.AfterFunc in turn, and report
// the ratio of their costs, wheel / time.AfterFunc: the median over the rounds,
// of which -benchtime=9x makes nine. Only ratios mean anything on a machine with
// other things to do; the absolute figures beside them are medians too.
//
// Each subject is alone while it is measured: what the other needed is gone and
// collected.

// versus runs the two in turn, and reports their costs in the unit, and the ratio.
// A measurement sets up and cleans up after itself and returns its cost.
func versus(b *testing.B, unit string, wheel, baseline func() float64) {
	var wheels, baselines, ratios []float64
	for b.Loop() {
		runtime.GC()
		theirs := baseline()
		runtime.GC()
		ours := wheel()
		wheels, baselines = append(wheels, ours), append(baselines, theirs)
		ratios = append(ratios, ours/theirs)
	}
	b.ReportMetric(0, "ns/op") // the time of a round says nothing
	b.ReportMetric(median(wheels), "wheel-"+unit)
	b.ReportMetric(median(baselines), "time-"+unit)
	b.ReportMetric(median(ratios), "ratio")
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// farOff is a delay that does not come due: from a minute to a day.
func farOff(r *rand.Rand) time.Duration {
	return time.Minute + time.Duration(r.Int64N(int64(24*time.Hour)))
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) }

// onAll runs f on each processor, so that what it adds is spread over them, in
// the heaps of package time as in the shards of a wheel.
func onAll(n int, f func(r *rand.Rand, n int)) {
	var wg sync.WaitGroup
	procs := runtime.GOMAXPROCS(0)
	for p := range procs {
		wg.Go(func() { f(newRand(), n*(p+1)/procs-n*p/procs) })
	}
	wg.Wait()
}

// filledWheel returns a wheel with so many pending, far off.
func filledWheel(n int) *timingwheel.TimingWheel {
	w := timingwheel.New()
	onAll(n, func(r *rand.Rand, n int) {
		for range n {
			w.Schedule(farOff(r), noop)
		}
	})
	return w
}

// fillTime starts so many timers of package time, and returns what stops them.
func fillTime(n int) (stop func()) {
	var mu sync.Mutex
	var timers []*time.Timer
	onAll(n, func(r *rand.Rand, n int) {
		mine := make([]*time.Timer, n)
		for i := range mine {
			mine[i] = time.AfterFunc(farOff(r), noop)
		}
		mu.Lock()
		defer mu.Unlock()
		timers = append(timers, mine...)
	})
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// perOp returns the time of one of n operations.
func perOp(n int, f func(r *rand.Rand)) float64 {
	r := newRand()
	start := time.Now()
	for range n {
		f(r)
	}
	return float64(time.Since(start)) / float64(n)
}

const opsPerRound = 1_000_000

func wheelAddCancel(pending int) float64 {
	w := filledWheel(pending)
	defer w.Stop()
	runtime.GC()
	return perOp(opsPerRound, func(r *rand.Rand) {
		timeout, _ := w.Schedule(farOff(r), noop)
		timeout.Cancel()
	})
}

func timeAddCancel(pending int) float64 {
	defer fillTime(pending)()
	runtime.GC()
	return perOp(opsPerRound, func(r *rand.Rand) { time.AfterFunc(farOff(r), noop).Stop() })
}

func BenchmarkVersusScheduleCancel(b *testing.B) {
	for _, pending := range []int{0, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			versus(b, "ns",
				func() float64 { return wheelAddCancel(pending) },
				func() float64 { return timeAddCancel(pending) })
		})
	}
}

func BenchmarkVersusAfterFuncStop(b *testing.B) {
	for _, pending := range []int{0, 1_000_000} {
		b.Run(fmt.Sprintf("pending=%d", pending), func(b *testing.B) {
			versus(b, "ns", func() float64 {
				w := filledWheel(pending)
				defer w.Stop()
				runtime.GC()
				return perOp(opsPerRound, func(r *rand.Rand) { w.AfterFunc(farOff(r), noop).Stop() })
			}, func() float64 { return timeAddCancel(pending) })
		})
	}
}

// A context's timeout that is canceled in time, below a parent that cannot be
// canceled and one that can, and with nobody or somebody who asks for Done.
func BenchmarkVersusWithTimeout(b *testing.B) {
	type withTimeout func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	cancelable, cancel := context.WithCancel(context.Background())
	defer cancel()
	measure := func(f withTimeout, parent context.Context, look bool) float64 {
		return perOp(opsPerRound/2, func(r *rand.Rand) {
			ctx, cancel := f(parent, farOff(r))
			if look {
				ctx.Done()
			}
			cancel()
		})
	}
	for _, pending := range []int{0, 1_000_000} {
		for name, parent := range map[string]context.Context{"background": context.Background(), "cancelable": cancelable} {
			for _, look := range []bool{false, true} {
				b.Run(fmt.Sprintf("pending=%d/parent=%s/done=%t", pending, name, look), func(b *testing.B) {
					versus(b, "ns", func() float64 {
						w := filledWheel(pending)
						defer w.Stop()
						runtime.GC()
						return measure(w.WithTimeout, parent, look)
					}, func() float64 {
						defer fillTime(pending)()
						runtime.GC()
						return measure(context.WithTimeout, parent, look)
					})
				})
			}
		}
	}
}

// A timer with a channel that is stopped in time, with nobody receiving, and with a
// goroutine that waits for it or for another channel, which comes first.
func BenchmarkVersusNewTimer(b *testing.B) {
	first := func(timer <-chan time.Time, other chan struct{}) {
		go func() { other <- struct{}{} }()
		select {
		case <-timer:
		case <-other:
		}
	}
	for _, pending := range []int{0, 1_000_000} {
		for _, receive := range []bool{false, true} {
			b.Run(fmt.Sprintf("pending=%d/receive=%t", pending, receive), func(b *testing.B) {
				other := make(chan struct{})
				versus(b, "ns", func() float64 {
					w := filledWheel(pending)
					defer w.Stop()
					runtime.GC()
					return perOp(opsPerRound/2, func(r *rand.Rand) {
						timer := w.NewTimer(farOff(r))
						if receive {
							first(timer.C, other)
						}
						timer.Stop()
					})
				}, func() float64 {
					defer fillTime(pending)()
					runtime.GC()
					return perOp(opsPerRound/2, func(r *rand.Rand) {
						timer := time.NewTimer(farOff(r))
						if receive {
							first(timer.C, other)
						}
						timer.Stop()
					})
				})
			})
		}
	}
}

// CPU time of the process over 10 s with 100,000 tickers of 1 s, each with a
// goroutine that receives, begun all over a second: for each tick.
func BenchmarkVersusTicker(b *testing.B) {
	const tickers, seconds = 100_000, 10
	measure := func(newTicker func() (<-chan time.Time, func())) float64 {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i := range tickers {
			c, stop := newTicker()
			wg.Go(func() {
				defer stop()
				for {
					select {
					case <-c:
					case <-ctx.Done():
						return
					}
				}
			})
			if i%100 == 0 {
				time.Sleep(time.Second * 100 / tickers)
			}
		}
		before := cpuTime()
		time.Sleep(seconds * time.Second)
		cpu := cpuTime() - before
		cancel()
		wg.Wait()
		return float64(cpu) / tickers / seconds
	}
	versus(b, "cpu-ns", func() float64 {
		w := timingwheel.New()
		defer w.Stop()
		return measure(func() (<-chan time.Time, func()) { t := w.NewTicker(time.Second); return t.C, t.Stop })
	}, func() float64 {
		return measure(func() (<-chan time.Time, func()) { t := time.NewTicker(time.Second); return t.C, t.Stop })
	})
}

// A million jobs of a period of 1 s, begun all over a second: CPU time of the process
// over 5 s, for each run; against functions that set their own time.Timer anew.
func BenchmarkVersusJobs(b *testing.B) {
	const jobs, seconds = 1_000_000, 5
	measure := func(runs *atomic.Int64, start func(i int)) float64 {
		for i := range jobs {
			start(i)
			if i%1000 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		cpu, before := cpuTime(), runs.Load()
		time.Sleep(seconds * time.Second)
		return float64(cpuTime()-cpu) / float64(runs.Load()-before)
	}
	versus(b, "cpu-ns", func() float64 {
		w := timingwheel.New()
		defer w.Stop()
		var runs atomic.Int64
		return measure(&runs, func(int) { w.ScheduleAtFixedRate(time.Second, time.Second, func() { runs.Add(1) }) })
	}, func() float64 {
		var runs atomic.Int64
		timers := make([]*time.Timer, jobs)
		defer func() {
			for _, t := range timers {
				t.Stop()
			}
			time.Sleep(100 * time.Millisecond)
			for _, t := range timers {
				t.Stop()
			}
		}()
		return measure(&runs, func(i int) {
			timers[i] = time.AfterFunc(time.Hour, func() {
				runs.Add(1)
				timers[i].Reset(time.Second)
			})
			timers[i].Reset(time.Second) // only now, so that the function knows its timer
		})
	})
}

// keyedTime is what a program writes for itself: a mutex, a map, and time.AfterFunc.
type keyedTime struct {
	mu     sync.Mutex
	timers map[int]*time.Timer
}

func (k *keyedTime) schedule(key int, d time.Duration, f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.timers[key]; old != nil {
		old.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		k.mu.Lock()
		mine := k.timers[key] == timer
		if mine {
			delete(k.timers, key)
		}
		k.mu.Unlock()
		if mine {
			f()
		}
	})
	k.timers[key] = timer
}

func (k *keyedTime) cancel(key int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if timer := k.timers[key]; timer != nil {
		timer.Stop()
		delete(k.timers, key)
	}
}

// 100,000 keys, each scheduled again and again, and now and then canceled.
func BenchmarkVersusKeyed(b *testing.B) {
	const keys = 100_000
	measure := func(goroutines int, schedule func(key int), cancel func(key int)) float64 {
		var wg sync.WaitGroup
		start := time.Now()
		for range goroutines {
			wg.Go(func() {
				r := newRand()
				for range opsPerRound / goroutines {
					if key := r.IntN(keys); r.IntN(4) == 0 {
						cancel(key)
					} else {
						schedule(key)
					}
				}
			})
		}
		wg.Wait()
		return float64(time.Since(start)) / opsPerRound
	}
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			versus(b, "ns", func() float64 {
				w := timingwheel.New()
				defer w.Stop()
				k := timingwheel.NewKeyed[int](w)
				return measure(goroutines,
					func(key int) { k.Schedule(key, time.Minute, noop) },
					func(key int) { k.Cancel(key) })
			}, func() float64 {
				k := &keyedTime{timers: map[int]*time.Timer{}}
				defer func() {
					for key := range keys {
						k.cancel(key)
					}
				}()
				return measure(goroutines, func(key int) { k.schedule(key, time.Minute, noop) }, k.cancel)
			})
		})
	}
}

// The same operation on a wheel with 10 M pending over 10 k: here the baseline is
// the smaller wheel, and the ratio says how flat the cost is.
func BenchmarkVersusSmallWheel(b *testing.B) {
	versus(b, "ns",
		func() float64 { return wheelAddCancel(10_000_000) },
		func() float64 { return wheelAddCancel(10_000) })
}

// All processors busy, with so many goroutines each. Wall time an operation.
func BenchmarkVersusParallel(b *testing.B) {
	const pending = 1_000_000
	parallel := func(width int, op func(r *rand.Rand)) float64 {
		goroutines := width * runtime.GOMAXPROCS(0)
		each := 2 * opsPerRound / goroutines
		var wg sync.WaitGroup
		start := time.Now()
		for range goroutines {
			wg.Go(func() {
				r := newRand()
				for range each {
					op(r)
				}
			})
		}
		wg.Wait()
		return float64(time.Since(start)) / float64(each*goroutines)
	}
	for _, width := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", width), func(b *testing.B) {
			versus(b, "ns", func() float64 {
				w := filledWheel(pending)
				defer w.Stop()
				runtime.GC()
				return parallel(width, func(r *rand.Rand) {
					timeout, _ := w.Schedule(farOff(r), noop)
					timeout.Cancel()
				})
			}, func() float64 {
				defer fillTime(pending)()
				runtime.GC()
				return parallel(width, func(r *rand.Rand) { time.AfterFunc(farOff(r), noop).Stop() })
			})
		})
	}
}

// 100,000 timers of a minute, pushed back in random order.
func BenchmarkVersusReset(b *testing.B) {
	const timers, ops = 100_000, opsPerRound
	versus(b, "ns", func() float64 {
		w := timingwheel.New()
		defer w.Stop()
		all := make([]*timingwheel.Timer, timers)
		for i := range all {
			all[i] = w.AfterFunc(time.Minute, noop)
		}
		return perOp(ops, func(r *rand.Rand) { all[r.IntN(timers)].Reset(time.Minute) })
	}, func() float64 {
		all := make([]*time.Timer, timers)
		for i := range all {
			all[i] = time.AfterFunc(time.Minute, noop)
		}
		defer func() {
			for _, t := range all {
				t.Stop()
			}
		}()
		return perOp(ops, func(r *rand.Rand) { all[r.IntN(timers)].Reset(time.Minute) })
	})
}

// Bytes for each of 1 M pending.
func BenchmarkVersusMemory(b *testing.B) {
	const pending = 1_000_000
	versus(b, "B", func() float64 {
		before := float64(liveHeap())
		w := filledWheel(pending)
		defer w.Stop()
		return (float64(liveHeap()) - before) / pending
	}, func() float64 {
		before := float64(liveHeap())
		stop := fillTime(pending)
		defer stop()
		return (float64(liveHeap())-before)/pending - 8 // the slice that keeps them
	})
}

// One full collection with 5 M pending that share one function: the least of
// five.
func BenchmarkVersusGC(b *testing.B) {
	const pending = 5_000_000
	collect := func() float64 {
		runtime.GC()
		least := time.Duration(1 << 62)
		for range 5 {
			start := time.Now()
			runtime.GC()
			least = min(least, time.Since(start))
		}
		return ms(least)
	}
	versus(b, "ms", func() float64 {
		w := filledWheel(pending)
		defer w.Stop()
		return collect()
	}, func() float64 {
		defer fillTime(pending)()
		return collect()
	})
}

func rusage() (r syscall.Rusage) {
	syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return r
}

func cpuTime() time.Duration {
	r := rusage()
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// burst calls after for n tasks that come due within one second, one after the
// other, the first when about all are added. It reads the clock for every 64th
// only, since that costs a good part of what is measured.
func burst(n int, after func(i int, d time.Duration, due time.Time)) (last time.Time) {
	first := time.Now().Add(time.Duration(n) * 500 * time.Nanosecond)
	var now time.Time
	for i := range n {
		if i%64 == 0 {
			now = time.Now()
		}
		last = first.Add(time.Duration(i) * time.Second / time.Duration(n))
		after(i, last.Sub(now), last)
	}
	return last
}

// 1 M tasks due within one second: CPU time of the process for each, adding
// included, with tasks that do nothing.
func BenchmarkVersusFire(b *testing.B) {
	const tasks = 1_000_000
	cpu := func(after func(d time.Duration, f func())) float64 {
		before := cpuTime()
		last := burst(tasks, func(_ int, d time.Duration, _ time.Time) { after(d, noop) })
		time.Sleep(time.Until(last))
		time.Sleep(500 * time.Millisecond) // more than the last can be late
		return float64(cpuTime()-before) / tasks
	}
	versus(b, "cpu-ns", func() float64 {
		w := timingwheel.New()
		defer w.Stop()
		return cpu(func(d time.Duration, f func()) { w.Schedule(d, f) })
	}, func() float64 {
		return cpu(func(d time.Duration, f func()) { time.AfterFunc(d, f) })
	})
}

// 1 M tasks due within one second: how late 99 % of them have run, and the last.
func BenchmarkVersusBurst(b *testing.B) {
	const tasks = 1_000_000
	lateness := func(after func(d time.Duration, f func())) (p99, last float64) {
		late := make([]time.Duration, tasks)
		var done sync.WaitGroup
		done.Add(tasks)
		burst(tasks, func(i int, d time.Duration, due time.Time) {
			after(d, func() {
				late[i] = time.Since(due)
				done.Done()
			})
		})
		done.Wait()
		last = ms(late[tasks-1])
		slices.Sort(late)
		if late[0] < 0 {
			b.Fatalf("early by %v", -late[0])
		}
		return ms(late[tasks*99/100]), last
	}
	var last, timeLast []float64
	versus(b, "p99-ms", func() float64 {
		w := timingwheel.New()
		defer w.Stop()
		p99, l := lateness(func(d time.Duration, f func()) { w.Schedule(d, f) })
		last = append(last, l)
		return p99
	}, func() float64 {
		p99, l := lateness(func(d time.Duration, f func()) { time.AfterFunc(d, f) })
		timeLast = append(timeLast, l)
		return p99
	})
	b.ReportMetric(median(last), "wheel-last-ms")
	b.ReportMetric(median(timeLast), "time-last-ms")
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// Lateness of 10 k timers a second, delays of 1 to 1000 ms, for two seconds.
func BenchmarkVersusLateness(b *testing.B) {
	const rate, seconds = 10_000, 2
	measure := func(after func(d time.Duration, f func())) (least, p50, p99 float64) {
		late := make([]time.Duration, rate*seconds)
		var done sync.WaitGroup
		done.Add(len(late))
		r := newRand()
		begin := time.Now()
		for i := range late {
			if ahead := time.Until(begin.Add(time.Duration(i) * time.Second / rate)); ahead > 0 {
				time.Sleep(ahead)
			}
			d := time.Millisecond + time.Duration(r.Int64N(int64(999*time.Millisecond)))
			due := time.Now().Add(d)
			after(d, func() {
				late[i] = time.Since(due)
				done.Done()
			})
		}
		done.Wait()
		slices.Sort(late)
		return ms(late[0]), ms(late[len(late)/2]), ms(late[len(late)*99/100])
	}
	var least, p50, timeP50 []float64
	versus(b, "p99-ms", func() float64 {
		w := timingwheel.New()
		defer w.Stop()
		l, m, p99 := measure(func(d time.Duration, f func()) { w.Schedule(d, f) })
		least, p50 = append(least, l), append(p50, m)
		return p99
	}, func() float64 {
		_, m, p99 := measure(func(d time.Duration, f func()) { time.AfterFunc(d, f) })
		timeP50 = append(timeP50, m)
		return p99
	})
	b.ReportMetric(slices.Min(least), "wheel-min-ms")
	b.ReportMetric(median(p50), "wheel-p50-ms")
	b.ReportMetric(median(timeP50), "time-p50-ms")
}

// What a finer tick costs: CPU time of the process for each of 10 k timers a second,
// with delays of 1 to 1000 ms, for three seconds, the generator included.
func BenchmarkVersusTick(b *testing.B) {
	const rate, seconds = 10_000, 3
	cpu := func(after func(d time.Duration, f func())) float64 {
		before, r := cpuTime(), newRand()
		for range seconds * 1000 {
			for range rate / 1000 {
				after(time.Millisecond+time.Duration(r.Int64N(int64(999*time.Millisecond))), noop)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		return float64(cpuTime()-before) / (rate * seconds)
	}
	for _, tick := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond} {
		b.Run(tick.String(), func(b *testing.B) {
			versus(b, "cpu-ns", func() float64 {
				w := timingwheel.New(timingwheel.WithTick(tick))
				defer w.Stop()
				return cpu(func(d time.Duration, f func()) { w.Schedule(d, f) })
			}, func() float64 {
				return cpu(func(d time.Duration, f func()) { time.AfterFunc(d, f) })
			})
		})
	}
}

// BenchmarkStall adds from another goroutine while a bucket of 1 M entries
// cascades, and reports the longest adds. With one shard there is no other to
// turn to.
func BenchmarkStall(b *testing.B) {
	b.Run("shards=chosen", func(b *testing.B) { stall(b, 0) })
	b.Run("shards=1", func(b *testing.B) { stall(b, 1) })
}

func stall(b *testing.B, shards int) {
	const pending = 1_000_000
	var p999, longest, adds []float64
	for b.Loop() {
		w := timingwheel.New(timingwheel.WithTick(10*time.Millisecond), timingwheel.WithShards(shards))
		start := time.Now()
		// All in the bucket that covers the ticks 512 to 1023, and none due when it
		// expires at 5.12 s.
		for i := range pending {
			w.Schedule(10*time.Second+time.Duration(i%200)*time.Millisecond-time.Since(start), noop)
		}
		time.Sleep(time.Until(start.Add(5110 * time.Millisecond)))
		var took []time.Duration
		for end := start.Add(5250 * time.Millisecond); time.Now().Before(end); {
			before := time.Now()
			timeout, _ := w.Schedule(time.Hour, noop)
			took = append(took, time.Since(before))
			timeout.Cancel()
		}
		if w.Len() != pending {
			b.Fatal("the cascade was not one")
		}
		w.Stop()
		slices.Sort(took)
		p999 = append(p999, ms(took[len(took)*999/1000]))
		longest = append(longest, ms(took[len(took)-1]))
		adds = append(adds, float64(len(took)))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(p999), "p99.9-ms")
	b.ReportMetric(median(longest), "longest-ms")
	b.ReportMetric(median(adds), "adds")
}

// BenchmarkIdle counts context switches over 10 s, without a timer and with one an
// hour ahead.
func BenchmarkIdle(b *testing.B) {
	switches := func() int64 {
		runtime.GC()
		time.Sleep(100 * time.Millisecond)
		before := rusage()
		time.Sleep(10 * time.Second)
		after := rusage()
		return int64(after.Nvcsw - before.Nvcsw)
	}
	for b.Loop() {
		base := switches()
		w := timingwheel.New()
		w.AfterFunc(time.Hour, noop)
		idle := switches()
		w.Stop()
		b.ReportMetric(float64(base), "base-switches")
		b.ReportMetric(float64(idle), "wheel-switches")
	}
	b.ReportMetric(0, "ns/op")
}

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
