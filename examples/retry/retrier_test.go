package main

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

const (
	tick = time.Millisecond
	msec = time.Millisecond
)

var errFailed = errors.New("failed")

func seeded(base, cap time.Duration) backoff {
	return backoff{base, cap, rand.New(rand.NewPCG(1, 2)).Float64}
}

func TestBackoffBounds(t *testing.T) {
	const base, cap = 50 * msec, 700 * msec
	b := seeded(base, cap)
	for _, c := range []struct {
		failures int
		most     time.Duration
	}{
		{1, base}, {2, 2 * base}, {3, 4 * base}, {4, 8 * base}, {5, cap}, {6, cap}, {63, cap}, {64, cap}, {65, cap}, {1e6, cap},
	} {
		least, most := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			wait := b.after(c.failures)
			least, most = min(least, wait), max(most, wait)
		}
		require.GreaterOrEqual(t, least, c.most/2)
		require.LessOrEqual(t, most, c.most)
		require.Less(t, least, c.most*55/100, "the jitter fills the upper half")
		require.Greater(t, most, c.most*95/100)
	}

	for random, want := range map[float64]time.Duration{0: 25 * msec, 0.5: 37500 * time.Microsecond} {
		b := backoff{base, cap, func() float64 { return random }}
		require.Equal(t, want, b.after(1))
	}
	long := backoff{time.Hour, math.MaxInt64, func() float64 { return 0.999 }}
	for failures := range 100 {
		require.Positive(t, long.after(failures+1), "no overflow")
	}
}

func TestBackoffIsDeterministic(t *testing.T) {
	one, two := seeded(msec, time.Second), seeded(msec, time.Second)
	for failures := range 50 {
		require.Equal(t, one.after(failures+1), two.after(failures+1))
	}
}

// bubble runs f in a bubble with a wheel, which must be empty when f returns. A goroutine
// that is left would fail the bubble.
func bubble(t *testing.T, f func(t *testing.T, w *timingwheel.TimingWheel)) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		f(t, w)
		require.Zero(t, w.Len())
		require.Empty(t, w.Stop())
	})
}

func somePolicy() policy {
	return policy{inFlight: 100, attempts: 6, timeout: time.Second, backoff: seeded(50*msec, 400*msec)}
}

// attempt returns an attempt that fails this many times, and notes when it is made.
func attempt(failures int, made *[]time.Time) func(ctx context.Context) error {
	return func(context.Context) error {
		*made = append(*made, time.Now())
		if len(*made) <= failures {
			return errFailed
		}
		return nil
	}
}

func TestSucceedsAfterFailures(t *testing.T) {
	for failures := range 6 {
		bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
			var made []time.Time
			start := time.Now()
			r := newRetrier(t.Context(), w, somePolicy())
			r.call(attempt(failures, &made))
			result := r.wait()
			require.Equal(t, 1, result.succeeded)
			require.Equal(t, 1, result.calls[failures+1])
			require.Len(t, made, failures+1)

			require.Equal(t, start, made[0], "the first attempt is made at once")
			waits := somePolicy().backoff
			for n := 1; n < len(made); n++ {
				planned := made[n-1].Add(waits.after(n))
				late := made[n].Sub(planned)
				require.GreaterOrEqual(t, late, time.Duration(0))
				require.Less(t, late, tick)
				require.Equal(t, late, result.late[n-1])
			}
		})
	}
}

func TestGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		var made []time.Time
		r := newRetrier(t.Context(), w, somePolicy())
		r.call(attempt(math.MaxInt, &made))
		result := r.wait()
		require.Len(t, made, 6)
		require.Equal(t, 1, result.gaveUp)
		require.Equal(t, []int{0, 0, 0, 0, 0, 0, 1}, result.calls)
		time.Sleep(time.Hour)
		require.Len(t, made, 6)
	})
}

func TestAttemptHasADeadline(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		p := somePolicy()
		p.attempts = 3
		timedOut := 0
		r := newRetrier(t.Context(), w, p)
		r.call(func(ctx context.Context) error {
			begin := time.Now()
			<-ctx.Done()
			require.Equal(t, context.DeadlineExceeded, ctx.Err())
			timedOut++
			late := time.Since(begin) - p.timeout
			require.GreaterOrEqual(t, late, time.Duration(0))
			require.Less(t, late, tick)
			return ctx.Err()
		})
		result := r.wait()
		require.Equal(t, 1, result.gaveUp)
		require.Equal(t, 3, timedOut)
	})
}

// Calls in each of their places: in an attempt, in the queue, on the wheel.
func TestCancel(t *testing.T) {
	for at := range 40 { // before, on and after the ticks at which things happen
		bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
			ctx, cancel := context.WithCancel(t.Context())
			p := somePolicy()
			p.inFlight = 10
			r := newRetrier(ctx, w, p)
			attempts := 0
			for id := range 300 {
				r.call(func(ctx context.Context) error {
					r.mu.Lock()
					attempts++
					r.mu.Unlock()
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Duration(id) * 100 * time.Microsecond):
						return errFailed
					}
				})
			}
			time.Sleep(time.Duration(at) * 2500 * time.Microsecond)
			r.mu.Lock()
			waiting, made := len(r.waiting), attempts
			r.mu.Unlock()
			canceled := time.Now()
			cancel()
			result := r.wait()
			require.Equal(t, canceled, time.Now(), "at once")
			require.Equal(t, 300, result.canceled)
			if at > 2 {
				require.Positive(t, waiting)
			}
			require.Zero(t, w.Len())
			time.Sleep(time.Hour)
			synctest.Wait()
			require.Empty(t, r.waiting)
			require.Empty(t, r.queue)
			require.Zero(t, r.workers)
			require.LessOrEqual(t, attempts, made+10, "none is made any more")

			r.call(func(context.Context) error { t.Error("called after the end"); return nil })
			require.Equal(t, 301, r.wait().canceled)
		})
	}
}

// The context ends while a call has left the wheel and waits in the executor's queue.
func TestCancelOfADueCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := make(chan func(), 1)
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) { due <- task })))
		defer w.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		r := newRetrier(ctx, w, somePolicy())
		var made []time.Time
		r.call(attempt(1, &made))
		task := <-due
		cancel()
		result := r.wait()
		task()
		synctest.Wait()
		require.Len(t, made, 1)
		require.Equal(t, 1, result.canceled)
		require.Empty(t, result.late)
	})
}

// A call whose attempt succeeds has succeeded, though it was canceled meanwhile.
func TestSuccessBeatsCancel(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRetrier(ctx, w, somePolicy())
		r.call(func(ctx context.Context) error { cancel(); <-ctx.Done(); return nil })
		require.Equal(t, 1, r.wait().succeeded)
	})
}

// The wheel is stopped under the calls.
func TestStoppedWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		w.Stop()
		r := newRetrier(t.Context(), w, somePolicy())
		var made []time.Time
		r.call(attempt(1, &made))
		require.Equal(t, 1, r.wait().canceled)
	})
}

// Thousands at once, under every executor. None is lost, none is early, and never are
// more in flight than permitted.
func TestThousands(t *testing.T) {
	const calls = 5000
	for _, executor := range []timingwheel.Executor{timingwheel.Inline(), timingwheel.Goroutines()} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithExecutor(executor))
			defer w.Stop()
			p := somePolicy()
			r := newRetrier(t.Context(), w, p)
			var inFlight, most atomic.Int64
			for id := range calls {
				failed := 0
				r.call(func(ctx context.Context) error {
					n := inFlight.Add(1)
					defer inFlight.Add(-1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Duration(id%7) * msec)
					if failed < failures(id) {
						failed++
						return errFailed
					}
					return nil
				})
			}
			result := r.wait()
			require.Equal(t, calls/100, result.gaveUp)
			require.Equal(t, calls-calls/100, result.succeeded)
			require.Equal(t, []int{0, 1250, 1250, 1250, 1200, 0, 50}, result.calls)
			require.EqualValues(t, p.inFlight, most.Load())
			require.Zero(t, w.Len())
			require.Len(t, result.late, 1250+2*1250+3*1200+5*50)
			for _, late := range result.late {
				require.GreaterOrEqual(t, late, time.Duration(0))
				require.Less(t, late, tick)
			}
		})
	}
}
