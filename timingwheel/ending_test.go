package timingwheel

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// stopWholly stops the shard alone, and returns what it hands back.
func stopWholly(s *engine.Shard) []Pending {
	var c collector
	s.Stop()
	for chunk, more := 0, true; more; {
		chunk, more = s.StopSlice(chunk, engine.SliceLen, &c)
	}
	return c.pending
}

// Stop allocates little more than it returns, and frees the arena on the way.
func TestStopTakesTheMemoryThatItReturns(t *testing.T) {
	tasks := unlessShort(300_000, 100_000)
	w := New(WithManualDrive(), WithShards(4))
	for i := range tasks {
		addFunction(&w.engine().Shards()[i%4], time.Duration(i)*time.Microsecond, noop)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	pending := w.Stop()
	runtime.ReadMemStats(&after)
	require.Len(t, pending, tasks)
	returned := float64(tasks) * float64(unsafe.Sizeof(Pending{}))
	require.Less(t, float64(after.TotalAlloc-before.TotalAlloc)/returned, 1.3)

	w = New(WithManualDrive(), WithShards(1))
	s := &w.engine().Shards()[0]
	for i := range tasks {
		addFunction(s, time.Duration(i*7919%tasks)*time.Millisecond, noop)
	}
	w.engine().StopShards()
	var c collector
	c.Expect(int64(tasks))
	for chunk := 0; len(c.pending) < tasks/2; {
		chunk, _ = s.StopSlice(chunk, engine.SliceLen, &c)
		require.LessOrEqual(t, s.Arena.Cap()+len(c.pending), tasks+4*1024)
	}
	require.Len(t, append(c.pending, w.Stop()...), tasks)
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

		w.engine().MarkClosed()
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
		addFunction(&w.engine().Shards()[0], 0, func() { <-release })
		addFunction(&w.engine().Shards()[255], 0, func() { ran.Store(true) })
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

// From the mark on a shard fires nothing, whatever was on its way: what waits at the gate, the
// rest of a cascade, and a bucket that is being dropped. Marking it again changes nothing.
func TestMarkOfStopEndsAllThatWasOnItsWay(t *testing.T) {
	w := manual()
	s, d := &w.engine().Shards()[0], w.engine().Driver()
	for range 2 * engine.SliceLen {
		addFunction(s, 0, mustNotRun)
	}
	addFunction(s, time.Hour, mustNotRun)
	var emptied Timeout
	emptied, _ = w.Schedule(time.Minute, mustNotRun)
	cascade := &s.DueCascade
	due, ok := d.Queue.Poll()
	require.True(t, ok)
	require.True(t, s.Expire(due, &d.Due)) // the first slice
	require.Len(t, d.Due.Tasks, engine.SliceLen)
	d.Due.Tasks = nil
	w.engine().Runner().Running.Store(0)
	s.Mu.Lock()
	i := cascade.Ring.TakeFirst(&s.Arena)
	s.Wait(i)
	s.Mu.Unlock()
	require.True(t, emptied.Cancel())
	head, _, ok := d.Queue.Peek()
	require.True(t, ok)

	for range 2 {
		s.Stop()
		require.Zero(t, d.Waiting.Load())
		require.EqualValues(t, int64(math.MaxInt64), s.WaitsSince.Load())
	}
	var out engine.DueTasks
	s.TakeWaiting(&out, func() bool { return true })
	require.Empty(t, out.Tasks)
	require.False(t, s.Flush(cascade, &d.Due))
	require.Empty(t, d.Due.Tasks)
	require.False(t, s.DropEmpty(head))
	require.Len(t, w.Stop(), engine.SliceLen+1)
	require.Nil(t, s.Heir, "it keeps what was handed back")
	require.False(t, s.DropEmpty(head))
	require.False(t, s.Flush(cascade, &d.Due))
	require.Zero(t, w.Len())
	require.Zero(t, d.Waiting.Load())
}

// A pass holds the lock for a slice at a time, and is over with an entry when it has come to it.
func TestPassGoesSliceBySlice(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	for range 2 * engine.SliceLen {
		addOwn(s, time.Hour, noop)
		addFunction(s, time.Hour, mustNotRun)
	}
	s.Close()
	chunk, more := s.CloseSlice(0)
	require.True(t, more)
	require.Equal(t, 3*engine.SliceLen, s.Len())
	require.False(t, s.Dismissing)
	for more {
		chunk, more = s.CloseSlice(chunk)
	}
	require.Equal(t, 2*engine.SliceLen, s.Len())
	s.Stop()
	var c collector
	chunk, more = s.StopSlice(0, 100, &c)
	require.True(t, more)
	require.Len(t, c.pending, 100)
	for more {
		chunk, more = s.StopSlice(chunk, 100, &c)
	}
	require.Len(t, c.pending, 2*engine.SliceLen)
}

// What is on its way from one shard to another is not missed, also if nothing is left where
// Stats has not been yet.
func TestStatsMissesNothingThatChangesShards(t *testing.T) {
	w := New(WithManualDrive(), WithShards(2))
	defer w.Stop()
	first, last := &w.engine().Shards()[0], &w.engine().Shards()[1]
	timeout := func(s *engine.Shard) engine.Ref {
		h, err := s.Accept(engine.Delay{Now: 0, D: time.Hour}, mustNotRun, engine.OneShot)
		require.NoError(t, err)
		return h
	}
	last.Lock()
	h := timeout(last)
	looked := make(chan Stats)
	go func() { looked <- w.Stats() }()
	waitUntil(t, last.Fairness.Waiting.Load) // it has seen the first shard
	first.Lock()
	timeout(first)
	first.Unlock()
	require.True(t, last.Cancel(h))
	last.Unlock()
	require.EqualValues(t, 1, (<-looked).Pending)
}

// While a pass is under way, what is canceled moves no other entry to where the pass has been.
func TestPassMissesNothingWhenOthersAreCanceled(t *testing.T) {
	const functions = 20_000
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	timeouts := make([]Timeout, functions)
	for i := range timeouts {
		timeouts[i], _ = w.Schedule(time.Hour, mustNotRun)
	}
	for range 100 {
		addOwn(s, time.Hour, noop)
	}
	s.Close()
	chunk, more := 0, true
	for chunk < 4 {
		chunk, more = s.CloseSlice(chunk)
		require.True(t, more)
	}
	for i := range timeouts {
		if i%500 != 0 {
			require.True(t, timeouts[i].Cancel())
		}
	}
	for more {
		chunk, more = s.CloseSlice(chunk)
	}
	require.Equal(t, functions/500, s.Len())
	w.verifySettled(t)
	s.Stop()
	require.False(t, timeouts[0].Reset(time.Minute), "it fires no more")
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
