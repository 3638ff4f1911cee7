package timingwheel_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// timerDescriptors counts the open descriptors of timers. The count of other descriptors changes
// while the collector frees the leftovers of earlier tests.
func timerDescriptors(t *testing.T) (n int) {
	const dir = "/proc/self/fd/"
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		if name, err := os.Readlink(dir + entry.Name()); err == nil && strings.Contains(name, "timerfd") {
			n++
		}
	}
	return n
}

// Ten thousand wheels leave nothing: no descriptor, no goroutine.
func TestPreciseWheelsLeakNothing(t *testing.T) {
	descriptors, goroutines := timerDescriptors(t), runtime.NumGoroutine()
	for i := range unlessShort(10_000, 2000) {
		w := timingwheel.New(timingwheel.WithPreciseWakeups(), timingwheel.WithShards(1), timingwheel.WithWheelSize(16))
		if i == 0 {
			require.Equal(t, descriptors+1, timerDescriptors(t))
		}
		switch i % 3 {
		case 0: // never used
		case 1:
			w.AfterFunc(time.Hour, noop)
		case 2:
			w.AfterFunc(0, noop)
		}
		w.Stop()
		w.Stop()
	}
	waitFor(t, func() bool { return runtime.NumGoroutine() <= goroutines })
	waitFor(t, func() bool { return timerDescriptors(t) <= descriptors })
}

// BenchmarkPrecise measures the table in the documentation of WithPreciseWakeups:
// lateness, and the share of one processor that the process takes while timers fire at a
// rate, for two seconds. All timers are added before, so that nothing else wakes the
// process up. A wake-up is one of the driver, which nothing outside the package can count:
// so this is no workload of the module benchmarks.
func BenchmarkPrecise(b *testing.B) {
	subjects := []struct {
		name string
		opts []timingwheel.Option
	}{{"time", nil}, {"default", nil}, {"precise", []timingwheel.Option{timingwheel.WithPreciseWakeups()}}}
	for _, rate := range []int{0, 1_000, 10_000, 100_000} {
		for _, tick := range []time.Duration{10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond} {
			for _, s := range subjects {
				b.Run(fmt.Sprintf("rate=%d/tick=%v/%s", rate, tick, s.name), func(b *testing.B) {
					for b.Loop() {
						after, wakeups := func(d time.Duration, f func()) { time.AfterFunc(d, f) }, func() int64 { return 0 }
						if s.name != "time" {
							w := timingwheel.New(append(s.opts, timingwheel.WithTick(tick))...)
							defer w.Stop()
							require.Equal(b, s.name == "precise", w.Stats().Precise)
							after, wakeups = func(d time.Duration, f func()) { w.Schedule(d, f) }, func() int64 { return w.Stats().Wakeups }
						}
						measurePrecision(b, rate, after, wakeups)
					}
				})
			}
		}
	}
}

func measurePrecision(b *testing.B, rate int, after func(time.Duration, func()), wakeups func() int64) {
	const head, spell = time.Second, 2 * time.Second
	late := make([]time.Duration, rate*int(spell/time.Second))
	var done sync.WaitGroup
	begin := time.Now().Add(head)
	for i := range late {
		due := begin.Add(time.Duration(rand.Int64N(int64(spell))))
		done.Add(1)
		after(time.Until(due), func() { late[i] = time.Since(due); done.Done() })
	}
	after(time.Hour, noop)
	runtime.GC()
	cpu := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	require.Positive(b, time.Until(begin), "too slow to add so many")
	time.Sleep(time.Until(begin))
	cpu0, wakeups0, start := cpu(), wakeups(), time.Now()
	time.Sleep(spell)
	took, woke, spent := time.Since(start).Seconds(), wakeups()-wakeups0, cpu()-cpu0
	done.Wait()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*spent.Seconds()/took, "cpu-%")
	b.ReportMetric(float64(woke)/took, "wakeups/s")
	if woke > 0 {
		b.ReportMetric(float64(spent.Microseconds())/float64(woke), "us/wakeup")
	}
	if len(late) > 0 {
		slices.Sort(late)
		require.GreaterOrEqual(b, late[0], time.Duration(0), "early")
		b.ReportMetric(float64(late[len(late)/2].Nanoseconds())/1e3, "p50-us")
		b.ReportMetric(float64(late[len(late)*99/100].Nanoseconds())/1e3, "p99-us")
	}
}
