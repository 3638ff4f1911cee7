//go:build unix

package timingwheel_test

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// BenchmarkCascade has 5 M timers in one coarse bucket. While that bucket cascades,
// another goroutine calls Schedule and adds timers to finer buckets, which come due
// meanwhile. The benchmark reports how long Schedule takes, and how late these timers
// are. Beside these are the same figures of a moment before, with as many pending and
// nothing cascading. There is one shard, so that a caller has no other to turn to.
//
// Tasks run on the driver. So what is late is the wheel, and not a goroutine that waits
// for a processor.
func BenchmarkCascade(b *testing.B) {
	b.Run("shards=chosen", func(b *testing.B) { benchmarkCascade(b, 0) })
	b.Run("shards=1", func(b *testing.B) { benchmarkCascade(b, 1) })
}

func benchmarkCascade(b *testing.B, shards int) {
	const pending = 5_000_000
	figures := make(map[string][]float64)
	note := func(name string, x float64) { figures[name] = append(figures[name], x) }
	for b.Loop() {
		runtime.GC()
		w := timingwheel.New(timingwheel.WithShards(shards), timingwheel.WithExecutor(timingwheel.Inline()))
		start := time.Now()
		at := func(ms int) time.Duration { return time.Until(start.Add(time.Duration(ms) * time.Millisecond)) }
		// All in the bucket that covers the ticks 6144 to 6655.
		onAll(pending, func(_ *rand.Rand, n int) {
			for i := range n {
				w.Schedule(at(6580+i%60), noop)
			}
		})
		runtime.GC()
		time.Sleep(at(5700))
		quiet := addWhile(w, func() bool { return at(6000) > 0 })

		before := w.Stats().Cascaded
		time.Sleep(at(6144))
		for w.Stats().Cascaded == before { // until then, adds go to the end of the same bucket
			runtime.Gosched()
		}
		cascade := addWhile(w, func() bool { return w.Stats().Cascaded < before+pending && at(6570) > 0 })
		note("cascade-ms", -ms(at(6144)))
		w.Stop()
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}} {
			note("add-"+q.name+"-us", 1000*ms(quantile(cascade.adds, q.at)))
			note("quiet-add-"+q.name+"-us", 1000*ms(quantile(quiet.adds, q.at)))
			note("late-"+q.name+"-ms", ms(quantile(cascade.late, q.at)))
			note("quiet-late-"+q.name+"-ms", ms(quantile(quiet.late, q.at)))
		}
	}
	b.ReportMetric(0, "ns/op")
	for name, x := range figures {
		b.ReportMetric(median(x), name)
	}
}

// added is how long adds took, and how late what was added, both sorted.
type added struct{ adds, late []time.Duration }

// addWhile adds and cancels without a pause as long as goOn returns true. A few times a
// millisecond it adds a timer of 1 to 10 ms.
func addWhile(w *timingwheel.TimingWheel, goOn func() bool) (a added) {
	var mu sync.Mutex
	var firing sync.WaitGroup
	a.adds = make([]time.Duration, 0, 10_000_000)
	r := newRand()
	for n := 0; n%1000 != 0 || goOn(); n++ {
		d := time.Hour
		if n%1000 == 0 {
			d = time.Millisecond + time.Duration(r.Int64N(int64(9*time.Millisecond)))
		}
		before := time.Now()
		due := before.Add(d)
		if d == time.Hour {
			timeout, _ := w.Schedule(d, noop)
			a.adds = append(a.adds, time.Since(before))
			timeout.Cancel()
			continue
		}
		firing.Add(1)
		w.Schedule(d, func() {
			defer firing.Done()
			mu.Lock()
			defer mu.Unlock()
			a.late = append(a.late, time.Since(due))
		})
	}
	firing.Wait()
	slices.Sort(a.adds)
	slices.Sort(a.late)
	return a
}

// quantile returns a quantile of a sorted slice.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
