package engine

import (
	"log/slog"
	"maps"
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
	needsProcessors(t)
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
	needsProcessors(t)
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

// wholeSlices is an executor of a user's own that runs all tasks of a call itself.
type wholeSlices struct{}

func (wholeSlices) Execute(tasks []func()) {
	for _, task := range tasks {
		task()
	}
}

// A function has held the driver up, and thousands of short ones wait behind it. Under any
// executor, all but a slice of them can be canceled, and are handed back by Stop.
func TestWhatWaitsBehindACallStaysPending(t *testing.T) {
	executors := maps.Clone(blocking())
	executors["slices"] = run.Foreign{UserExecutor: wholeSlices{}}
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tasks = 5000
				w := newTestWheel(withExecutor(executor), withShards(2))
				ran := 0
				w.Schedule(time.Second, func() { time.Sleep(time.Second) })
				var timeouts []timeout
				for i := range tasks {
					s := &w.shards[i%2]
					var h Handle
					h.shard = s
					s.lock()
					err := h.Accept(Delay{Now: w.clock.Now(), D: 1500 * time.Millisecond}, func() { ran++; time.Sleep(time.Millisecond) }, OneShot)
					h.UnlockShard()
					require.NoError(t, err)
					timeouts = append(timeouts, timeout(h))
				}
				time.Sleep(2*time.Second + 100*time.Millisecond - time.Microsecond)
				synctest.Wait()
				require.EqualValues(t, tasks-SliceLen, w.Len())
				st := w.verifyStats(t)
				require.EqualValues(t, w.Len(), st.Waiting)
				if name != "slices" {
					require.Equal(t, time.Millisecond-time.Microsecond, st.HeldUp, "of one function, and not of the pile")
				}
				for i := range 500 {
					require.True(t, timeouts[tasks-1-i].Cancel())
				}
				w.verify(t)
				require.Len(t, w.Stop(), tasks-SliceLen-500)
				require.NoError(t, w.Shutdown(t.Context()))
				require.Equal(t, SliceLen, ran)
			})
		})
	}
}

// A worker may take room for a task of a wheel that has just been stopped. It learns that the
// room was not needed, or it would be lost.
func TestStoppedWheelNeedsNoRoom(t *testing.T) {
	w := newTestWheel(withExecutor(run.NewBounded(1, 0, run.Waits, nil)))
	w.Stop()
	require.False(t, w.driver.LetIn())
}

// Waiting entries go on in the order in which they came due, the shard that has waited longest
// first. With a Pool that lets in one at a time, it is the order of the deadlines.
func TestShardThatHasWaitedLongestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := run.NewBounded(1, 0, run.Waits, nil)
		w := newTestWheel(withExecutor(pool), withShards(4))
		release := make(chan struct{})
		pool.Execute([]func(){func() { <-release }})
		var order, want []int
		for i := range 40 {
			addFunction(&w.shards[i*7%4], time.Duration(1+i)*time.Second, func() { order = append(order, i) })
			want = append(want, i)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 40, w.Len())
		close(release)
		synctest.Wait()
		require.Equal(t, want, order)
		w.Stop()
		pool.Close(t.Context())
	})
}

// The shard whose first entry was due first goes first, also behind a call that is apart.
func TestSlicesOfTheShardThatHasWaitedLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withExecutor(run.Inline{}), withShards(2))
		defer w.Stop()
		w.Schedule(time.Second, func() { time.Sleep(time.Minute) })
		var order []int
		for i, s := range []int{1, 0, 1} { // the last of shard 1 is more than a slice away from its first
			for range SliceLen {
				addFunction(&w.shards[s], time.Duration(2+i)*time.Second, func() { order = append(order, i) })
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		var want []int
		for i := range 3 {
			for range SliceLen {
				want = append(want, i)
			}
		}
		require.Equal(t, want, order)
	})
}

// A worker gives its room back just when an entry has found none and is about to join the line. The
// driver tries again. An entry of another wheel that comes due meanwhile goes behind.
func TestPoolServesWhoJoinsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := run.NewBounded(1, 0, run.Waits, nil)
		var order []string
		wheels := map[string]*testWheel{}
		flush := func(name string) {
			w := manual(withExecutor(pool))
			wheels[name] = w
			w.Schedule(0, func() { order = append(order, name) })
			b, ok := w.driver.queue.Poll()
			require.True(t, ok)
			w.driver.flushFirst(b)
			require.EqualValues(t, 1, w.driver.numWaiting.Load())
		}
		require.True(t, pool.TryAcquire())
		flush("first")
		pool.Release() // by a worker that has seen an empty line
		flush("second")
		wheels["first"].driver.handOver()
		synctest.Wait()
		require.Equal(t, []string{"first", "second"}, order)
		for _, w := range wheels {
			w.Stop()
		}
		pool.Close(t.Context())
	})
}

// The entry that waited on a shard was canceled. An entry that comes there later does not go behind
// it, but to the Pool, which has room by now.
func TestNothingWaitsBehindWhatWasCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := run.NewBounded(1, 0, run.Waits, nil)
		busy := make(chan struct{})
		pool.Execute([]func(){func() { <-busy }})
		w := newTestWheel(withExecutor(pool), withShards(2))
		defer w.Stop()
		var handles []ref
		for i := range w.shards {
			handles = append(handles, addFunction(&w.shards[i], time.Duration(i), mustNotRun))
		}
		time.Sleep(time.Second)
		for i, h := range handles {
			s := &w.shards[i]
			s.lock()
			require.True(t, s.cancel(h))
			s.unlock()
		}
		close(busy)
		synctest.Wait()
		var ran atomic.Int64
		for i := range w.shards {
			addFunction(&w.shards[i], 0, func() { ran.Add(1) })
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 2, ran.Load())
		pool.Close(t.Context())
	})
}

// admission is one that has room for nothing, and notes who waits for it.
type admission struct {
	run.Admission
	joined, left []int64 // how many waited on the wheel at that moment
}

func (a *admission) TryAcquire() bool   { return false }
func (a *admission) Serve()             {}
func (a *admission) Join(w run.Waiter)  { a.joined = append(a.joined, w.Waits()) }
func (a *admission) Leave(w run.Waiter) { a.left = append(a.left, w.Waits()) }

// An entry waits before its wheel joins the line: or a worker could find nothing there that
// waits, and take the wheel out. A wheel that is stopped leaves.
func TestWheelWaitsBeforeItJoins(t *testing.T) {
	room := new(admission)
	w := manual(func(c *Config) { c.Admission, c.MayBlock = room, false })
	w.Schedule(0, mustNotRun)
	require.Zero(t, w.Drive(0))
	require.Equal(t, []int64{1}, room.joined)
	require.Len(t, w.Stop(), 1)
	require.Equal(t, []int64{0}, room.left)
}
