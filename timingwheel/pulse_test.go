package timingwheel

import (
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPulse(t *testing.T) {
	var p pulse
	p.next(math.MaxInt64)
	require.False(t, p.isLate(math.MaxInt64))
	p.expect(time.Second)
	require.False(t, p.isLate(time.Second+grace))
	require.True(t, p.isLate(time.Second+grace+1))
	p.expect(time.Minute)
	require.True(t, p.isLate(2*time.Second), "the earlier time counts")
	p.next(2 * time.Second)
	require.False(t, p.isLate(2*time.Second))
	require.True(t, p.isLate(time.Minute))
}

// The pulse follows what the wheel holds, whoever adds it.
func TestPulseOfAWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(1))
		defer w.Stop()
		lateAfter := func() time.Duration {
			synctest.Wait()
			return time.Duration(w.driver.pulse.lateAfter.Load())
		}
		const never = time.Duration(math.MaxInt64)
		require.Equal(t, never, lateAfter(), "nothing is pending")
		w.Schedule(100*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+grace, lateAfter())
		w.Schedule(200*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+grace, lateAfter())
		canceled, _ := w.Schedule(50*time.Millisecond, noop)
		require.Equal(t, 50*time.Millisecond+grace, lateAfter())
		canceled.Cancel()
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, 200*time.Millisecond+grace, lateAfter())
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, never, lateAfter())
		w.Schedule(time.Second, noop)
		w.Stop()
		require.Equal(t, never, lateAfter(), "after Stop nothing is late")
	})
}

// Whoever drives by hand may be as late as he likes.
func TestPulseOfAManualWheel(t *testing.T) {
	for _, w := range []*TimingWheel{New(WithManualDrive()), New(WithManualClock(time.Now()))} {
		w.Schedule(time.Millisecond, noop)
		w.Schedule(0, noop)
		require.False(t, w.driver.pulse.isLate(time.Hour))
		w.Stop()
	}
}

// On one processor, a goroutine that adds without a pause lets the driver run when something
// is due. One that computes does so only when it is taken off the processor. Here it only
// does what each add does first: with the race detector, an add takes too long.
func TestCallersYieldToALateDriver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := New()
	defer w.Stop()
	late := func(start func(d time.Duration, f func()), loop func()) time.Duration {
		var all []time.Duration
		for range 9 {
			var fired atomic.Bool
			began := time.Now()
			start(2*time.Millisecond, func() { fired.Store(true) })
			for !fired.Load() {
				loop()
			}
			all = append(all, time.Since(began))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	spins := 0
	atLeastOnce(t, func() bool {
		computing := late(func(d time.Duration, f func()) { time.AfterFunc(d, f) }, func() { spins++ })
		adding := late(func(d time.Duration, f func()) { w.AfterFunc(d, f) }, func() { w.yield(w.clock.now()) })
		t.Logf("%v after the start, and beside one that computes %v", adding, computing)
		return adding < computing/2
	})
}
