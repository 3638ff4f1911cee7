package timingwheel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
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

// The limit holds for new tasks however adds, cancels, resets and firings meet. No room stays
// taken, and none is freed twice.
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
						if rearms || w.engine().IsClosed() {
							timer.Reset(time.Duration(rand.IntN(500_000)))
						}
						if n%3 == 0 {
							timer.Stop()
							keyed.Cancel(n % 3)
						}
						// While the wheel is being stopped, the Reset above may be a re-arm, too.
						if shards == 1 && !rearms && w.Len() > limit && !w.engine().IsClosed() {
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
