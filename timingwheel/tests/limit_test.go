package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// requireFull tries to add in every way that the limit refuses.
func requireFull(t *testing.T, w *timingwheel.TimingWheel, want error) {
	t.Helper()
	f := func() { t.Error("a refused task ran") }
	_, err := w.Schedule(time.Hour, f)
	require.ErrorIs(t, err, want)
	_, err = w.ScheduleAt(time.Now().Add(-time.Hour), f)
	require.ErrorIs(t, err, want)
	future, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { f(); return 0, nil })
	require.ErrorIs(t, err, want)
	require.Nil(t, future)
	keyed := timingwheel.NewKeyed[int](w)
	replaced, err := keyed.Schedule(1, time.Hour, f)
	require.ErrorIs(t, err, want)
	require.False(t, replaced)
	require.Zero(t, keyed.Len())
	requireDead(t, w.AfterFunc(time.Hour, f))
}

func requireDead(t *testing.T, timer *timingwheel.Timer) {
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
		w := timingwheel.New(timingwheel.WithMaxPending(3), timingwheel.WithShards(4))
		ran := 0
		note := func() { ran++ }
		timer := w.AfterFunc(time.Second, note)
		timeout, err := w.Schedule(time.Minute, note)
		require.NoError(t, err)
		keyed := timingwheel.NewKeyed[string](w)
		_, err = keyed.Schedule("k", time.Hour, note)
		require.NoError(t, err)
		requireFull(t, w, timingwheel.ErrTooManyPending)
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

		// Pending tasks can move, and a key's function can be replaced.
		require.True(t, timer.Reset(2*time.Second))
		require.True(t, keyed.Reset("k", time.Minute))
		replaced, err := keyed.Schedule("k", time.Minute, note)
		require.NoError(t, err)
		require.True(t, replaced)
		requireFull(t, w, timingwheel.ErrTooManyPending)

		// A task that has fired or was canceled makes room at once. A re-arm is not refused, but
		// counts.
		require.True(t, timeout.Cancel())
		require.False(t, timeout.Cancel())
		other, err := w.Schedule(time.Minute, note)
		require.NoError(t, err)
		requireFull(t, w, timingwheel.ErrTooManyPending)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, ran)
		requireDead(t, dead) // though there is a place
		more := w.AfterFunc(time.Minute, note)
		require.False(t, timer.Reset(time.Minute))
		requireFull(t, w, timingwheel.ErrTooManyPending)
		require.True(t, more.Stop())
		requireFull(t, w, timingwheel.ErrTooManyPending)
		require.False(t, more.Reset(time.Minute), "stopped before, armed now")
		require.True(t, other.Cancel())
		requireFull(t, w, timingwheel.ErrTooManyPending)
		require.True(t, more.Stop())
		_, err = w.Schedule(time.Minute, note)
		require.NoError(t, err)
		requireFull(t, w, timingwheel.ErrTooManyPending)
		verify(t, w)

		require.True(t, job.Stop())
		require.Len(t, w.Stop(), 3)
		requireFull(t, w, timingwheel.ErrStopped)
		verify(t, w)
	})
}

// A key whose function waits in the executor's queue needs new room. Without room, it stays as it
// is.
func TestMaxPendingOfAKeyThatIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var queue []func()
		w := manual(timingwheel.WithMaxPending(1), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { queue = append(queue, task) })))
		keyed := timingwheel.NewKeyed[int](w)
		ran := 0
		_, err := keyed.Schedule(1, 0, func() { ran++ })
		require.NoError(t, err)
		require.Equal(t, 1, w.Drive(0))
		other, err := w.Schedule(time.Hour, noop)
		require.NoError(t, err)
		_, err = keyed.Schedule(1, 0, func() { t.Error("ran") })
		require.ErrorIs(t, err, timingwheel.ErrTooManyPending)
		require.True(t, keyed.Reset(1, time.Second), "a re-arm")
		verify(t, w)
		require.True(t, other.Cancel())
		_, err = w.Schedule(time.Hour, mustNotRun)
		require.ErrorIs(t, err, timingwheel.ErrTooManyPending, "the key has a place")
		queue[0]()
		require.Zero(t, ran, "put off")
		time.Sleep(time.Second)
		require.Equal(t, 1, w.Drive(0))
		queue[1]()
		require.Equal(t, 1, ran)
		verify(t, w)
		require.Empty(t, w.Stop())
	})
}

func TestMaxPendingThatMakesNoSense(t *testing.T) {
	require.PanicsWithValue(t, "timingwheel: WithMaxPending(-1): negative", func() { timingwheel.New(timingwheel.WithMaxPending(-1)) })
	w := timingwheel.New(timingwheel.WithMaxPending(0))
	defer w.Stop()
	for range 10_000 {
		_, err := w.Schedule(time.Hour, noop)
		require.NoError(t, err)
	}
}
