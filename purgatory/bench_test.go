package purgatory

import (
	"container/list"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// fifo is what one writes by hand for pollers that wait in line: a list, and a timer for
// each.
type fifo struct {
	mu      sync.Mutex
	pollers list.List
}

type poller struct {
	done  func(Outcome)
	timer *time.Timer
}

func (q *fifo) park(d time.Duration, done func(Outcome)) {
	p := &poller{done: done}
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.pollers.PushBack(p)
	p.timer = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.pollers.Remove(e)
		done(Expired)
	})
}

func (q *fifo) handOff() {
	q.mu.Lock()
	p := q.pollers.Remove(q.pollers.Front()).(*poller)
	q.mu.Unlock()
	p.timer.Stop()
	p.done(Satisfied)
}

// An item is for one of 10,000 pollers, which then polls again. The benchmark compares NotifyN with
// a hand-made line, alternating every thousand items, and reports medians. Package time defers part
// of the work of a Stop, so compare the ratio that includes Park.
func BenchmarkHandOff(b *testing.B) {
	const pollers, turn = 10_000, 1000
	w := timingwheel.New()
	defer w.Stop()
	p, byHand := New[int](w), &fifo{}
	got, want := 0, 0
	take := func(Outcome) { got++ }
	lines := []struct{ handOff, park func() }{
		{byHand.handOff, func() { byHand.park(time.Hour, take) }},
		{func() { p.NotifyN(1, 1) }, func() { p.Park(time.Hour, nil, take, 1) }},
	}
	for range pollers {
		lines[0].park()
		lines[1].park()
	}
	var handOff, both [2][]float64
	for b.Loop() {
		for i, line := range lines {
			start := time.Now()
			for range turn {
				line.handOff()
			}
			handOff[i] = append(handOff[i], float64(time.Since(start).Nanoseconds())/turn)
			for range turn {
				line.park()
			}
			both[i] = append(both[i], float64(time.Since(start).Nanoseconds())/turn)
			want += turn
		}
	}
	if got != want {
		b.Fatalf("%d items of %d", got, want)
	}
	b.ReportMetric(0, "ns/op")
	for name, times := range map[string][2][]float64{"hand-off": handOff, "with-park": both} {
		hand, wheel := median(times[0]), median(times[1])
		b.ReportMetric(hand, name+"-fifo-ns")
		b.ReportMetric(wheel, name+"-ns")
		b.ReportMetric(wheel/hand, name+"-ratio")
	}
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}
