package timingwheel_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Futures end, so that Stop has nothing to hand back for them, and keeps no room for that.
func TestStopReturnsNoEmptyRoom(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualDrive())
	for range 1000 {
		_, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
		require.NoError(t, err)
	}
	w.Schedule(time.Hour, noop)
	pending := w.Stop()
	require.Len(t, pending, 1)
	require.Less(t, cap(pending), 10)
	w = timingwheel.New(timingwheel.WithManualDrive())
	w.NewTicker(time.Hour)
	timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
	require.Nil(t, w.Stop())
}

// While Stop is on its way, what it has not come to yet can be canceled: each function is
// either canceled or handed back. Nobody waits until all are handed back.
func TestCancelWhileStopIsOnItsWay(t *testing.T) {
	const tasks = 100_000
	for round := 0; ; round++ {
		require.Less(t, round, 200, "nobody had the lock before Stop had come to all")
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(2))
		timeouts := make([]timingwheel.Timeout, tasks)
		for i := range timeouts {
			timeouts[i], _ = w.Schedule(time.Hour, noop)
		}
		var back []timingwheel.Pending
		var stopping sync.WaitGroup
		stopping.Go(func() { back = w.Stop() })
		for !w.Stats().Closed {
			runtime.Gosched()
		}
		canceled := 0
		for i := range timeouts {
			if timeouts[tasks-1-i].Cancel() {
				canceled++
			}
		}
		stopping.Wait()
		require.Equal(t, tasks, canceled+len(back))
		requireAccounts(t, w.Stats())
		require.Zero(t, w.Len())
		if canceled > 0 {
			return
		}
	}
}

// Shutdown returns when its context has ended, also if there is much to move to package time:
// another goroutine does the rest.
func TestShutdownDoesNotMoveAllFirst(t *testing.T) {
	const timers = 50_000
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for round := 0; ; round++ {
		require.Less(t, round, 50, "Shutdown has moved all")
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(2))
		all := make([]*timingwheel.Timer, timers)
		for i := range all {
			all[i] = w.NewTimer(time.Hour)
		}
		w.Schedule(time.Hour, noop)
		require.ErrorIs(t, w.Shutdown(ended), context.Canceled)
		left := w.Len()
		waitFor(t, func() bool { return w.Len() == 1 })
		for _, timer := range all {
			require.True(t, timer.Stop())
		}
		require.Len(t, w.Stop(), 1)
		if left > 1 {
			return
		}
	}
}

// A function that was pushed back without the lock is handed back like any other.
func TestStopHandsBackWhatWasPushedBack(t *testing.T) {
	w := virtual()
	ran := 0
	timer := w.AfterFunc(time.Second, func() { ran++ })
	require.True(t, timer.Reset(2*time.Second))
	require.True(t, timer.Reset(3*time.Second))
	pending := w.Stop()
	require.Len(t, pending, 1)
	require.Equal(t, moonLanding.Add(3*time.Second), pending[0].Deadline)
	pending[0].Func()
	require.Equal(t, 1, ran)
}

// Stop allocates little more than it returns.
func TestStopTakesTheMemoryThatItReturns(t *testing.T) {
	tasks := unlessShort(300_000, 100_000)
	w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(4))
	for i := range tasks {
		w.Schedule(time.Duration(i)*time.Microsecond, noop)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pending := w.Stop()
	runtime.ReadMemStats(&after)
	require.Len(t, pending, tasks)
	returned := float64(tasks) * float64(unsafe.Sizeof(timingwheel.Pending{}))
	require.Less(t, float64(after.TotalAlloc-before.TotalAlloc)/returned, 1.3)
}
