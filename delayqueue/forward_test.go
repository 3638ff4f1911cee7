package delayqueue

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A consumer that waits gets what comes due by a jump of the clock, at once, and the rest so
// much earlier. Times are measured from the same start before and after.
func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		start := time.Now()
		take := func(want int, at time.Duration) {
			t.Helper()
			v, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, v)
			require.Equal(t, at, time.Since(start))
		}
		q.Offer(3, start.Add(3*time.Hour))
		q.Offer(1, start.Add(time.Hour))
		go func() {
			time.Sleep(10 * time.Minute)
			q.Forward(0)
			q.Forward(-time.Hour)
			q.Forward(2 * time.Hour)
		}()
		take(1, 10*time.Minute)
		q.Offer(4, start.Add(4*time.Hour))
		_, at, _ := q.Peek()
		require.Equal(t, 3*time.Hour, at.Sub(start))
		take(3, time.Hour)
		q.Offer(2, start.Add(2*time.Hour))
		take(2, time.Hour)
		take(4, 2*time.Hour)

		q.Offer(5, start.Add(5*time.Hour))
		_, ok := q.Poll()
		require.False(t, ok)
		q.Forward(time.Hour) // with nobody who waits
		v, ok := q.Poll()
		require.True(t, ok)
		require.Equal(t, 5, v)
	})
}

// An alarm that was set to a time rings for an element that comes before it after a jump.
func TestForwardMovesTheAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		start := time.Now()
		q.Offer(1, start.Add(10*time.Hour))
		taken := make(chan time.Duration, 1)
		q.TakeFunc(func(int) { taken <- time.Since(start) })
		for range 3 {
			time.Sleep(time.Hour)
			q.Forward(2 * time.Hour)
		}
		require.Equal(t, 4*time.Hour, <-taken)
	})
}

func TestForwardFar(t *testing.T) {
	q := New[int]()
	for range 3 {
		q.Forward(math.MaxInt64)
	}
	q.Offer(1, q.start.Add(72*365*24*time.Hour))
	_, ok := q.Poll()
	require.True(t, ok)
	for _, far := range []time.Duration{74 * 365 * 24 * time.Hour, math.MaxInt64} {
		q.Offer(1, q.start.Add(far))
		_, ok = q.Poll()
		require.False(t, ok)
	}
}
