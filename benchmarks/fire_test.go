package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
)

// BenchmarkFire starts a million timers, which come due within a second or all at the same
// moment (within=0s), some time after the last was started. With task=empty a function adds one to a
// counter, with task=1ms it sleeps for a millisecond. Every 16th reads the clock, and
// lateness is that of these. CPU is the whole process's for each timer: with its start
// (cpu-ns/timer), and without (firing-ns/timer). Last is how long after the last deadline
// the last function ended. Goroutines and memory are the most there were. Inline and go-zero
// run functions one after the other, and are left out where these sleep.
func BenchmarkFire(b *testing.B) {
	n := size(1_000_000, 1000)
	for _, spread := range []time.Duration{time.Second, 0} {
		for _, task := range []string{"empty", "1ms"} {
			b.Run("within="+spread.String()+"/task="+task, func(b *testing.B) {
				names, sleep := firing, time.Duration(0)
				if task == "1ms" {
					names, sleep = "time.AfterFunc wheel.Schedule RussellLuo heap", time.Millisecond
				}
				subjects, burstApart := apart(pick(setup{pending: n}, names), func(b *testing.B, t timers) {
					once(b, func() { burst(b, t, n, size(spread, spread/50), sleep) })
				})
				compare(b, subjects, burstApart)
			})
		}
	}
}

// burst starts n timers that come due within the spread, and waits until all have run.
func burst(b *testing.B, t timers, n int, spread, sleep time.Duration) {
	const sample = 16
	t.keep(1)
	first := time.Now().Add(size(400*time.Millisecond, 100*time.Millisecond) + 3*time.Duration(n)*costOfAdd(t))
	last := first.Add(spread)
	late := make([]time.Duration, (n+sample-1)/sample)
	var done, ended, most atomic.Int64
	run := func() {
		if sleep > 0 {
			time.Sleep(sleep)
		}
		if done.Add(1) == int64(n) {
			ended.Store(int64(time.Since(last)))
		}
	}
	measure.ResetPeak()
	before := measure.Now()
	for i := range n {
		due, f := first.Add(spread*time.Duration(i)/time.Duration(n)), run
		if i%sample == 0 {
			f = func() {
				late[i/sample] = time.Since(due)
				raise(&most, int64(runtime.NumGoroutine()))
				run()
			}
		}
		t.add(1, time.Until(due), f)
	}
	started := measure.Now()
	if time.Now().After(first) {
		tooSlow(b, "the first timer was due before the last was started")
	}
	await(b, &done, n)
	after := measure.Now()
	reportLateness(b, late)
	reportCPU(b, before, after, n, "timer")
	b.ReportMetric(float64(after.CPU-started.CPU)/float64(n), "firing-ns/timer")
	b.ReportMetric(float64(ended.Load())/1e6, "last-ms")
	b.ReportMetric(float64(most.Load()), "goroutines")
	b.ReportMetric(measure.PeakMB(), "peak-MB")
}

// costOfAdd returns what it takes to start and cancel a timer, by some thousand.
func costOfAdd(t timers) time.Duration {
	const n = 10_000
	begin := time.Now()
	for range n {
		t.add(0, time.Hour, noop)
		t.cancel(0)
	}
	return time.Since(begin) / n
}

func raise(a *atomic.Int64, v int64) {
	for old := a.Load(); v > old && !a.CompareAndSwap(old, v); old = a.Load() {
	}
}

// BenchmarkAtOnce starts a timer with a delay of zero, waits until it has run, and starts the
// next. The wall time that is no processor time is a wait: until a goroutine is woken, or
// for the next tick. The row go is a go statement in place of the timer. No timer can take
// less than that: on a busy machine it took half of package time's processor time (the median of
// seven rounds). AfterFunc adds the Timer, the entry that a Stop or Reset can find until the
// goroutine begins, and the shard's lock, once for each side.
func BenchmarkAtOnce(b *testing.B) {
	compare(b, pick(setup{}, firing+" go"), func(b *testing.B, t timers) {
		done := make(chan struct{})
		f := func() { done <- struct{}{} }
		loop(b, func() {
			t.add(0, 0, f)
			<-done
		})
	})
}

// BenchmarkLateness starts timers at a steady rate, with delays uniform from 1 to 500 ms, and
// notes how long after its deadline each runs. A deadline is the moment just before the
// start, plus the delay. A subject that rounds deadlines up to a tick is late by half a tick
// on average. One that rounds down is early as often as late. Package time and the heap have
// no tick, and gost has one of 10 ms. Precise is Schedule with WithPreciseWakeups, and has
// ticks of 100 us always. CPU is the whole process's, with the generator.
func BenchmarkLateness(b *testing.B) {
	for _, c := range []struct {
		rate int
		tick time.Duration
	}{
		{1000, time.Millisecond},
		{10_000, 100 * time.Microsecond}, {10_000, time.Millisecond}, {10_000, 10 * time.Millisecond},
		{100_000, time.Millisecond},
	} {
		rate, spell, longest := size(c.rate, 1000), size(time.Second, 20*time.Millisecond), size(500*time.Millisecond, 20*time.Millisecond)
		b.Run(fmt.Sprintf("rate=%s/tick=%v", count(c.rate), c.tick), func(b *testing.B) {
			names := "time.AfterFunc wheel.Schedule wheel.Schedule+Inline wheel.Schedule+Precise RussellLuo go-zero gost heap"
			compare(b, pick(setup{tick: c.tick, pending: rate / 2}, names), func(b *testing.B, t timers) {
				once(b, func() { steady(b, t, rate, spell, longest) })
			})
		})
	}
}

func steady(b *testing.B, t timers, rate int, spell, longest time.Duration) {
	late := make([]time.Duration, int(float64(rate)*spell.Seconds()))
	var done atomic.Int64
	r := random(rate)
	t.keep(1)
	measure.Settle()
	before := measure.Now()
	for i := range late {
		if ahead := time.Until(before.Time.Add(time.Duration(i) * time.Second / time.Duration(rate))); ahead > 0 {
			time.Sleep(max(ahead, time.Millisecond))
		}
		d := time.Millisecond + time.Duration(r.Int64N(int64(longest-time.Millisecond)))
		due := time.Now().Add(d)
		t.add(1, d, func() {
			late[i] = time.Since(due)
			done.Add(1)
		})
	}
	await(b, &done, len(late))
	reportCPU(b, before, measure.Now(), len(late), "timer")
	reportLateness(b, late)
}

// BenchmarkAlone has so many timers come due in a second, at random moments, in a process
// that does nothing else. All are started before. CPU is the whole process's for each timer,
// without the start. A switch is a thread that went to sleep. WithTick can make timers share
// a tick, and with it a wake-up: the wider ticks show what that saves.
//
// The difference to package time is switches of threads. The driver of a wheel sets a timer
// again, and so ends the sleep of the thread that waits in the runtime's poller: 51 times for
// 100 timers, 50 a second. And functions that share a tick get a second goroutine, so that
// one that blocks does not hold up the others: 127 times for 1,000 timers, 1,000 a second. The
// row heap has a goroutine of its own, too. A second timer, set for the bucket after the next,
// leaves the sleep alone. It took 1.91 switches for 2.21 (medians of 20 runs), but 0.97 of the
// processor time (the median of 60 pairs, with quartiles of 0.92 and 1.04), so it was not built.
// The driver's timer set before the flush instead of after it left the switches as they were (1.00
// at both rates, the medians of 25 and 12 pairs). Sixteen sorted items in front of the heap of the queue, which are
// refilled together, took 0.98 of the processor time (the median of 7 pairs, 0.65 to 1.50).
func BenchmarkAlone(b *testing.B) {
	for _, c := range []struct {
		rate, tick int
		names      string
	}{
		{1000, 1, firing}, {50, 1, firing},
		{1000, 4, pair}, {1000, 16, pair}, {1000, 64, pair},
	} {
		b.Run(fmt.Sprintf("rate=%s/tick=%dms", count(c.rate), c.tick), func(b *testing.B) {
			s := setup{tick: time.Duration(c.tick) * time.Millisecond}
			compare(b, pick(s, c.names), func(b *testing.B, t timers) {
				once(b, func() { alone(b, t, c.rate, size(2*time.Second, 50*time.Millisecond)) })
			})
		})
	}
}

func alone(b *testing.B, t timers, rate int, spell time.Duration) {
	n := max(1, int(float64(rate)*spell.Seconds()))
	r := random(rate)
	t.keep(1)
	var fired atomic.Int64
	f := func() { fired.Add(1) }
	begin := time.Now().Add(size(300*time.Millisecond, 100*time.Millisecond))
	for range n {
		t.add(1, time.Until(begin.Add(time.Duration(r.Int64N(int64(spell))))), f)
	}
	measure.Settle()
	if time.Now().After(begin) {
		tooSlow(b, "the first timer was due before the last was started")
	}
	measure.Sleep(time.Until(begin))
	before := measure.Now()
	measure.Sleep(time.Until(begin.Add(spell)))
	after := measure.Now()
	await(b, &fired, n)
	reportCPU(b, before, after, n, "timer")
	b.ReportMetric(float64(after.Switches-before.Switches)/float64(n), "switches/timer")
}

// BenchmarkLone starts a timer of 50 ms and cancels it at once, every 100 ms, in a process that
// does nothing else: a client's call in an idle service. CPU is the whole process's for each
// timer. A switch is a thread that went to sleep; the row none has those of the load itself.
func BenchmarkLone(b *testing.B) { loneOf(b, "none "+ours+" heap") }

// BenchmarkLoneContext is BenchmarkLone with a context that has the timeout.
func BenchmarkLoneContext(b *testing.B) { loneOf(b, "none context.WithTimeout wheel.WithTimeout") }

func loneOf(b *testing.B, names string) {
	ops := size(40, 2)
	subjects, f := apart(pick(setup{}, names), func(b *testing.B, t timers) {
		once(b, func() { lone(b, t, ops) })
	})
	compare(b, subjects, f)
}

func lone(b *testing.B, t timers, ops int) {
	t.keep(2)
	t.add(1, time.Hour, noop)
	measure.Settle()
	before := measure.Now()
	for range ops {
		t.add(0, 50*time.Millisecond, noop)
		t.cancel(0)
		measure.Sleep(size(100*time.Millisecond, time.Millisecond))
	}
	after := measure.Now()
	t.cancel(1)
	reportCPU(b, before, after, ops, "timer")
	b.ReportMetric(float64(after.Switches-before.Switches)/float64(ops), "switches/timer")
}

// BenchmarkFineTick has 200,000 timers come due within a second on a wheel with ticks of 1 us,
// so that each has a bucket of its own. Its units are those of BenchmarkFire.
func BenchmarkFineTick(b *testing.B) {
	n, spread := size(200_000, 1000), size(time.Second, 20*time.Millisecond)
	subjects, f := apart(pick(setup{pending: n, tick: time.Microsecond}, "time.AfterFunc wheel.Schedule heap"), func(b *testing.B, t timers) {
		once(b, func() { burst(b, t, n, spread, 0) })
	})
	compare(b, subjects, f)
}

// In BenchmarkCrowd a thousand timers come due in a second, at random moments, while so many
// goroutines do nothing but start other timers and cancel them. The goroutines that run what
// is due wait for a processor like these, and with some subjects for a lock. Adds are what
// the crowd did meanwhile: a subject that stands in its own way has fewer.
func BenchmarkCrowd(b *testing.B) {
	for _, goroutines := range []int{16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d", goroutines), func(b *testing.B) {
			compare(b, pick(setup{}, firing), func(b *testing.B, t timers) {
				once(b, func() { crowd(b, t, 1000, goroutines, size(time.Second, 50*time.Millisecond)) })
			})
		})
	}
}

func crowd(b *testing.B, t timers, rate, goroutines int, spell time.Duration) {
	t.keep(goroutines * 16)
	late := make([]time.Duration, int(float64(rate)*spell.Seconds()))
	var done, adds atomic.Int64
	r := random(rate)
	begin := time.Now().Add(size(300*time.Millisecond, 100*time.Millisecond))
	end := begin.Add(spell)
	for i := range late {
		due := begin.Add(time.Duration(r.Int64N(int64(spell))))
		t.add(goroutines*16, time.Until(due), func() {
			late[i] = time.Since(due)
			done.Add(1)
		})
	}
	measure.Settle()
	if time.Now().After(begin) {
		tooSlow(b, "the first timer was due before the last was started")
	}
	for g := range goroutines {
		go func() {
			const lot = 64
			for f := addCancels(t, g); time.Now().Before(end); adds.Add(lot) {
				for range lot {
					f()
				}
			}
			done.Add(1)
		}()
	}
	await(b, &done, len(late)+goroutines)
	reportLateness(b, late)
	b.ReportMetric(float64(adds.Load())/spell.Seconds(), "adds/s")
}

// BenchmarkIdle measures two seconds in which nothing is due: with one timer an hour ahead,
// and after 100,000 timers of 10 to 500 ms were started and all canceled. After that a wheel
// may wake up for buckets that are empty. A switch is a thread that went to sleep. The row
// none is a process without a timer.
func BenchmarkIdle(b *testing.B) {
	n, spell := size(100_000, 100), size(2*time.Second, 20*time.Millisecond)
	for _, after := range []string{"start", "cancels"} {
		b.Run("after="+after, func(b *testing.B) {
			names := "none wheel.Schedule+Precise " + plain
			if after == "cancels" {
				names = strings.Replace(names, " gost", "", 1) // it would take minutes to get there
			}
			compare(b, pick(setup{}, names), func(b *testing.B, t timers) {
				once(b, func() { idle(b, t, n, after == "cancels", spell) })
			})
		})
	}
}

func idle(b *testing.B, t timers, n int, canceled bool, spell time.Duration) {
	const group = 100 // at a time, so that none comes due before it is canceled
	t.keep(group)
	t.add(0, time.Hour, noop)
	r := random(n)
	for done := 0; canceled && done < n; done += group {
		for i := 1; i < group; i++ {
			t.add(i, 10*time.Millisecond+time.Duration(r.Int64N(int64(490*time.Millisecond))), noop)
		}
		for i := 1; i < group; i++ {
			t.cancel(i)
		}
	}
	debug.FreeOSMemory() // or the runtime does so later, piece by piece, and wakes up for each
	measure.Sleep(20 * time.Millisecond)
	before := measure.Now()
	measure.Sleep(spell)
	after := measure.Now()
	t.cancel(0)
	seconds := after.Time.Sub(before.Time).Seconds()
	b.ReportMetric(float64(after.Switches-before.Switches)/seconds, "switches/s")
	b.ReportMetric(float64((after.CPU-before.CPU).Microseconds())/seconds, "cpu-us/s")
}
