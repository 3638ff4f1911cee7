package main

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
)

// BenchmarkMix is a service at a steady load. For two seconds one goroutine starts 50,000
// timers a second, with log-normal delays (median 300 ms, sigma 1, at most 1 s). 70 % are
// canceled before they are due, 20 % are reset to as long again and canceled later, and 10 %
// fire. All is planned before, the same for every subject, and carried out in a batch for
// each millisecond. CPU is the whole process's for each timer; most of it is the
// generator's and the scheduler's. The row none is the generator's alone, and the ratios are
// without it. With generator=runtime, the generator sleeps by time.Sleep, whose end wakes the process for
// the subject too. With generator=thread it has a thread of its own and sleeps in the
// system, so that a subject wakes for itself alone. A wheel's tick can be wider.
func BenchmarkMix(b *testing.B) {
	for _, c := range []struct {
		name  string
		tick  time.Duration
		names string
		sleep func(time.Duration)
	}{
		{"generator=runtime/tick=1ms", 0, "none " + firing, time.Sleep},
		{"generator=thread/tick=1ms", 0, "none " + ours + " wheel.Schedule+Inline heap", onThread},
		{"generator=thread/tick=4ms", 4 * time.Millisecond, "none " + pair, onThread},
		{"generator=thread/tick=16ms", 16 * time.Millisecond, "none " + pair, onThread},
		{"generator=thread/tick=64ms", 64 * time.Millisecond, "none " + pair, onThread},
	} {
		rate, spell, longest := size(50_000, 1000), size(2*time.Second, 50*time.Millisecond), size(time.Second, 30*time.Millisecond)
		b.Run(c.name, func(b *testing.B) {
			steps := plan(rate, spell, longest)
			compare(b, pick(setup{tick: c.tick, pending: rate}, c.names), func(b *testing.B, t timers) {
				once(b, func() { mix(b, t, steps, c.sleep) })
			})
		})
	}
}

// onThread sleeps in the system, on a thread that the benchmark's goroutine keeps.
func onThread(d time.Duration) {
	runtime.LockOSThread()
	measure.Sleep(d)
}

// step is one thing to do to one timer.
type step struct {
	at    time.Duration // since the begin
	delay time.Duration // of a start or a reset
	timer int
	do    action
}

type action int

const (
	start action = iota
	startToFire
	reset
	cancel
)

// plan returns the steps in their order. Timers are started for a spell.
func plan(rate int, spell, longest time.Duration) []step {
	r := random(rate)
	var steps []step
	for i := range int(float64(rate) * spell.Seconds()) {
		at := time.Duration(i) * time.Second / time.Duration(rate)
		delay := time.Duration(300 * float64(time.Millisecond) * math.Exp(r.NormFloat64()))
		delay = min(max(delay, time.Millisecond), longest)
		switch fate := r.IntN(10); {
		case fate < 7:
			steps = append(steps, step{at, delay, i, start}, step{at + part(r, delay), 0, i, cancel})
		case fate < 9:
			again := at + part(r, delay)
			steps = append(steps, step{at, delay, i, start}, step{again, delay, i, reset}, step{again + part(r, delay), 0, i, cancel})
		default:
			steps = append(steps, step{at, delay, i, startToFire})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	return steps
}

// part returns at most nine tenths of d.
func part(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(0.9 * r.Float64() * float64(d))
}

func mix(b *testing.B, t timers, steps []step, sleep func(time.Duration)) {
	t.keep(len(steps))
	late := make([]time.Duration, 0, len(steps))
	started := 0
	var fired atomic.Int64
	measure.ResetPeak()
	before := measure.Now()
	for _, s := range steps {
		if ahead := time.Until(before.Time.Add(s.at)); ahead > 0 {
			sleep(max(ahead, time.Millisecond))
		}
		switch s.do {
		case start:
			t.add(s.timer, s.delay, noop)
			started++
		case startToFire:
			due := time.Now().Add(s.delay)
			late = append(late, 0)
			mine := &late[len(late)-1]
			t.add(s.timer, s.delay, func() {
				*mine = time.Since(due)
				fired.Add(1)
			})
			started++
		case reset:
			t.reset(s.timer, s.delay, noop)
		case cancel:
			t.cancel(s.timer)
		}
	}
	if _, idle := t.(none); !idle {
		await(b, &fired, len(late))
		reportLateness(b, late)
	}
	reportCPU(b, before, measure.Now(), started, "timer")
	b.ReportMetric(measure.PeakMB(), "peak-MB")
}

// BenchmarkSessions pushes 10,000 connections with an idle timeout of a second back, 200,000
// times a second at random, in a batch for each millisecond. Each connection falls silent once
// in ten seconds, for one and a half timeouts. Then it expires, and the next traffic opens it
// again. CPU is the whole process's for each push, with all that a push leaves to be done
// later. The row none is the generator's alone, and the ratios are without it.
func BenchmarkSessions(b *testing.B) {
	s := sessions{
		n: size(10_000, 100), rate: size(200_000, 10_000), timeout: size(time.Second, 20*time.Millisecond),
		cycle: size(10*time.Second, 200*time.Millisecond), spell: size(2*time.Second, 50*time.Millisecond),
	}
	compare(b, pick(setup{pending: 10 * s.n}, "none "+firing), func(b *testing.B, t timers) {
		once(b, func() { s.run(b, t) })
	})
}

type sessions struct {
	n, rate               int
	timeout, cycle, spell time.Duration
}

func (s sessions) silence() time.Duration { return s.timeout * 3 / 2 }

// silent reports whether a connection has no traffic at a time since the begin.
func (s sessions) silent(i int, at time.Duration) bool {
	return (at+s.cycle*time.Duration(i)/time.Duration(s.n))%s.cycle < s.silence()
}

func (s sessions) run(b *testing.B, t timers) {
	t.keep(s.n)
	closed := make([]atomic.Bool, s.n)
	var expired atomic.Int64
	expire := make([]func(), s.n)
	for i := range expire {
		expire[i] = func() {
			closed[i].Store(true)
			expired.Add(1)
		}
		t.add(i, s.timeout, expire[i])
	}
	measure.Settle()
	r, pushes, begin := random(s.rate), 0, time.Now()
	until := func(from, end time.Duration) {
		for step := time.Duration(s.rate) * from / time.Second; step < time.Duration(s.rate)*end/time.Second; step++ {
			at := step * time.Second / time.Duration(s.rate)
			if ahead := at - time.Since(begin); ahead > 0 {
				time.Sleep(max(ahead, time.Millisecond))
			}
			switch i := r.IntN(s.n); {
			case s.silent(i, at):
				continue
			case closed[i].Load():
				closed[i].Store(false)
				t.add(i, s.timeout, expire[i])
			default:
				t.reset(i, s.timeout, expire[i])
			}
			pushes++
		}
	}
	until(0, s.silence()) // the first have expired
	pushes = 0
	before, early := measure.Now(), expired.Load()
	until(s.silence(), s.silence()+s.spell)
	after := measure.Now()
	if after.Time.Sub(before.Time) > s.spell*3/2 {
		tooSlow(b, "the pushes took much longer than planned")
	}
	reportCPU(b, before, after, pushes, "push")
	seconds := after.Time.Sub(before.Time).Seconds()
	b.ReportMetric(float64(after.Switches-before.Switches)/seconds, "switches/s")
	b.ReportMetric(float64(expired.Load()-early)/seconds, "expired/s")
}
