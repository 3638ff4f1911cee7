package main

import (
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
)

// BenchmarkTick compares ticks of 1 ms, which are the default, of 250 us and of 100 us. A finer
// tick makes a timer less late. It wakes the driver more often, and a timer of the same delay is
// on a higher level, so that it moves once more. The works are those of other benchmarks:
// CancelRandom among a million, Memory without handles, Lateness with 1,000 and 100,000 timers a
// second, and Alone with 50 and 1,000 a second. BenchmarkTickCascade has the cascade.
//
// The default stays at 1 ms: a finer tick costs nothing where the wheel is ahead of package time,
// but more for a timer that is alone, where it is behind. A program for which p99 counts has it
// for WithTick(250 * time.Microsecond).
func BenchmarkTick(b *testing.B) {
	const names = "time.AfterFunc wheel.Schedule+1ms wheel.Schedule+250us wheel.Schedule+100us"
	million := size(1_000_000, 100)
	run := func(work string, f func(b *testing.B, t timers)) {
		b.Run("work="+work, func(b *testing.B) { compare(b, pick(setup{}, names), f) })
	}
	run("random", func(b *testing.B, t timers) {
		fill(t, million)
		r := random(million)
		loop(b, func() {
			i := r.IntN(million)
			t.cancel(i)
			t.add(i, farOff(r), noop)
		})
	})
	b.Run("work=memory", func(b *testing.B) {
		subjects, f := apart(pick(setup{}, names), func(b *testing.B, t timers) {
			once(b, func() { weigh(b, t, million, "function") })
		})
		compare(b, subjects, f)
	})
	for _, rate := range []int{1000, 100_000} {
		run("lateness-"+count(rate), func(b *testing.B, t timers) {
			longest := size(500*time.Millisecond, 20*time.Millisecond)
			once(b, func() { steady(b, t, size(rate, 1000), size(time.Second, 20*time.Millisecond), longest) })
		})
	}
	for _, rate := range []int{50, 1000} {
		run("alone-"+count(rate), func(b *testing.B, t timers) {
			once(b, func() { alone(b, t, rate, size(2*time.Second, 50*time.Millisecond)) })
		})
	}
}

// BenchmarkTickCascade is BenchmarkCascade with ticks of 1 ms, 250 us and 100 us, and the 512
// slots of the default. The span of the bucket that is moved is 512 ticks: so it is shorter
// with a finer tick, and with 100 us so is the measurement.
func BenchmarkTickCascade(b *testing.B) {
	for _, tick := range []time.Duration{time.Millisecond, 250 * time.Microsecond, 100 * time.Microsecond} {
		b.Run("tick="+tick.String(), func(b *testing.B) {
			s := setup{slots: size(512, 64), tick: tick, pending: size(4_000_000, 1000)}
			s.aligned = time.Duration(s.slots) * s.tick
			compare(b, pick(s, pair), func(b *testing.B, t timers) {
				once(b, func() { cascade(b, t, s, time.Now()) })
			})
		})
	}
}

// BenchmarkCycles adds a timer and cancels it at once on one goroutine, among 10,000, with one
// shard. Nobody else uses the wheel, so that its lock is always free. By hand means
// WithManualClock: there is no driver, and the clock is a number. A cycle is one of the
// processor's clock as the system states it, whatever the clock is in fact.
func BenchmarkCycles(b *testing.B) {
	n, mhz := size(10_000, 100), measure.MHz()
	if mhz == 0 {
		skip(b, "the system does not state the processor's clock")
	}
	s := setup{pending: n, shards: 1}
	compare(b, pick(s, pair+" wheel.Schedule+ByHand"), func(b *testing.B, t timers) {
		fill(t, n)
		r := random(n)
		delays := make([]time.Duration, 1024)
		for i := range delays {
			delays[i] = farOff(r)
		}
		measure.Settle()
		before, ops := measure.Now(), 0
		for b.Loop() {
			t.add(n, delays[ops%len(delays)], noop)
			t.cancel(n)
			ops++
		}
		cpu := measure.Now().CPU - before.CPU
		b.ReportMetric(float64(cpu)/float64(ops)*mhz/1000, "cycles/op")
	})
}
