package timingwheel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What is started in a bubble on a wheel that was made outside runs by the bubble's clock.
func TestOuterWheelInABubble(t *testing.T) {
	w := New()
	defer w.Stop()
	outside := w.AfterFunc(time.Hour, func() {})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		w.Sleep(time.Hour)
		require.Equal(t, time.Hour, time.Since(start))
		<-w.After(time.Minute)
		require.Equal(t, time.Hour+time.Minute, time.Since(start))

		fired := make(chan time.Duration, 10)
		note := func() { fired <- time.Since(start) }
		start = time.Now()
		timer := w.AfterFunc(time.Second, note)
		require.True(t, timer.Reset(3*time.Second))
		timeout, err := w.Schedule(2*time.Second, note)
		require.NoError(t, err)
		canceled, err := w.ScheduleAt(start.Add(time.Second), note)
		require.NoError(t, err)
		require.True(t, canceled.Cancel())
		require.True(t, timeout.Reset(4*time.Second))
		require.Equal(t, 3*time.Second, <-fired)
		require.Equal(t, 4*time.Second, <-fired)
		require.False(t, timeout.Cancel())

		ticker := w.NewTicker(time.Second)
		<-ticker.C
		<-ticker.C
		require.Equal(t, 6*time.Second, time.Since(start))
		ticker.Stop()

		ctx, cancel := w.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
		require.Equal(t, 66*time.Second, time.Since(start))

		keyed := NewKeyed[int](w)
		_, err = keyed.Schedule(1, time.Second, note)
		require.NoError(t, err)
		require.Equal(t, 67*time.Second, <-fired)
		job, err := w.ScheduleAtFixedRate(0, time.Second, note)
		require.NoError(t, err)
		<-fired
		require.Equal(t, 68*time.Second, <-fired)
		require.True(t, job.Stop())
		require.PanicsWithValue(t, "timingwheel: what was made outside of this testing/synctest bubble is set in it: make it in the bubble",
			func() { outside.Reset(time.Hour) })
	})
	require.Equal(t, 1, w.Len())
	require.True(t, outside.Stop())
}

func TestInnerWheelOutsideOfItsBubble(t *testing.T) {
	var w *TimingWheel
	var timer *Timer
	synctest.Test(t, func(*testing.T) {
		w = New()
		timer = w.AfterFunc(time.Hour, func() {})
	})
	const sentence = "timingwheel: a wheel that was made in a testing/synctest bubble is used outside of it: make another one outside"
	require.PanicsWithValue(t, sentence, func() { w.AfterFunc(time.Second, func() {}) })
	require.PanicsWithValue(t, sentence, func() { w.Sleep(time.Second) })
	require.PanicsWithValue(t, sentence, func() { w.WithTimeout(t.Context(), time.Second) })
	require.PanicsWithValue(t, sentence, func() { timer.Reset(time.Second) })
	require.PanicsWithValue(t, sentence, func() { w.Stop() })
	require.True(t, timer.Stop())
}
