package timingwheel_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// blocking are the executors that may run a user's function on the driver.
func blocking() map[string]timingwheel.Executor {
	return map[string]timingwheel.Executor{
		"inline":      timingwheel.Inline(),
		"caller runs": closedPool(fullCallerRuns),
		"discard":     closedPool(fullDiscard(func(task func()) { task() })),
		"func":        timingwheel.ExecutorFunc(func(task func()) { task() }),
	}
}

// requireOnTime waits for a channel, Sleep, a context and a ticker, for 10 seconds in all.
func requireOnTime(t *testing.T, w *timingwheel.TimingWheel) {
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
				w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
				defer w.Stop()
				start := time.Now()
				var mu sync.Mutex // orders a read here with a later task
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
				var canceled timingwheel.Timeout
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
				st := w.Stats()
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
				st = w.Stats()
				require.Zero(t, st.HeldUp)
				require.Zero(t, st.Waiting)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				require.Equal(t, 1000, seen()[600])
			})
		})
	}
}

// A task that runs inline may sleep on its own wheel, and wait for a context of it.
func TestInlineTaskWaitsForItsWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))
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
				w := timingwheel.New(timingwheel.WithExecutor(executor))
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
				require.Zero(t, w.Stats().HeldUp)
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
			w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithShards(4), timingwheel.WithTick(20*time.Microsecond))
			var running, done, canceled atomic.Int64
			var adders sync.WaitGroup
			for adder := range 2 {
				adders.Go(func() {
					for n := range rounds {
						var timeout atomic.Pointer[timingwheel.Timeout]
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
			waitFor(t, func() bool { return w.Stats().HeldUp == 0 })
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

// An executor of the user's own is named by its own type.
func TestHeldUpByAnExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { task() })), timingwheel.WithShards(1))
		defer w.Stop()
		w.Schedule(time.Second, func() { time.Sleep(time.Second) })
		time.Sleep(3 * time.Second / 2)
		require.Equal(t, "timingwheel.ExecutorFunc", w.Stats().HeldUpBy)
		time.Sleep(time.Second)
	})
}
