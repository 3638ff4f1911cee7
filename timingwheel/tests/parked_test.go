package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/park"

	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/internal/parking"
)

// parkedOp is a parked operation that counts its calls.
type parkedOp struct {
	by                       parking.Executor
	silent                   bool // leaves nothing to do
	expired, stopped         int  // guarded by the wheel's lock
	left, done, afterStopped atomic.Int64
}

func (o *parkedOp) Expire(parking.Held) (leave, done func()) {
	o.expired++
	if o.silent {
		return nil, nil
	}
	return func() { o.left.Add(1) }, func() { o.done.Add(1) }
}

func (o *parkedOp) Stop(parking.Held) (rest func(), by parking.Executor) {
	o.stopped++
	if o.silent {
		return nil, nil
	}
	return func() { o.afterStopped.Add(1) }, o.by
}

func TestPark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithShards(1), timingwheel.WithMaxPending(3))
		ops := [5]parkedOp{1: {silent: true}, 3: {silent: true}}
		var places [5]timingwheel.Timeout
		hold := func(i int, d time.Duration) (err error) {
			ops[i].by = timingwheel.Goroutines()
			places[i], err = park.On(w, d, &ops[i])
			return err
		}
		require.NoError(t, hold(0, time.Second))
		require.NoError(t, hold(1, time.Second))
		require.NoError(t, hold(2, time.Hour))
		require.ErrorIs(t, hold(3, time.Hour), timingwheel.ErrTooManyPending)
		verify(t, w)
		time.Sleep(time.Second + time.Millisecond) // past the tick, not at the same instant
		synctest.Wait()
		require.Equal(t, []int{1, 1, 0}, []int{ops[0].expired, ops[1].expired, ops[2].expired})
		require.EqualValues(t, 1, ops[0].left.Load())
		require.EqualValues(t, 1, ops[0].done.Load())
		require.False(t, places[0].Cancel())
		verify(t, w)

		require.NoError(t, hold(3, time.Hour), "places are free again")
		require.NoError(t, hold(4, time.Hour))
		require.True(t, places[4].Cancel())
		require.Empty(t, w.Stop(), "nothing to hand back")
		synctest.Wait()
		require.Equal(t, []int{1, 1, 0}, []int{ops[2].stopped, ops[3].stopped, ops[4].stopped})
		require.EqualValues(t, 1, ops[2].afterStopped.Load())
		require.ErrorIs(t, hold(0, time.Hour), timingwheel.ErrStopped)
		require.Zero(t, w.Stats().Running)
		require.NoError(t, w.Shutdown(context.Background()))
		requireAccounts(t, w.Stats())
	})
}

// Work that Stop leaves to do counts as running, and Shutdown waits for it.
func TestShutdownWaitsForWhatStopLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		release := make(chan struct{})
		_, err := park.On(w, time.Hour, blockedOp(release))
		require.NoError(t, err)
		w.Stop()
		ended := make(chan error)
		go func() { ended <- w.Shutdown(context.Background()) }()
		synctest.Wait()
		require.EqualValues(t, 1, w.Stats().Running)
		close(release)
		require.NoError(t, <-ended)
	})
}

type blockedOp chan struct{}

func (o blockedOp) Expire(parking.Held) (leave, done func()) { return nil, nil }

func (o blockedOp) Stop(parking.Held) (rest func(), by parking.Executor) {
	return func() { <-o }, timingwheel.Goroutines()
}
