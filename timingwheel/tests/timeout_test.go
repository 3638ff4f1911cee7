package timingwheel_test

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestTimeoutReset(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		timeout, err := w.Schedule(10*msec, log.note)
		require.NoError(t, err)
		for _, d := range []time.Duration{time.Hour, 3 * msec, math.MaxInt64, 20*msec + 1} {
			require.True(t, timeout.Reset(d))
		}
		at, ok := timeout.Deadline()
		require.True(t, ok)
		require.Equal(t, log.start.Add(21*msec), at, "rounded up to a tick")
		time.Sleep(second)
		require.Equal(t, []time.Duration{21 * msec}, log.take())

		require.False(t, timeout.Reset(msec), "it has run, and Reset does not arm it again")
		_, ok = timeout.Deadline()
		require.False(t, ok)
		require.Zero(t, w.Len())

		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			timeout, err = w.Schedule(time.Hour, log.note)
			require.NoError(t, err)
			require.True(t, timeout.Reset(d), "due now")
			require.Equal(t, []time.Duration{time.Since(log.start)}, log.take())
		}
		timeout, err = w.Schedule(time.Hour, log.note)
		require.NoError(t, err)
		require.True(t, timeout.Cancel())
		require.False(t, timeout.Reset(msec), "canceled")
		time.Sleep(second)
		require.Empty(t, log.take())
		require.False(t, timingwheel.Timeout{}.Reset(msec))
		_, ok = timingwheel.Timeout{}.Deadline()
		require.False(t, ok)
	})
}

// The functions of timeouts and timers that are waiting for the end of a Shutdown can come
// earlier, but not later; those of a stopped wheel cannot move.
func TestDeadlinesAndResetAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		start := time.Now()
		timeout, _ := w.Schedule(2*second, noop)
		timer := w.AfterFunc(2*second, noop)
		inGroup := timingwheel.NewGroup(w).AfterFunc(2*second, noop)
		channel := w.NewTimer(2 * msec)
		done := make(chan error)
		go func() { done <- w.Shutdown(t.Context()) }()
		synctest.Wait()
		require.True(t, timeout.Reset(second))
		require.True(t, timer.Reset(second))
		require.True(t, inGroup.Reset(second))
		require.False(t, timeout.Reset(time.Hour), "a later time is refused")
		require.False(t, timer.Reset(time.Hour))
		require.False(t, inGroup.Reset(time.Hour))
		for _, deadline := range []func() (time.Time, bool){timeout.Deadline, timer.Deadline, inGroup.Deadline} {
			at, ok := deadline()
			require.True(t, ok)
			require.Equal(t, start.Add(second), at)
		}
		at, ok := channel.Deadline()
		require.True(t, ok, "package time has it")
		require.Equal(t, start.Add(2*msec), at)
		<-channel.C
		_, ok = channel.Deadline()
		require.False(t, ok)
		require.NoError(t, <-done)
		require.Equal(t, second, time.Since(start))
		require.False(t, timeout.Reset(second))
		_, ok = timeout.Deadline()
		require.False(t, ok)
		_, ok = timer.Deadline()
		require.False(t, ok)

		channel.Reset(math.MaxInt64)
		at, ok = channel.Deadline()
		require.True(t, ok)
		require.True(t, at.After(start.Add(math.MaxInt64-1)))
		require.True(t, channel.Stop())
		_, ok = channel.Deadline()
		require.False(t, ok)
		require.PanicsWithValue(t, "timingwheel: Deadline called on uninitialized Timer", func() { new(timingwheel.Timer).Deadline() })
	})
}

// Many goroutines push one timeout back, and then make it due. Its function
// runs once, and no Reset that comes later returns true.
func TestTimeoutResetRaces(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(10 * time.Microsecond))
	defer w.Stop()
	for range 200 {
		var ran atomic.Int64
		fired := make(chan struct{})
		timeout, err := w.Schedule(time.Hour, func() {
			if ran.Add(1) == 1 {
				close(fired)
			}
		})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for n := 0; n < 50 && timeout.Reset(time.Hour); n++ {
				}
				for timeout.Reset(0) {
				}
			})
		}
		wg.Wait()
		<-fired
		require.False(t, timeout.Reset(0))
		require.EqualValues(t, 1, ran.Load())
	}
}
