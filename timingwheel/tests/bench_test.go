package timingwheel_test

import (
	"math/rand/v2"
	"net"
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

// BenchmarkIdle pushes back the idle deadline of one connection after the other, as each
// packet does: the connection's own deadline, or a function on the wheel that closes it.
func BenchmarkIdle(b *testing.B) {
	w := timingwheel.New()
	defer w.Stop()
	conns := make([]net.PacketConn, 1000)
	timeouts, timers := make([]timingwheel.Timeout, len(conns)), make([]*timingwheel.Timer, len(conns))
	for i := range conns {
		conn, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
		timeouts[i], _ = w.Schedule(time.Minute, func() { conn.Close() })
		timers[i] = w.AfterFunc(time.Minute, func() { conn.Close() })
	}
	for _, way := range []struct {
		name string
		push func(i int)
	}{
		{"SetDeadline", func(i int) { conns[i].SetDeadline(time.Now().Add(time.Minute)) }},
		{"SetReadDeadline", func(i int) { conns[i].SetReadDeadline(time.Now().Add(time.Minute)) }},
		{"Timeout.Reset", func(i int) { timeouts[i].Reset(time.Minute) }},
		{"Timer.Reset", func(i int) { timers[i].Reset(time.Minute) }},
	} {
		b.Run(way.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				way.push(i * 7919 % len(conns))
			}
		})
	}
}
