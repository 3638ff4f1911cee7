package timingwheel_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// An entry that was pushed back and is pulled forward again moves, though it would not
// have to: where it waits is nowhere written down.
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

// A timer that is pushed back again and again moves once for each bucket that it waits
// in. Levels count no move that is not to a finer one.
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

// A Timer that Stop has returned for is not pending: Reset returns false, whatever Stop
// returned, and however near the deadline it came (golang/go#80760: package time's Reset
// may return true then, with no value received). Either a Stop returned true, or the
// value was received, or the function ran.
func TestResetAfterStop(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(20 * time.Microsecond))
	defer w.Stop()
	for i := range unlessShort(2000, 400) {
		var fired, stopped atomic.Int32
		var timer *timingwheel.Timer
		quit := make(chan bool)
		var receiver, stops sync.WaitGroup
		d := time.Duration(rand.Int64N(int64(100 * time.Microsecond)))
		if i%3 == 0 {
			timer = w.AfterFunc(d, func() { fired.Add(1) })
		} else {
			timer = w.NewTimer(d)
		}
		received := i%3 == 1 // otherwise nobody receives, and a Stop takes the value back
		if received {
			receiver.Go(func() {
				select {
				case <-timer.C:
					fired.Add(1)
				case <-quit:
				}
			})
		}
		for range i % 2 {
			timer.Reset(d)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Microsecond))))
		for range 1 + i%4/2 {
			stops.Go(func() {
				if timer.Stop() {
					stopped.Add(1)
				}
			})
		}
		stops.Wait()
		require.False(t, timer.Stop())
		require.False(t, timer.Reset(time.Hour))
		require.True(t, timer.Stop(), "the Reset has armed it")
		require.False(t, timer.Reset(time.Hour))
		require.True(t, timer.Reset(time.Hour))
		require.True(t, timer.Stop())
		close(quit)
		receiver.Wait()
		// A Reset of what had fired fires again.
		waitFor(t, func() bool { return stopped.Load()+fired.Load() >= 1 })
		require.LessOrEqual(t, stopped.Load(), int32(1))
		require.LessOrEqual(t, fired.Load(), int32(1+i%2))
	}
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
