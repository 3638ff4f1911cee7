package engine

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// One watch serves several calls. It has expired when a later one still has patience, and
// that call is watched all the same.
func TestLaterCallIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withExecutor(run.Inline{}), withShards(1))
		defer w.Stop()
		patience := w.driver.Handoff.Patience
		start := time.Now()
		for i := range 2*SliceLen + 10 {
			pause := time.Duration(0)
			switch i {
			case SliceLen - 1:
				pause = patience * 3 / 5
			case SliceLen + 1:
				pause = time.Minute
			}
			w.Schedule(time.Second, func() { time.Sleep(pause) })
		}
		time.Sleep(time.Second + patience*3/2)
		synctest.Wait()
		require.EqualValues(t, Calling, w.driver.Handoff.State.Load(), "it has some patience left")
		time.Sleep(patience / 2)
		synctest.Wait()
		require.EqualValues(t, Detached, w.driver.Handoff.State.Load())
		<-w.After(5 * time.Second)
		require.Less(t, time.Since(start), 7*time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, w.Len())
		require.False(t, w.driver.Handoff.Armed.Load(), "nothing is left behind")
		require.Nil(t, w.runner.Detached.Load())
		w.driver.Handoff.Ring(new(Alarm)) // which went off just when the call returned
		require.Nil(t, w.driver.Handoff.Alarm)
	})
}

// However early the watch ends, a call that does not return is detached: also if the
// driver is descheduled just when it has armed the watch.
func TestWatchNeverComesTooEarly(t *testing.T) {
	rounds := unlessShort(1000, 300)
	w := newTestWheel(withExecutor(run.Inline{}), withShards(1))
	defer w.Stop()
	w.driver.Handoff.Patience = 0
	for range rounds {
		release, ended := make(chan bool), make(chan bool)
		w.Schedule(0, func() { <-release; close(ended) })
		select {
		case <-w.After(time.Microsecond):
		case <-time.After(30 * time.Second):
			t.Fatal("a function holds the driver up")
		}
		close(release)
		<-ended
	}
}

// A call returns just when an entry has found it detached: then nobody would take what waits.
func TestNothingWaitsForACallThatIsOver(t *testing.T) {
	w := newTestWheel(withExecutor(run.Inline{}), withShards(1))
	defer w.Stop()
	s, h := &w.shards[0], &w.driver.Handoff
	i, _ := s.Arena.Alloc(0, noop, OneShot)
	h.State.Store(Detached)
	h.Mu.Lock() // as rejoin does
	held := make(chan bool)
	go func() { held <- h.Hold(s, i) }()
	time.Sleep(10 * time.Millisecond) // until it waits for the lock
	h.State.Store(Idle)
	h.Mu.Unlock()
	require.False(t, <-held)
	s.Arena.Free(i)
}

// A watch that finds nobody in the executor is over, and does not wake up again and again.
func TestWatchEndsWhenNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withExecutor(run.Inline{}), withShards(1))
		h := &w.driver.Handoff
		for range SliceLen { // after a full slice the watch goes on
			w.Schedule(time.Second, noop)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, h.Armed.Load())
		time.Sleep(h.Patience)
		synctest.Wait()
		require.False(t, h.Armed.Load())
		w.Schedule(time.Second, noop)
		time.Sleep(time.Second + w.clock.Tick)
		synctest.Wait()
		require.False(t, h.Armed.Load(), "or else the next call is not watched")
		w.Stop()
	})
}

// A goroutine that drives on beside a long call may be ended by a later task: another drives.
func TestTaskEndsTheDriverThatTookOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withExecutor(run.Inline{}), withShards(2))
		defer w.Stop()
		s, other := &w.shards[0], &w.shards[1]
		const begin = 10 * time.Millisecond
		patience := w.driver.Handoff.Patience
		var ran []int
		addFunction(s, begin, func() { time.Sleep(2 * patience) })
		addOwn(other, begin+patience, func() { time.Sleep(5 * patience) }) // takes longer than the call
		addFunction(s, begin+3*patience, func() { ran = append(ran, 1); runtime.Goexit() })
		addFunction(s, begin+4*patience, func() { ran = append(ran, 2) })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []int{1, 2}, ran)
	})
}

// inDetachedCall calls f with a wheel that is driven by hand, whose handoff looks as if
// another goroutine were driving on beside a call.
func inDetachedCall(t *testing.T, f func(w *testWheel, h *Handoff), opts ...option) {
	w := manual(opts...)
	defer w.Stop()
	h := &w.driver.Handoff
	require.False(t, h.Detach(), "there is no call")
	h.State.Store(Calling)
	h.Began.Start()
	require.True(t, h.Detach())
	f(w, h)
	require.EqualValues(t, Idle, h.State.Load())
}

// Something comes to wait just when the call wants to be over: then it goes on.
func TestCallIsNotOverWhileSomethingWaits(t *testing.T) {
	inDetachedCall(t, func(w *testWheel, h *Handoff) {
		h.Mu.Lock() // as hold does
		rejoined := make(chan bool)
		go func() { rejoined <- h.Rejoin() }()
		time.Sleep(10 * time.Millisecond) // until it waits for the lock
		w.driver.Waiting.Add(1)
		h.Mu.Unlock()
		require.False(t, <-rejoined)
		require.EqualValues(t, Detached, h.State.Load())
		w.driver.Waiting.Add(-1)
		require.True(t, h.Rejoin())
	})
}

// What waited may be canceled at the last moment. The executor never gets an empty slice.
func TestExecutorGetsNoEmptySlice(t *testing.T) {
	calls := 0
	inDetachedCall(t, func(w *testWheel, h *Handoff) {
		w.driver.Waiting.Add(1)
		returned := make(chan bool)
		go func() { returned <- h.Returned() }()
		time.Sleep(10 * time.Millisecond)
		w.driver.Waiting.Add(-1)
		require.False(t, <-returned)
	}, withExecuteFunc(func([]func()) { calls++ }))
	require.Zero(t, calls)
}

// The goroutine of a call that was detached does not drive any more, also if a task has ended
// it: somebody else has the driver in his hands.
func TestDetachedGoroutineDoesNotDrive(t *testing.T) {
	inDetachedCall(t, func(w *testWheel, _ *Handoff) {
		w.driver.Due.Tasks = []run.Task{run.Function(mustNotRun)} // what the other is about to hand on
		w.driver.Resume()
		require.Len(t, w.driver.Due.Tasks, 1)
		w.driver.Due.Tasks = nil
	}, withExecutor(run.Inline{}))
}

// The alarm of a call that has returned rings no more, and is not set again.
func TestAlarmEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inDetachedCall(t, func(w *testWheel, h *Handoff) {
			alarm := h.Alarm
			require.NotNil(t, alarm)
			require.True(t, h.Rejoin())
			h.State.Store(Calling) // a later one
			time.Sleep(2 * time.Second)
			_, _, due := h.Due(alarm)
			require.False(t, due)
			require.False(t, alarm.Timer.Stop(), "it is set for another look")
			h.State.Store(Idle)
			h.Began.Stop()
		}, withExecutor(run.Inline{}), withLogger(slog.New(slog.DiscardHandler)))
	})
}

// What is told of a function is told of one function: its name and its beginning belong together.
func TestHeldUpByOneFunction(t *testing.T) {
	inDetachedCall(t, func(w *testWheel, h *Handoff) {
		codes := [...]uintptr{run.Code(run.Function(longFunctionA)), run.Code(run.Function(longFunctionB))}
		began := map[int64]string{} // the function, by when it began
		var end atomic.Bool
		var running sync.WaitGroup
		running.Go(func() {
			defer end.Store(true)
			for n := range 20_000 {
				w.runner.Begin(codes[n%2])
				since := h.Began.Since.Load()
				if _, ok := began[since]; ok {
					began[since] = "" // a coarse clock: nobody can tell
					continue
				}
				began[since] = runtime.FuncForPC(codes[n%2]).Name()
			}
		})
		told := map[int64]string{}
		for !end.Load() {
			if _, by, since := h.Present(); since != 0 {
				told[since] = by
			}
		}
		running.Wait()
		for since, by := range told {
			if was := began[since]; was != "" {
				require.Equal(t, was, by)
			}
		}
		require.True(t, h.Rejoin())
	}, withExecutor(run.Inline{}))
}

func longFunctionA() {}

func longFunctionB() {}
