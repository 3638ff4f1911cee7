package timingwheel_test

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// The tests in this file are named for proven faults of widely used timing
// wheels. Each fails on a wheel built that way.

// manual returns a wheel of one shard whose tasks run inside Drive.
func manual(opts ...timingwheel.Option) *timingwheel.TimingWheel {
	return timingwheel.New(append([]timingwheel.Option{timingwheel.WithManualDrive(), timingwheel.WithShards(1), timingwheel.WithExecutor(timingwheel.Inline())}, opts...)...)
}

// Rounding down fires up to a tick early.
func TestFaultRoundingDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithTick(time.Second))
		defer w.Stop()
		for offset := time.Duration(0); offset < 3*time.Second; offset += 277 * time.Millisecond {
			for _, d := range []time.Duration{1, 723 * time.Millisecond, time.Second, time.Hour + 1} {
				start := time.Now()
				done := make(chan time.Duration)
				w.AfterFunc(d, func() { done <- time.Since(start) })
				late := <-done - d
				require.GreaterOrEqual(t, late, time.Duration(0), "early")
				require.Less(t, late, time.Second, "more than a tick late")
			}
			time.Sleep(offset)
		}
	})
}

// An add that races with Stop blocks for ever on the wake-up of the driver.
func TestFaultAddRacesWithStop(t *testing.T) {
	for range 200 {
		w := timingwheel.New()
		var accepted, done atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 50 {
					// Each is the earliest so far, so that each would wake the driver.
					if _, err := w.Schedule(time.Hour-time.Duration(accepted.Load())*time.Minute/4, func() {}); err == nil {
						accepted.Add(1)
					} else {
						require.ErrorIs(t, err, timingwheel.ErrStopped)
					}
				}
			})
		}
		wg.Go(func() { done.Add(int64(len(w.Stop()))) })
		wg.Wait()
		require.Equal(t, accepted.Load(), done.Load(), "an add was accepted and then forgotten")
	}
}

// A wait computed from two readings of the clock turns out negative, and the
// driver sleeps for ever instead of not at all.
func TestFaultNegativeWait(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond))
	defer w.Stop()
	for range 3000 {
		done := make(chan struct{})
		w.AfterFunc(time.Microsecond, func() { close(done) })
		<-done
	}
}

// Reset from inside the callback, to the same slot, or to an earlier time:
// deadlocks, or is late by a revolution.
func TestFaultReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual(timingwheel.WithWheelSize(8))
		var fired []time.Duration
		start := time.Now()
		timer := w.AfterFunc(time.Hour, func() { fired = append(fired, time.Since(start)) })
		for _, d := range []time.Duration{
			time.Hour,            // the same slot
			8 * time.Millisecond, // the same slot of the finest wheel, a round later
			8 * time.Millisecond,
			time.Millisecond, // earlier
			0,
			3 * time.Millisecond,
			2 * time.Millisecond,
		} {
			require.True(t, timer.Reset(d))
			verify(t, w)
		}
		require.Equal(t, 1, w.Len())
		require.Equal(t, 0, w.Drive(0))
		require.Equal(t, 1, w.Drive(time.Hour))
		require.Equal(t, []time.Duration{2 * time.Millisecond}, fired)
		require.Empty(t, w.Stop())
	})
}

// The wheel counts ticks instead of reading the clock: a 10 s timer is 0.6 s late when
// the driver is late at each tick. Here a task holds the driver up.
func TestFaultCountingTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		start := time.Now()
		for i := range 1000 {
			w.AfterFunc(time.Duration(i)*10*time.Millisecond, func() { time.Sleep(9 * time.Millisecond) })
		}
		done := make(chan time.Duration)
		w.AfterFunc(9999500*time.Microsecond, func() { go func() { done <- time.Since(start) }() })
		require.Equal(t, 10*time.Second, <-done)
	})
}

// A huge delay overflows and fires at once, or wedges the timer; a negative one
// never fires; a wheel of few slots recurses without end.
func TestFaultExtremeDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual(timingwheel.WithTick(time.Microsecond), timingwheel.WithWheelSize(2))
		for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, 1 << 40} {
			w.AfterFunc(d, func() { t.Error("fired at once") })
		}
		ran := 0
		w.AfterFunc(-1, func() { ran++ })
		w.AfterFunc(math.MinInt64, func() { ran++ })
		verify(t, w)
		w.Drive(0)
		require.Equal(t, 2, ran)
		require.LessOrEqual(t, len(w.Stats().Levels), 63)
		require.Len(t, w.Stop(), 4)
	})
}

// The count of pending tasks drifts: a double decrement on a cancel during
// expiry, an increment after stop.
func TestFaultPendingCountDrifts(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond))
	for range 300 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := range 20 {
					timer := w.AfterFunc(time.Duration(i)*5*time.Microsecond, func() {})
					if i%2 == 0 {
						timer.Reset(time.Duration(i) * 3 * time.Microsecond)
					}
					timer.Stop()
					timer.Stop()
				}
			})
		}
		wg.Wait()
		require.Zero(t, w.Len())
	}
	w.AfterFunc(time.Hour, func() {})
	require.Len(t, w.Stop(), 1)
	w.AfterFunc(time.Hour, func() {})
	w.Schedule(time.Hour, func() {})
	require.Zero(t, w.Len())
}

// A long cascade must go on even while something else is always due. Here more tasks
// schedule themselves again at once than go into a slice.
func TestFaultCascadeStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		const slices, repeaters = 10, 3 * engine.SliceLen
		ran, others, meanwhile := 0, 0, 0
		for range slices * engine.SliceLen {
			w.AfterFunc(time.Second, func() { ran++; meanwhile = others })
		}
		var again func()
		again = func() {
			if others++; others < 100*slices*repeaters {
				w.AfterFunc(0, again)
			}
		}
		for range repeaters {
			w.AfterFunc(time.Second-time.Millisecond, again)
		}
		time.Sleep(time.Second)
		w.Drive(0)
		require.Equal(t, slices*engine.SliceLen, ran)
		require.LessOrEqual(t, meanwhile, 2*slices*repeaters)
		verify(t, w)
	})
}

// On a busy machine, the driver must not go to the end of the scheduler's queue each time
// it has handed something over: it would fall behind for good.
func TestFaultDriverYieldsToABusyMachine(t *testing.T) {
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		busy.Go(func() {
			for n := 0; !stop.Load(); n++ {
			}
		})
	}
	defer busy.Wait()
	defer stop.Store(true)
	const tasks = 20_000
	atLeastOnce(t, func() bool {
		baseline := timeToRun(tasks, func(d time.Duration, f func()) { time.AfterFunc(d, f) })
		w := timingwheel.New()
		defer w.Stop()
		ours := timeToRun(tasks, func(d time.Duration, f func()) { w.AfterFunc(d, f) })
		t.Logf("all have run after %v, with time.AfterFunc after %v", ours, baseline)
		return ours < 2*time.Second+3*baseline
	})
}

// atLeastOnce measures until a bound holds, but not for ever. Other programs may come to
// the machine between a baseline and what is compared with it.
func atLeastOnce(t *testing.T, holds func() bool) {
	t.Helper()
	for range 5 {
		if holds() {
			return
		}
	}
	t.Error("the bound has never held")
}

// timeToRun schedules tasks that are due within half a second, and returns how
// long it took until all had run.
func timeToRun(tasks int, after func(d time.Duration, f func())) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	wg.Add(tasks)
	for i := range tasks {
		after(time.Duration(i)*500*time.Millisecond/time.Duration(tasks), wg.Done)
	}
	wg.Wait()
	return time.Since(start)
}

// Callers that only add and cancel must not keep the driver from the lock, neither for a
// cascade nor for the buckets of every tick.
func TestFaultCallersStarveTheDriver(t *testing.T) {
	const callers, tasks = 64, 1000
	burst := unlessShort(300_000, 50_000)
	// measure is timeToRun while a burst comes due and callers add and cancel.
	measure := func(add func(d time.Duration, f func()) (stop func() bool)) time.Duration {
		for i := range burst { // cascades from the second level, one tick after the other
			add(300*time.Millisecond+time.Duration(i)*time.Microsecond, noop)
		}
		var stop atomic.Bool
		var busy sync.WaitGroup
		for range callers {
			busy.Go(func() {
				for !stop.Load() {
					add(time.Hour, noop)()
				}
			})
		}
		defer busy.Wait()
		defer stop.Store(true)
		return timeToRun(tasks, func(d time.Duration, f func()) { add(d, f) })
	}
	atLeastOnce(t, func() bool {
		baseline := measure(func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop })
		w := timingwheel.New(timingwheel.WithShards(1), timingwheel.WithWheelSize(128))
		defer w.Stop()
		ours := measure(func(d time.Duration, f func()) func() bool { return w.AfterFunc(d, f).Stop })
		t.Logf("all have run after %v, with time.AfterFunc after %v", ours, baseline)
		return ours < 2*time.Second+3*baseline
	})
}

// A function at the end of time, and nothing else to do: in a bubble that is a deadlock,
// which synctest has to find, rather than a driver that spins for ever.
func TestFaultEndlessSpinAtTheEndOfABubble(t *testing.T) {
	require.PanicsWithError(t, "deadlock: all goroutines in bubble are blocked", func() {
		synctest.Test(t, func(t *testing.T) {
			timingwheel.New().AfterFunc(math.MaxInt64, noop)
			<-make(chan int)
		})
	})
}
