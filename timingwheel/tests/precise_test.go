package timingwheel_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// inBothModes runs a test without and with precise wake-ups.
func inBothModes(t *testing.T, test func(t *testing.T, opts ...timingwheel.Option)) {
	t.Run("default", func(t *testing.T) { test(t) })
	t.Run("precise", func(t *testing.T) { test(t, timingwheel.WithPreciseWakeups()) })
}

// Fine ticks, in real time, from several goroutines: everything fires once or is
// canceled, and nothing is early.
func TestFineTicks(t *testing.T) {
	inBothModes(t, func(t *testing.T, opts ...timingwheel.Option) {
		for _, tick := range []time.Duration{10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond} {
			t.Run(fmt.Sprint(tick), func(t *testing.T) {
				const adders, each = 4, 1000
				w := timingwheel.New(append(opts, timingwheel.WithTick(tick))...)
				defer w.Stop()
				var pending sync.WaitGroup
				var fired, early, canceled atomic.Int64
				var adding sync.WaitGroup
				for range adders {
					adding.Go(func() {
						for i := range each {
							d := time.Duration(rand.Int64N(int64(20 * time.Millisecond)))
							pending.Add(1)
							due := time.Now().Add(d)
							timeout, err := w.Schedule(d, func() {
								if time.Now().Before(due) {
									early.Add(1)
								}
								fired.Add(1)
								pending.Done()
							})
							if err == nil && i%4 == 0 && timeout.Cancel() {
								canceled.Add(1)
								pending.Done()
							}
							if i%10 == 0 {
								time.Sleep(100 * time.Microsecond)
							}
						}
					})
				}
				adding.Wait()
				pending.Wait()
				require.Zero(t, early.Load())
				require.EqualValues(t, adders*each, fired.Load()+canceled.Load())
				require.Zero(t, w.Len())
			})
		}
	})
}

// A driver that sleeps toward a far deadline wakes up for an earlier deadline, and for Stop.
func TestAddAndStopWakeTheDriver(t *testing.T) {
	inBothModes(t, func(t *testing.T, opts ...timingwheel.Option) {
		before := runtime.NumGoroutine()
		w := timingwheel.New(opts...)
		w.AfterFunc(time.Hour, never)
		time.Sleep(5 * time.Millisecond)
		start, ran := time.Now(), make(chan time.Duration)
		w.AfterFunc(time.Millisecond, func() { ran <- time.Since(start) })
		require.GreaterOrEqual(t, <-ran, time.Millisecond)
		require.Len(t, w.Stop(), 1)
		waitFor(t, func() bool { return runtime.NumGoroutine() <= before })
	})
}

func TestPreciseWakeupsUnderManualDrive(t *testing.T) {
	w := timingwheel.New(timingwheel.WithPreciseWakeups(), timingwheel.WithManualDrive(),
		timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithTick(10*time.Microsecond))
	defer w.Stop()
	for range 100 {
		due := time.Now().Add(200 * time.Microsecond)
		ran := false
		w.AfterFunc(200*time.Microsecond, func() { ran = true })
		for !ran {
			w.Drive(time.Hour)
		}
		require.False(t, time.Now().Before(due))
	}
	require.Zero(t, w.Drive(time.Millisecond))
}

// In a bubble, time is as exact as ever, and a goroutine that is left fails the test.
func TestPreciseWakeupsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithPreciseWakeups())
		start := time.Now()
		for _, d := range []time.Duration{time.Millisecond, time.Second, 24 * time.Hour} {
			w.AfterFunc(d, func() { require.Equal(t, d, time.Since(start)) })
		}
		w.Sleep(48 * time.Hour)
		require.Equal(t, 48*time.Hour, time.Since(start))
		w.AfterFunc(time.Hour, never)
		require.Len(t, w.Stop(), 1)
	})
}
