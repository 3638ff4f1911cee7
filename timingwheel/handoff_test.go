package timingwheel

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// blocking are the executors that may run a user's function on the driver.
func blocking() map[string]Executor {
	return map[string]Executor{
		"inline":      Inline(),
		"caller runs": closedPool(fullCallerRuns),
		"discard":     closedPool(fullDiscard(func(task func()) { task() })),
		"func":        ExecutorFunc(func(task func()) { task() }),
	}
}

// requireOnTime waits for a channel, Sleep, a context and a ticker, for 10 seconds in all.
func requireOnTime(t *testing.T, w *TimingWheel) {
	t.Helper()
	start := time.Now()
	ticker := w.NewTicker(10 * time.Second)
	defer ticker.Stop()
	<-w.After(5 * time.Second)
	require.Equal(t, 5*time.Second, time.Since(start))
	w.Sleep(time.Second)
	require.Equal(t, 6*time.Second, time.Since(start))
	ctx, cancel := w.WithTimeout(t.Context(), time.Second)
	defer cancel()
	<-ctx.Done()
	require.Equal(t, 7*time.Second, time.Since(start))
	<-ticker.C
	require.Equal(t, 10*time.Second, time.Since(start))
}

// evenThenOdd returns 1+i for the even i below n, and then for the odd ones, without one.
func evenThenOdd(n, without int) (want []int) {
	for _, parity := range []int{0, 1} {
		for i := range n {
			if i%2 == parity && i != without {
				want = append(want, 1+i)
			}
		}
	}
	return want
}

// While a function holds the driver up, channels, tickers, Sleep and contexts fire on time,
// and other functions wait: pending, cancelable, in order, one at a time.
func TestNothingElseWaitsForAFunction(t *testing.T) {
	for name, executor := range blocking() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := New(WithExecutor(executor), WithShards(1))
				defer w.Stop()
				start := time.Now()
				var mu sync.Mutex // no other order is known between a look here and a task later
				var order []int
				seen := func() []int {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(order)
				}
				running := 0
				note := func(i int, d time.Duration) func() {
					return func() {
						running++
						require.Equal(t, 1, running)
						time.Sleep(d)
						running--
						mu.Lock()
						defer mu.Unlock()
						order = append(order, i)
					}
				}
				w.Schedule(time.Second, note(0, time.Minute))
				var canceled Timeout
				for i := range 600 {
					timeout, _ := w.Schedule(time.Duration(2+i%2)*time.Second, note(1+i, 0))
					if i == 7 {
						canceled = timeout
					}
				}
				late := w.AfterFunc(4*time.Second, note(1000, 0))

				requireOnTime(t, w)
				require.Equal(t, 10*time.Second, time.Since(start))

				synctest.Wait()
				require.Empty(t, seen())
				require.Equal(t, 601, w.Len())
				st := w.verifyStats(t)
				require.EqualValues(t, 601, st.Waiting)
				require.Equal(t, 9*time.Second, st.HeldUp)
				require.NotEmpty(t, st.HeldUpBy)
				require.True(t, canceled.Cancel())
				require.True(t, late.Reset(3*time.Minute))
				require.True(t, late.Stop())
				require.False(t, late.Stop())
				require.False(t, late.Reset(3*time.Minute))

				time.Sleep(2 * time.Minute)
				synctest.Wait()
				require.Len(t, seen(), 600)
				require.Equal(t, 0, seen()[0])
				require.Equal(t, evenThenOdd(600, 7), seen()[1:])
				st = w.verifyStats(t)
				require.Zero(t, st.HeldUp)
				require.Zero(t, st.Waiting)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				require.Equal(t, 1000, seen()[600])
			})
		})
	}
}

// One watch serves several calls. It has expired when a later one still has patience, and
// that call is watched all the same.
func TestLaterCallIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithExecutor(Inline()), WithShards(1))
		defer w.Stop()
		patience := w.engine().Driver().Handoff.Patience
		start := time.Now()
		for i := range 2*engine.SliceLen + 10 {
			pause := time.Duration(0)
			switch i {
			case engine.SliceLen - 1:
				pause = patience * 3 / 5
			case engine.SliceLen + 1:
				pause = time.Minute
			}
			w.Schedule(time.Second, func() { time.Sleep(pause) })
		}
		time.Sleep(time.Second + patience*3/2)
		synctest.Wait()
		require.EqualValues(t, engine.Calling, w.engine().Driver().Handoff.State.Load(), "it has some patience left")
		time.Sleep(patience / 2)
		synctest.Wait()
		require.EqualValues(t, engine.Detached, w.engine().Driver().Handoff.State.Load())
		<-w.After(5 * time.Second)
		require.Less(t, time.Since(start), 7*time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, w.Len())
		require.False(t, w.engine().Driver().Handoff.Armed.Load(), "nothing is left behind")
		require.Nil(t, w.engine().Runner().Detached.Load())
		w.engine().Driver().Handoff.Ring(new(engine.Alarm)) // which went off just when the call returned
		require.Nil(t, w.engine().Driver().Handoff.Alarm)
	})
}

// A task that runs inline may sleep on its own wheel, and wait for a context of it.
func TestInlineTaskWaitsForItsWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithExecutor(Inline()))
		var slept, timedOut time.Duration
		w.Schedule(time.Second, func() {
			start := time.Now()
			w.Sleep(time.Minute)
			slept = time.Since(start)
			ctx, cancel := w.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			<-ctx.Done()
			timedOut = time.Since(start)
		})
		require.NoError(t, w.Shutdown(t.Context()))
		require.Equal(t, time.Minute, slept)
		require.Equal(t, 2*time.Minute, timedOut)
	})
}

// Stop while a function holds the driver up: what waits is handed back, and when the function
// returns no goroutine is left.
func TestStopWhileHeldUp(t *testing.T) {
	for name, executor := range blocking() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := New(WithExecutor(executor))
				release := make(chan bool)
				w.Schedule(0, func() { <-release; runtime.Goexit() })
				time.Sleep(time.Second)
				for range 10 {
					w.Schedule(0, func() { t.Error("ran") })
				}
				time.Sleep(time.Second)
				require.Len(t, w.Stop(), 10)
				require.EqualValues(t, 1, w.Stats().Running)
				close(release)
				require.NoError(t, w.Shutdown(t.Context()))
				synctest.Wait()
				require.EqualValues(t, engine.Idle, w.engine().Driver().Handoff.State.Load())
			}) // the bubble ends only when all its goroutines have
		})
	}
}

// Real goroutines: functions that take longer than patience or not, that end their goroutine,
// cancel others and schedule more. At no time do two run at once, none is lost, and channels go on.
func TestHandoffStress(t *testing.T) {
	rounds := unlessShort(1500, 300)
	for name, executor := range blocking() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := New(WithExecutor(executor), WithShards(4), WithTick(20*time.Microsecond))
			var running, done, canceled atomic.Int64
			var adders sync.WaitGroup
			for adder := range 2 {
				adders.Go(func() {
					for n := range rounds {
						var timeout atomic.Pointer[Timeout]
						own, _ := w.Schedule(time.Duration(n%40)*20*time.Microsecond, func() {
							if running.Add(1) != 1 {
								t.Error("two at once")
							}
							defer running.Add(-1)
							defer done.Add(1)
							if n%50 == adder {
								time.Sleep(3 * time.Millisecond)
							}
							if other := timeout.Load(); other != nil && other.Cancel() {
								canceled.Add(1)
							}
							if n%7 == 0 {
								runtime.Goexit()
							}
						})
						timeout.Store(&own)
						other, _ := w.Schedule(time.Millisecond, func() { done.Add(1) })
						timeout.Store(&other)
						if n%100 == 0 {
							<-w.After(time.Millisecond)
						}
					}
				})
			}
			adders.Wait()
			require.NoError(t, w.Shutdown(t.Context()))
			require.EqualValues(t, 4*rounds, done.Load()+canceled.Load())
			requireAccounts(t, w.Stats())
			waitUntil(t, func() bool { return w.engine().Driver().Handoff.State.Load() == engine.Idle })
		})
	}
}

// Under manual drive a call that a task has ended holds up nobody any more.
func TestHeldUpEndsWithTheCall(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("end") }, "exit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := manual()
				defer w.Stop()
				w.Schedule(0, end)
				done := make(chan bool)
				go func() {
					defer close(done)
					defer func() { recover() }()
					w.Drive(0)
				}()
				<-done
				time.Sleep(time.Minute)
				require.Zero(t, w.Stats().HeldUp)
			})
		})
	}
}

// However early the watch ends, a call that does not return is detached: also if the
// driver is descheduled just when it has armed the watch.
func TestWatchNeverComesTooEarly(t *testing.T) {
	rounds := unlessShort(1000, 300)
	w := New(WithExecutor(Inline()), WithShards(1))
	defer w.Stop()
	w.engine().Driver().Handoff.Patience = 0
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
	w := New(WithExecutor(Inline()), WithShards(1))
	defer w.Stop()
	s, h := &w.engine().Shards()[0], &w.engine().Driver().Handoff
	i, _ := s.Arena.Alloc(0, noop, engine.OneShot)
	h.State.Store(engine.Detached)
	h.Mu.Lock() // as rejoin does
	held := make(chan bool)
	go func() { held <- h.Hold(s, i) }()
	time.Sleep(10 * time.Millisecond) // until it waits for the lock
	h.State.Store(engine.Idle)
	h.Mu.Unlock()
	require.False(t, <-held)
	s.Arena.Free(i)
}

// A watch that finds nobody in the executor is over, and does not wake up again and again.
func TestWatchEndsWhenNothingRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithExecutor(Inline()), WithShards(1))
		h := &w.engine().Driver().Handoff
		for range engine.SliceLen { // after a full slice the watch goes on
			w.Schedule(time.Second, noop)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, h.Armed.Load())
		time.Sleep(h.Patience)
		synctest.Wait()
		require.False(t, h.Armed.Load())
		w.Schedule(time.Second, noop)
		time.Sleep(time.Second + w.engine().Clock().Tick)
		synctest.Wait()
		require.False(t, h.Armed.Load(), "or else the next call is not watched")
		w.Stop()
	})
}

// A goroutine that drives on beside a long call may be ended by a later task: another drives.
func TestTaskEndsTheDriverThatTookOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithExecutor(Inline()), WithShards(2))
		defer w.Stop()
		s, other := &w.engine().Shards()[0], &w.engine().Shards()[1]
		const begin = 10 * time.Millisecond
		patience := w.engine().Driver().Handoff.Patience
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
func inDetachedCall(t *testing.T, f func(w *TimingWheel, h *engine.Handoff), opts ...Option) {
	w := manual(opts...)
	defer w.Stop()
	h := &w.engine().Driver().Handoff
	require.False(t, h.Detach(), "there is no call")
	h.State.Store(engine.Calling)
	h.Began.Start()
	require.True(t, h.Detach())
	f(w, h)
	require.EqualValues(t, engine.Idle, h.State.Load())
}

// Something comes to wait just when the call wants to be over: then it goes on.
func TestCallIsNotOverWhileSomethingWaits(t *testing.T) {
	inDetachedCall(t, func(w *TimingWheel, h *engine.Handoff) {
		h.Mu.Lock() // as hold does
		rejoined := make(chan bool)
		go func() { rejoined <- h.Rejoin() }()
		time.Sleep(10 * time.Millisecond) // until it waits for the lock
		w.engine().Driver().Waiting.Add(1)
		h.Mu.Unlock()
		require.False(t, <-rejoined)
		require.EqualValues(t, engine.Detached, h.State.Load())
		w.engine().Driver().Waiting.Add(-1)
		require.True(t, h.Rejoin())
	})
}

// What waited may be canceled at the last moment. The executor never gets an empty slice.
func TestExecutorGetsNoEmptySlice(t *testing.T) {
	calls := 0
	inDetachedCall(t, func(w *TimingWheel, h *engine.Handoff) {
		w.engine().Driver().Waiting.Add(1)
		returned := make(chan bool)
		go func() { returned <- h.Returned() }()
		time.Sleep(10 * time.Millisecond)
		w.engine().Driver().Waiting.Add(-1)
		require.False(t, <-returned)
	}, WithExecutor(executeFunc(func([]func()) { calls++ })))
	require.Zero(t, calls)
}

// executeFunc is an Executor that is given all tasks at once.
type executeFunc func(tasks []func())

func (f executeFunc) Execute(tasks []func()) { f(tasks) }

// The goroutine of a call that was detached does not drive any more, also if a task has ended
// it: somebody else has the driver in his hands.
func TestDetachedGoroutineDoesNotDrive(t *testing.T) {
	inDetachedCall(t, func(w *TimingWheel, _ *engine.Handoff) {
		w.engine().Driver().Due.Tasks = []run.Task{run.Function(mustNotRun)} // what the other is about to hand on
		w.engine().Driver().Resume()
		require.Len(t, w.engine().Driver().Due.Tasks, 1)
		w.engine().Driver().Due.Tasks = nil
	}, WithExecutor(Inline()))
}

// The alarm of a call that has returned rings no more, and is not set again.
func TestAlarmEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inDetachedCall(t, func(w *TimingWheel, h *engine.Handoff) {
			alarm := h.Alarm
			require.NotNil(t, alarm)
			require.True(t, h.Rejoin())
			h.State.Store(engine.Calling) // a later one
			time.Sleep(2 * time.Second)
			_, _, due := h.Due(alarm)
			require.False(t, due)
			require.False(t, alarm.Timer.Stop(), "it is set for another look")
			h.State.Store(engine.Idle)
			h.Began.Stop()
		}, WithExecutor(Inline()), WithLogger(slog.New(slog.DiscardHandler)))
	})
}

// What is told of a function is told of one function: its name and its beginning belong together.
func TestHeldUpByOneFunction(t *testing.T) {
	inDetachedCall(t, func(w *TimingWheel, h *engine.Handoff) {
		codes := [...]uintptr{run.Code(run.Function(longFunctionA)), run.Code(run.Function(longFunctionB))}
		began := map[int64]string{} // the function, by when it began
		var end atomic.Bool
		var running sync.WaitGroup
		running.Go(func() {
			defer end.Store(true)
			for n := range 20_000 {
				w.engine().Runner().Begin(codes[n%2])
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
	}, WithExecutor(Inline()))
}

func longFunctionA() {}
func longFunctionB() {}

// An executor of the user's own is named by its own type.
func TestHeldUpByAnExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithExecutor(ExecutorFunc(func(task func()) { task() })), WithShards(1))
		defer w.Stop()
		w.Schedule(time.Second, func() { time.Sleep(time.Second) })
		time.Sleep(3 * time.Second / 2)
		require.Equal(t, "timingwheel.ExecutorFunc", w.Stats().HeldUpBy)
		time.Sleep(time.Second)
	})
}
