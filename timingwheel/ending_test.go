package timingwheel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// stopWholly stops the shard alone, and returns what it hands back.
func (s *shard) stopWholly() (pending []Pending) {
	s.stop()
	for chunk, more := 0, true; more; {
		chunk, more = s.stopSlice(chunk, sliceLen, &pending)
	}
	return pending
}

// Stop allocates little more than it returns, and frees the arena on the way.
func TestStopTakesTheMemoryThatItReturns(t *testing.T) {
	tasks := unlessShort(300_000, 100_000)
	w := New(WithManualDrive(), WithShards(4))
	for i := range tasks {
		w.shards[i%4].addFunction(time.Duration(i)*time.Microsecond, noop)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pending := w.Stop()
	runtime.ReadMemStats(&after)
	require.Len(t, pending, tasks)
	returned := float64(tasks) * float64(unsafe.Sizeof(Pending{}))
	require.Less(t, float64(after.TotalAlloc-before.TotalAlloc)/returned, 1.3)

	w = New(WithManualDrive(), WithShards(1))
	s := &w.shards[0]
	for i := range tasks {
		s.addFunction(time.Duration(i*7919%tasks)*time.Millisecond, noop)
	}
	w.stopShards()
	pending = make([]Pending, 0, tasks)
	for chunk := 0; len(pending) < tasks/2; {
		chunk, _ = s.stopSlice(chunk, sliceLen, &pending)
		require.LessOrEqual(t, s.arena.Cap()+len(pending), tasks+4*1024)
	}
	require.Len(t, append(pending, w.Stop()...), tasks)
}

// Futures end, so that Stop has nothing to hand back for them, and keeps no room for that.
func TestStopReturnsNoEmptyRoom(t *testing.T) {
	w := New(WithManualDrive())
	for range 1000 {
		_, err := Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
		require.NoError(t, err)
	}
	w.Schedule(time.Hour, noop)
	pending := w.Stop()
	require.Len(t, pending, 1)
	require.Less(t, cap(pending), 10)
	w = New(WithManualDrive())
	w.NewTicker(time.Hour)
	Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
	require.Nil(t, w.Stop())
}

// While Stop is on its way, what it has not come to yet can be canceled: each function is
// either canceled or handed back. Nobody waits until all are handed back.
func TestCancelWhileStopIsOnItsWay(t *testing.T) {
	const tasks = 100_000
	for round := 0; ; round++ {
		require.Less(t, round, 200, "nobody had the lock before Stop had come to all")
		w := New(WithManualDrive(), WithShards(2))
		timeouts := make([]Timeout, tasks)
		for i := range timeouts {
			timeouts[i], _ = w.Schedule(time.Hour, noop)
		}
		var back []Pending
		var stopping sync.WaitGroup
		stopping.Go(func() { back = w.Stop() })
		for !w.Stats().Stopped {
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
		w := New(WithManualDrive(), WithShards(2))
		all := make([]*Timer, timers)
		for i := range all {
			all[i] = w.NewTimer(time.Hour)
		}
		w.Schedule(time.Hour, noop)
		require.ErrorIs(t, w.Shutdown(ended), context.Canceled)
		left := w.Len()
		waitUntil(t, func() bool { return w.Len() == 1 })
		w.verifySettled(t)
		for _, timer := range all {
			require.True(t, timer.Stop())
		}
		require.Len(t, w.Stop(), 1)
		if left > 1 {
			return
		}
	}
}

// Between the moment in which a wheel is closed and that in which the pass comes to a task of
// the wheel's own, the task may be used and may fire. It does so once.
func TestOwnTasksBetweenTheMarkAndThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(2))
		start := time.Now()
		later, stopped, soon, kept := w.NewTimer(time.Minute), w.NewTimer(time.Minute), w.NewTimer(time.Second), w.NewTimer(time.Hour)
		ticker, ended := w.NewTicker(time.Second), w.NewTicker(time.Second)
		ctx, cancel := w.WithTimeout(t.Context(), time.Second)
		defer cancel()
		canceled, cancel := w.WithTimeout(t.Context(), time.Second)
		job := mustJob(t)(w.ScheduleAtFixedRate(time.Second, time.Second, func() { t.Error("ran") }))
		other := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { t.Error("ran") }))
		last := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { t.Error("ran") }))

		w.markClosed()
		require.True(t, later.Reset(2*time.Minute))
		at, ok := later.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(2*time.Minute), at)
		at, ok = kept.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(time.Hour), at)
		require.True(t, stopped.Stop())
		ended.Stop()
		cancel()
		require.True(t, other.Stop())
		require.ErrorIs(t, other.Err(), ErrCanceled)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, start.Add(time.Second), <-soon.C)
		require.Equal(t, start.Add(time.Second), <-ticker.C)
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		require.ErrorIs(t, canceled.Err(), context.Canceled)
		require.ErrorIs(t, job.Err(), ErrStopped)
		require.NoError(t, last.Err())
		w.verify(t)

		require.NoError(t, w.Shutdown(t.Context()))
		require.ErrorIs(t, last.Err(), ErrStopped)
		at, ok = kept.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(time.Hour), at)
		require.Equal(t, start.Add(2*time.Minute), <-later.C)
		require.Equal(t, start.Add(time.Hour), <-kept.C)
		time.Sleep(time.Hour)
		for _, c := range []<-chan time.Time{later.C, stopped.C, soon.C, kept.C, ticker.C, ended.C} {
			require.Empty(t, c)
		}
		requireAccounts(t, w.Stats())
	})
}

// Stats shows a task on its way from the wheel to the executor, and one that comes back.
func TestStatsMissesNoTask(t *testing.T) {
	rounds := unlessShort(500, 100)
	for range rounds {
		w := New(WithShards(256))
		var ran atomic.Bool
		release := make(chan struct{})
		w.shards[0].addFunction(0, func() { <-release })
		w.shards[255].addFunction(0, func() { ran.Store(true) })
		for {
			st, over := w.Stats(), ran.Load()
			if over {
				break
			}
			require.GreaterOrEqual(t, st.Pending+st.Running, int64(2))
			require.LessOrEqual(t, st.Waiting, st.Pending)
		}
		close(release)
		w.Stop()
	}
	w := New(WithShards(256), WithTick(time.Microsecond))
	defer w.Stop()
	var again func()
	again = func() { w.Schedule(0, again) }
	again()
	for range 10 * rounds {
		st := w.Stats()
		require.Positive(t, st.Pending+st.Running)
	}
}
