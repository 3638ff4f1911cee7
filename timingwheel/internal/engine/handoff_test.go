package engine

import (
	"log/slog"
	"reflect"
	"runtime"
	"strings"
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
		patience := w.driver.handoff.patience
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
		require.EqualValues(t, calling, w.driver.handoff.state.Load(), "it has some patience left")
		time.Sleep(patience / 2)
		synctest.Wait()
		require.EqualValues(t, detached, w.driver.handoff.state.Load())
		<-w.After(5 * time.Second)
		require.Less(t, time.Since(start), 7*time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, w.Len())
		require.False(t, w.driver.handoff.armed.Load(), "nothing is left behind")
		require.Nil(t, w.runner.Detached.Load())
	})
}

// However early the watch ends, a call that does not return is detached: also if the
// driver is descheduled just when it has armed the watch.
func TestWatchNeverComesTooEarly(t *testing.T) {
	rounds := unlessShort(1000, 300)
	w := newTestWheel(withExecutor(run.Inline{}), withShards(1))
	defer w.Stop()
	w.driver.handoff.patience = 0
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
	s, h := &w.shards[0], &w.driver.handoff
	i, _ := s.arena.Alloc(0, noop, OneShot)
	h.state.Store(detached)
	h.mu.Lock() // as rejoin does
	held := make(chan bool)
	go func() { held <- h.hold(s, i) }()
	time.Sleep(10 * time.Millisecond) // until it waits for the lock
	h.state.Store(idle)
	h.mu.Unlock()
	require.False(t, <-held)
	s.arena.Free(i)
}

// A watch that finds the executor empty ends, and does not wake up again and again.
func TestWatchEndsWhenNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withExecutor(run.Inline{}), withShards(1))
		h := &w.driver.handoff
		for range SliceLen { // after a full slice the watch goes on
			w.Schedule(time.Second, noop)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, h.armed.Load())
		time.Sleep(h.patience)
		synctest.Wait()
		require.False(t, h.armed.Load())
		w.Schedule(time.Second, noop)
		time.Sleep(time.Second + w.clock.tick)
		synctest.Wait()
		require.False(t, h.armed.Load(), "or else the next call is not watched")
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
		patience := w.driver.handoff.patience
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
func inDetachedCall(t *testing.T, f func(w *testWheel, h *handoff), opts ...option) {
	w := manual(opts...)
	defer w.Stop()
	h := &w.driver.handoff
	require.False(t, h.detach(), "there is no call")
	h.state.Store(calling)
	h.began.Start()
	require.True(t, h.detach())
	f(w, h)
	require.EqualValues(t, idle, h.state.Load())
}

// A task comes to wait just when the call is about to end. Then the call goes on.
func TestCallIsNotOverWhileSomethingWaits(t *testing.T) {
	inDetachedCall(t, func(w *testWheel, h *handoff) {
		h.mu.Lock() // as hold does
		rejoined := make(chan bool)
		go func() { rejoined <- h.rejoin() }()
		time.Sleep(10 * time.Millisecond) // until it waits for the lock
		w.driver.numWaiting.Add(1)
		h.mu.Unlock()
		require.False(t, <-rejoined)
		require.EqualValues(t, detached, h.state.Load())
		w.driver.numWaiting.Add(-1)
		require.True(t, h.rejoin())
	})
}

// A waiting task may be canceled at the last moment. The executor never gets an empty slice.
func TestExecutorGetsNoEmptySlice(t *testing.T) {
	calls := 0
	inDetachedCall(t, func(w *testWheel, h *handoff) {
		w.driver.numWaiting.Add(1)
		returned := make(chan bool)
		go func() { returned <- h.returned() }()
		time.Sleep(10 * time.Millisecond)
		w.driver.numWaiting.Add(-1)
		require.False(t, <-returned)
	}, withExecuteFunc(func([]func()) { calls++ }))
	require.Zero(t, calls)
}

// The goroutine of a call that was detached does not drive any more, also if a task has ended
// it: somebody else has the driver in his hands.
func TestDetachedGoroutineDoesNotDrive(t *testing.T) {
	inDetachedCall(t, func(w *testWheel, _ *handoff) {
		w.driver.found.tasks = []run.Task{run.Function(mustNotRun)} // what the other is about to hand on
		w.driver.resume()
		require.Len(t, w.driver.found.tasks, 1)
		w.driver.found.tasks = nil
	}, withExecutor(run.Inline{}))
}

// A warning ends with its call and never covers a later call.
func TestWarningsEndWithTheirCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		inDetachedCall(t, func(w *testWheel, h *handoff) {
			time.Sleep(1500 * time.Millisecond)
			require.True(t, h.rejoin())
			h.began.Start()
			h.state.Store(calling) // a later one
			time.Sleep(2 * time.Second)
			h.state.Store(idle)
			h.began.Stop()
		}, withExecutor(run.Inline{}), withLogger(slog.New(slog.NewTextHandler(&log, nil))))
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "holds the driver up"), log.String())
	})
}

// A report names one function: its name and its beginning belong together.
func TestHeldUpByOneFunction(t *testing.T) {
	inDetachedCall(t, func(w *testWheel, h *handoff) {
		began := map[int64]string{} // the function, by when it began
		note := func(name string) {
			since := h.began.Since.Load()
			if _, ok := began[since]; ok {
				name = "" // a coarse clock: nobody can tell
			}
			began[since] = name
		}
		var names [2]string
		functions := [2]func(){func() { note(names[0]) }, func() { note(names[1]) }}
		for i, f := range functions {
			names[i] = runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
		}
		var end atomic.Bool
		var running sync.WaitGroup
		running.Go(func() {
			defer end.Store(true)
			for n := range 20_000 {
				w.runner.Admit(1)
				run.Inline{}.ExecuteTasks([]run.Task{run.Function(functions[n%2])}, w.runner)
			}
		})
		told := map[int64]string{}
		for !end.Load() {
			if _, by, since := h.present(); since != 0 {
				told[since] = by
			}
		}
		running.Wait()
		for since, by := range told {
			if was := began[since]; was != "" {
				require.Equal(t, was, by)
			}
		}
		require.True(t, h.rejoin())
	}, withExecutor(run.Inline{}))
}
