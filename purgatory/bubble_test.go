package purgatory

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// An operation parked in a bubble on a wheel that was made outside waits by the bubble's clock. An
// operation parked outside can be ended there.
func TestOuterWheelInABubble(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	p, numbers := New[int](w), NewThreshold[int](w)
	var ended ends
	outside, err := p.Park(time.Hour, never, ended.done, 1)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.Equal(t, ErrExpired, p.Wait(t.Context(), time.Hour, never, 1))
		require.Equal(t, time.Hour, time.Since(start))
		require.Equal(t, ErrExpired, numbers.Await(t.Context(), 1, time.Hour))
		require.Equal(t, 2*time.Hour, time.Since(start))

		var inside ends
		_, err := p.Park(time.Hour, nil, inside.done, 2)
		require.NoError(t, err)
		_, err = p.Park(time.Minute, nil, inside.done, 3)
		require.NoError(t, err)
		require.Equal(t, 1, p.NotifyN(2, 1))
		time.Sleep(time.Hour)
		require.Equal(t, []Outcome{Satisfied, Expired}, inside.all())
		require.True(t, outside.Cancel())
	})
	require.Equal(t, []Outcome{Canceled}, ended.all())
	require.Zero(t, w.Len())
	require.Zero(t, p.verify(t).Pending)
}

// An operation parked in a bubble can be ended outside, but no other can be parked.
func TestInnerWheelOutsideOfItsBubble(t *testing.T) {
	var p *Purgatory[int]
	var op *Op[int]
	var ended ends
	synctest.Test(t, func(t *testing.T) {
		p = New[int](timingwheel.New())
		var err error
		op, err = p.Park(time.Hour, never, ended.done, 1)
		require.NoError(t, err)
		for range 2 {
			_, err = p.Park(time.Hour, nil, ended.done, 2)
			require.NoError(t, err)
		}
	})
	const sentence = "timingwheel: the wheel was made in a testing/synctest bubble and is used outside of it: make another one outside"
	require.PanicsWithValue(t, sentence, func() { p.Park(time.Second, nil, ended.done, 1) })
	require.PanicsWithValue(t, sentence, func() { p.Wait(context.Background(), time.Second, nil, 1) })
	require.True(t, op.Cancel())
	require.Equal(t, 1, p.NotifyN(2, 1))
	p.Close()
	require.Equal(t, []Outcome{Canceled, Satisfied, Closed}, ended.all())
}
