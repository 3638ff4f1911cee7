package main

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
)

// BenchmarkCascade measures adds and single timers beside four million timers that a wheel
// moves from one coarse bucket to finer ones. They are due at the same moment, and the move
// begins when the span of that bucket begins, a span of 512 ms. For 150 ms from then on, one
// goroutine starts timers and cancels them, and notes how long each start takes (add-p50-ns,
// add-p99.9-ns, add-max-us). Twice a millisecond it also starts a timer of 1 to 10 ms, which
// is in no cascade, and whose lateness is noted. The units that begin with quiet are those of
// 150 ms just before. Package time and the heap have no cascade. With one shard, an adder
// has no other shard to go to. A timer of the first millisecond may be started before the
// driver has woken. Then it lies at the end of the bucket that is moved: three such timers
// are a percent.
func BenchmarkCascade(b *testing.B) {
	s := setup{slots: size(512, 64), tick: time.Millisecond, pending: size(4_000_000, 1000)}
	s.aligned = time.Duration(s.slots) * s.tick // as RussellLuo's spans are
	for _, shards := range []string{"chosen", "1"} {
		b.Run("shards="+shards, func(b *testing.B) {
			names := "time.AfterFunc wheel.Schedule wheel.Schedule+Inline wheel.AfterFunc RussellLuo heap"
			if shards == "1" {
				s.shards, names = 1, "wheel.Schedule"
			}
			compare(b, pick(s, names), func(b *testing.B, t timers) {
				once(b, func() { cascade(b, t, s, time.Now()) })
			})
		})
	}
}

func cascade(b *testing.B, t timers, s setup, made time.Time) {
	window, span, room := min(size(150*time.Millisecond, 20*time.Millisecond), s.aligned), s.aligned, size(4<<20, 1<<16)
	quiet, beside := newBesides(room, window), newBesides(room, window)
	after := size(8*512*time.Millisecond, 16*64*time.Millisecond)
	moved := made.Add(-time.Duration(made.UnixNano()) % span).Add((after + span - 1) / span * span)
	begin, due := moved.Add(-2*window-span/8), moved.Add(span*15/16)
	t.keep(s.pending + 1)
	var all sync.WaitGroup
	procs := runtime.GOMAXPROCS(0)
	for p := range procs {
		all.Go(func() { // until it is time: millions that are due already would take minutes
			for i := s.pending * p / procs; i < s.pending*(p+1)/procs && time.Now().Before(begin); i++ {
				t.add(i, time.Until(due), noop)
			}
		})
	}
	all.Wait()
	measure.Settle()
	if time.Now().After(begin) {
		tooSlow(b, "the cascade began before all timers were started")
	}
	time.Sleep(time.Until(begin))
	quiet.until(t, s.pending, begin.Add(window))
	time.Sleep(time.Until(moved))
	beside.until(t, s.pending, moved.Add(window))
	quiet.report(b, "quiet-")
	beside.report(b, "")
}

// besides is how long adds took, and how late single timers ran.
type besides struct {
	adds []time.Duration
	late []time.Duration
	ran  atomic.Int64
}

// newBesides makes room beforehand: to grow it would bring on a collection in the middle of
// the measurement.
func newBesides(room int, window time.Duration) *besides {
	b := &besides{adds: slices.Repeat([]time.Duration{1}, room), late: make([]time.Duration, 0, 2*window/time.Millisecond)}
	b.adds = b.adds[:0]
	return b
}

// until starts and cancels timer i without a pause until the end, and single timers.
func (m *besides) until(t timers, i int, end time.Time) {
	r := random(1)
	single := time.Now()
	for now := single; now.Before(end) && len(m.adds) < cap(m.adds); now = time.Now() {
		t.add(i, time.Hour, noop)
		after := time.Now()
		m.adds = append(m.adds, after.Sub(now))
		t.cancel(i)
		if len(m.late) == cap(m.late) || after.Before(single) {
			continue
		}
		single = single.Add(time.Millisecond / 2)
		d := time.Millisecond + time.Duration(r.Int64N(int64(9*time.Millisecond)))
		due := time.Now().Add(d)
		m.late = append(m.late, 0)
		late := &m.late[len(m.late)-1]
		t.add(i+1, d, func() {
			*late = time.Since(due)
			m.ran.Add(1)
		})
	}
}

func (m *besides) report(b *testing.B, prefix string) {
	if len(m.adds) == 0 {
		tooSlow(b, "nothing was added in time")
	}
	await(b, &m.ran, len(m.late))
	slices.Sort(m.adds)
	slices.Sort(m.late)
	b.ReportMetric(float64(percentile(m.adds, 50)), prefix+"add-p50-ns")
	b.ReportMetric(float64(percentile(m.adds, 99.9)), prefix+"add-p99.9-ns")
	b.ReportMetric(percentile(m.adds, 100).Seconds()*1e6, prefix+"add-max-us")
	b.ReportMetric(percentile(m.late, 50).Seconds()*1e3, prefix+"late-p50-ms")
	b.ReportMetric(percentile(m.late, 99).Seconds()*1e3, prefix+"late-p99-ms")
	b.ReportMetric(percentile(m.late, 100).Seconds()*1e3, prefix+"late-max-ms")
}
