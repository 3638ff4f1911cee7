package timingwheel_test

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// An entry that was pushed back and is pulled forward again moves, though it would not have
// to: where it waits is nowhere written down.
func TestResetBackAndForth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		start := time.Now()
		var fired time.Duration
		timer := w.AfterFunc(time.Second, func() { fired = time.Since(start) })
		require.True(t, timer.Reset(time.Minute))
		require.True(t, timer.Reset(30*time.Second))
		for w.Len() > 0 {
			verify(t, w)
			w.Drive(time.Hour)
		}
		require.Equal(t, 30*time.Second, fired)
	})
}

// A timer that is pushed back again and again moves once for each bucket that it waits in.
// Levels count no move that is not to a finer one.
func TestResetMovesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithShards(1))
		defer w.Stop()
		var fired atomic.Bool
		timer := w.AfterFunc(10*time.Second, func() { fired.Store(true) })
		before := w.Stats()
		for range 10_000 {
			time.Sleep(10 * time.Millisecond)
			require.True(t, timer.Reset(10*time.Second))
		}
		require.False(t, fired.Load())
		st := w.Stats()
		require.LessOrEqual(t, st.Wakeups-before.Wakeups, int64(25), "100 s, in buckets that expire 9.5 to 10 s ahead")
		require.LessOrEqual(t, st.Cascaded, int64(25))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.True(t, fired.Load())
		require.EqualValues(t, 10_000, w.Stats().Reset-before.Reset)
	})
}

func BenchmarkReset(b *testing.B) {
	for name, n := range map[string]int{"hot": 10, "100k": 100_000, "1M": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			w := timingwheel.New()
			defer w.Stop()
			timers := make([]*timingwheel.Timer, n)
			for i := range timers {
				timers[i] = w.AfterFunc(time.Hour, func() {})
			}
			order := rand.New(rand.NewPCG(1, 1)).Perm(n)
			next := 0
			for b.Loop() {
				timers[order[next]].Reset(time.Hour)
				if next++; next == n {
					next = 0
				}
			}
		})
	}
}
