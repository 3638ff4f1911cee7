package timingwheel_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestSleepContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			require.NoError(t, w.SleepContext(t.Context(), d))
			require.Zero(t, time.Since(start))
		}
		require.NoError(t, w.SleepContext(t.Context(), 3*msec/2))
		require.Equal(t, 2*msec, time.Since(start), "rounded up to a tick")

		ctx, cancel := context.WithTimeoutCause(t.Context(), 10*msec, errCause)
		defer cancel()
		require.NoError(t, w.SleepContext(ctx, 10*msec-1-2*msec))
		require.Equal(t, errCause, w.SleepContext(ctx, math.MaxInt64))
		require.Equal(t, 12*msec, time.Since(start))
		require.Zero(t, w.Len(), "nothing is left on the wheel")
		for _, d := range []time.Duration{time.Hour, 0, -1} {
			require.Equal(t, errCause, w.SleepContext(ctx, d), "it has ended before")
		}
		require.Equal(t, 12*msec, time.Since(start))

		w.Stop()
		require.NoError(t, w.SleepContext(t.Context(), 3*msec), "package time does it")
		require.Equal(t, 15*msec, time.Since(start))
		require.Equal(t, errCause, w.SleepContext(ctx, time.Hour))
		synctest.Wait()
	})
}

// Nothing is left whichever of the racing calls wins, also on a wheel that is stopped meanwhile.
func TestSleepContextRaces(t *testing.T) {
	for i := range 20 {
		w := timingwheel.New(timingwheel.WithTick(10 * time.Microsecond))
		ctx, cancel := context.WithCancel(t.Context())
		var sleepers sync.WaitGroup
		for n := range 50 {
			sleepers.Go(func() {
				if err := w.SleepContext(ctx, time.Duration(n)*20*time.Microsecond); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		time.Sleep(500 * time.Microsecond)
		cancel()
		if i%2 == 0 {
			w.Stop()
		}
		sleepers.Wait()
		require.Zero(t, w.Len())
		w.Stop()
	}
}
