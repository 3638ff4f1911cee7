package timingwheel

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaultIsOneWheel(t *testing.T) {
	require.Same(t, Default(), Default())
	require.PanicsWithValue(t, "timingwheel: SetDefault: the default wheel is in use, or was set before: call SetDefault once, at the start",
		func() { SetDefault(New()) })

	for range 5000 {
		var s shared
		var ready atomic.Int32
		var asked sync.WaitGroup
		found := make([]*TimingWheel, 2)
		for i := range found {
			asked.Go(func() {
				for ready.Add(1); ready.Load() < int32(len(found)); {
					runtime.Gosched() // so that they ask at the same time
				}
				found[i] = s.get()
			})
		}
		asked.Wait()
		for _, w := range found {
			require.Same(t, s.get(), w)
		}
	}
}

func TestSetDefault(t *testing.T) {
	var s shared
	require.PanicsWithValue(t, "timingwheel: SetDefault(nil)", func() { s.set(nil) })
	synctest.Test(t, func(t *testing.T) {
		require.PanicsWithValue(t, "timingwheel: SetDefault: the wheel was made in a testing/synctest bubble: make it outside",
			func() { s.set(New()) })
	})
	stopped, closing := New(), New()
	stopped.Stop()
	defer closing.Stop()
	closing.AfterFunc(time.Hour, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, closing.Shutdown(ctx), context.Canceled)
	for _, w := range []*TimingWheel{stopped, closing, New(WithMaxPending(10))} {
		require.PanicsWithValue(t, "timingwheel: SetDefault: the wheel refuses functions: it was stopped, or has WithMaxPending",
			func() { s.set(w) })
	}
	w := New(WithTick(time.Second))
	s.set(w)
	require.Same(t, w, s.get())
	require.Panics(t, func() { s.set(New()) })
	require.Same(t, w, s.get())
}

// A bubble that is the first to ask for the default wheel does not own it.
func TestDefaultIsOfNoBubble(t *testing.T) {
	var s shared
	synctest.Test(t, func(*testing.T) { s.get() })
	w := s.get()
	defer w.Stop()
	require.False(t, w.engine().Clock().IsBubbled())
	// A process that repeats the tests may have run for hours.
	require.Less(t, w.engine().Clock().Now(), time.Since(loaded)+time.Hour, "it counts the monotonic time since the package was loaded")
	first, second := make(chan time.Time, 1), make(chan time.Time, 1) // one for each: the functions may overtake each other
	start := time.Now()
	w.AfterFunc(2*time.Millisecond, func() { first <- time.Now() })
	_, err := w.Schedule(5*time.Millisecond, func() { second <- time.Now() })
	require.NoError(t, err)
	require.GreaterOrEqual(t, (<-first).Sub(start), 2*time.Millisecond)
	require.GreaterOrEqual(t, (<-second).Sub(start), 5*time.Millisecond)
}
