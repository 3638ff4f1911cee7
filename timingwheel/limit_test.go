package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// requireFull tries to add in every way that the limit refuses.
func requireFull(t *testing.T, w *TimingWheel, want error) {
	t.Helper()
	f := func() { t.Error("a refused task ran") }
	_, err := w.Schedule(time.Hour, f)
	require.ErrorIs(t, err, want)
	_, err = w.ScheduleAt(time.Now().Add(-time.Hour), f)
	require.ErrorIs(t, err, want)
	future, err := Submit(w, time.Hour, func(context.Context) (int, error) { f(); return 0, nil })
	require.ErrorIs(t, err, want)
	require.Nil(t, future)
	keyed := NewKeyed[int](w)
	replaced, err := keyed.Schedule(1, time.Hour, f)
	require.ErrorIs(t, err, want)
	require.False(t, replaced)
	require.Zero(t, keyed.Len())
	requireDead(t, w.AfterFunc(time.Hour, f))
}

func requireDead(t *testing.T, timer *Timer) {
	t.Helper()
	require.False(t, timer.Stop())
	require.False(t, timer.Reset(0))
	require.False(t, timer.Reset(time.Hour))
	require.False(t, timer.Stop())
}

// At the limit every way of adding is refused and counted. Channel timers, tickers,
// contexts, jobs, resets and re-arms are not.
func TestMaxPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithMaxPending(3), WithShards(4))
		ran := 0
		note := func() { ran++ }
		timer := w.AfterFunc(time.Second, note)
		timeout, err := w.Schedule(time.Minute, note)
		require.NoError(t, err)
		keyed := NewKeyed[string](w)
		_, err = keyed.Schedule("k", time.Hour, note)
		require.NoError(t, err)
		requireFull(t, w, ErrTooManyPending)
		require.EqualValues(t, 5, w.Stats().Rejected)
		require.EqualValues(t, 3, w.Stats().Scheduled)
		dead := w.AfterFunc(0, note)

		// Neither refused nor counted.
		channel := w.NewTimer(time.Hour)
		defer w.NewTicker(time.Hour).Stop()
		ctx, cancel := w.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		job := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, note))
		require.NoError(t, ctx.Err())
		require.True(t, channel.Stop())

		// What is pending moves, and a key's function can be replaced.
		require.True(t, timer.Reset(2*time.Second))
		require.True(t, keyed.Reset("k", time.Minute))
		replaced, err := keyed.Schedule("k", time.Minute, note)
		require.NoError(t, err)
		require.True(t, replaced)
		requireFull(t, w, ErrTooManyPending)

		// What has fired or was canceled makes room at once. A re-arm is not refused, but
		// counts.
		require.True(t, timeout.Cancel())
		require.False(t, timeout.Cancel())
		other, err := w.Schedule(time.Minute, note)
		require.NoError(t, err)
		requireFull(t, w, ErrTooManyPending)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, ran)
		requireDead(t, dead) // though there is a place
		more := w.AfterFunc(time.Minute, note)
		require.False(t, timer.Reset(time.Minute))
		requireFull(t, w, ErrTooManyPending)
		require.True(t, more.Stop())
		requireFull(t, w, ErrTooManyPending)
		require.False(t, more.Reset(time.Minute), "stopped before, armed now")
		require.True(t, other.Cancel())
		requireFull(t, w, ErrTooManyPending)
		require.True(t, more.Stop())
		_, err = w.Schedule(time.Minute, note)
		require.NoError(t, err)
		requireFull(t, w, ErrTooManyPending)
		w.verify(t)

		require.True(t, job.Stop())
		require.Len(t, w.Stop(), 3)
		requireFull(t, w, ErrStopped)
		w.verify(t)
	})
}

// A key whose function waits in the executor's queue needs a new place. If there is none,
// it is left alone.
func TestMaxPendingOfAKeyThatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue []func()
		w := manual(WithMaxPending(1), WithExecutor(ExecutorFunc(func(task func()) { queue = append(queue, task) })))
		keyed := NewKeyed[int](w)
		ran := 0
		_, err := keyed.Schedule(1, 0, func() { ran++ })
		require.NoError(t, err)
		require.Equal(t, 1, w.Drive(0))
		other, err := w.Schedule(time.Hour, noop)
		require.NoError(t, err)
		_, err = keyed.Schedule(1, 0, func() { t.Error("ran") })
		require.ErrorIs(t, err, ErrTooManyPending)
		require.True(t, keyed.Reset(1, time.Second), "a re-arm")
		w.verify(t)
		require.True(t, other.Cancel())
		_, err = w.Schedule(time.Hour, mustNotRun)
		require.ErrorIs(t, err, ErrTooManyPending, "the key has a place")
		queue[0]()
		require.Zero(t, ran, "put off")
		time.Sleep(time.Second)
		require.Equal(t, 1, w.Drive(0))
		queue[1]()
		require.Equal(t, 1, ran)
		w.verify(t)
		require.Empty(t, w.Stop())
	})
}

// However adds, cancels, resets and firings meet, the limit holds for what is new. No
// place stays taken, and none is freed twice.
func TestMaxPendingIsExact(t *testing.T) {
	rounds := unlessShort(12, 4)
	const limit = 100
	for round := range rounds {
		shards, rearms, stop := []int{1, 8}[round%2], round/2%2 == 1, round%3 == 2
		t.Run(fmt.Sprintf("shards=%d,re-arms=%t,stop=%t", shards, rearms, stop), func(t *testing.T) {
			w := New(WithMaxPending(limit), WithShards(shards), WithTick(50*time.Microsecond), WithWheelSize(4))
			var fired, rejected atomic.Int64
			var callers sync.WaitGroup
			end := time.Now().Add(100 * time.Millisecond)
			over := func() bool { // a slow machine takes longer to reach the limit
				left := time.Until(end)
				return left < 0 && (stop || fired.Load() > 0 && rejected.Load() > 0) || left < -30*time.Second
			}
			for range 8 {
				callers.Go(func() {
					keyed := NewKeyed[int](w)
					for n := 0; !over(); n++ {
						timer := w.AfterFunc(time.Duration(rand.IntN(500_000)), func() { fired.Add(1) })
						if n%2 == 0 {
							w.Schedule(time.Duration(rand.IntN(500_000)-100_000), noop)
							keyed.Schedule(n%3, time.Duration(rand.IntN(500_000)), noop)
							Submit(w, time.Duration(rand.IntN(500_000)), func(context.Context) (int, error) { return 0, nil })
						}
						if rearms || w.engine().IsStopped() {
							timer.Reset(time.Duration(rand.IntN(500_000)))
						}
						if n%3 == 0 {
							timer.Stop()
							keyed.Cancel(n % 3)
						}
						// While the wheel is being stopped, the Reset above may be a re-arm, too.
						if shards == 1 && !rearms && w.Len() > limit && !w.engine().IsStopped() {
							t.Error("more are pending than may be")
							return
						}
						if timer.lazy.F == nil {
							rejected.Add(1)
							time.Sleep(10 * time.Microsecond)
						}
					}
				})
			}
			if stop {
				time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Millisecond))))
				w.Stop()
			}
			callers.Wait()
			if stop {
				w.verify(t)
				requireFull(t, w, ErrStopped)
				return
			}
			require.Positive(t, fired.Load())
			require.Positive(t, rejected.Load(), "the limit was never reached")
			require.GreaterOrEqual(t, w.Stats().Rejected, rejected.Load())
			waitUntil(t, func() bool { return w.Len() == 0 })
			for range limit {
				_, err := w.Schedule(time.Hour, noop)
				require.NoError(t, err, "a place was not given back")
			}
			requireFull(t, w, ErrTooManyPending)
			require.Len(t, w.Stop(), limit)
		})
	}
}

func TestMaxPendingThatMakesNoSense(t *testing.T) {
	require.PanicsWithValue(t, "timingwheel: WithMaxPending(-1): negative", func() { WithMaxPending(-1)(&config{}) })
	w := New(WithMaxPending(0))
	defer w.Stop()
	for range 10_000 {
		_, err := w.Schedule(time.Hour, noop)
		require.NoError(t, err)
	}
}
