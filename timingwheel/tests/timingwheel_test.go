package timingwheel_test

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

func never() { panic("a task ran that must not") }

func TestScheduleFiresOnTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ d, want time.Duration }{
			{1, 10 * time.Millisecond},
			{10 * time.Millisecond, 10 * time.Millisecond},
			{10*time.Millisecond + 1, 20 * time.Millisecond},
			{time.Minute, time.Minute},
			{1000 * time.Hour, 1000 * time.Hour},
		} {
			w := timingwheel.New(timingwheel.WithTick(10 * time.Millisecond))
			start := time.Now()
			fired := make(chan time.Duration)
			_, err := w.Schedule(c.d, func() { fired <- time.Since(start) })
			require.NoError(t, err)
			require.Equal(t, c.want, <-fired)
			w.Stop()
		}
	})
}

func TestScheduleAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		start := time.Now()
		fired := make(chan time.Duration, 4)
		f := func() { fired <- time.Since(start) }
		for _, at := range []time.Time{
			start.Add(5 * time.Millisecond),
			start.Add(7 * time.Millisecond).Round(0), // no monotonic reading
			start.Add(-time.Hour),
			{},
		} {
			_, err := w.ScheduleAt(at, f)
			require.NoError(t, err)
		}
		farAway, err := w.ScheduleAt(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), never)
		require.NoError(t, err)
		for _, want := range []time.Duration{0, 0, 5 * time.Millisecond, 7 * time.Millisecond} {
			require.Equal(t, want, <-fired)
		}
		require.True(t, farAway.Cancel())
	})
}

// A delay that is not positive is due now, but the task never runs on the caller's
// goroutine. Until the driver takes it, it can be canceled.
func TestDelayThatIsNotPositive(t *testing.T) {
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
			ran := false
			_, err := w.Schedule(d, func() { ran = true })
			require.NoError(t, err)
			canceled, err := w.Schedule(d, never)
			require.NoError(t, err)
			require.False(t, ran)
			require.Equal(t, 2, w.Len())
			require.True(t, canceled.Cancel())
			require.Equal(t, 1, w.Drive(0))
			require.True(t, ran)
			require.Zero(t, w.Len())

			w = timingwheel.New()
			start := time.Now()
			done := make(chan time.Duration)
			w.AfterFunc(d, func() { done <- time.Since(start) })
			require.Zero(t, <-done, "without rounding")
			require.Empty(t, w.Stop())
		})
	}
}

func TestHugeDelaysSaturate(t *testing.T) {
	for _, tick := range []time.Duration{time.Microsecond, time.Millisecond, 3 * time.Nanosecond * 1000, time.Hour, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithWheelSize(2))
			start := time.Now()
			time.Sleep(time.Second) // now+d overflows
			for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 - time.Second} {
				_, err := w.Schedule(d, never)
				require.NoError(t, err)
			}
			_, err := w.ScheduleAt(time.Unix(1<<40, 0), never)
			require.NoError(t, err)
			time.Sleep(100 * 365 * 24 * time.Hour)
			pending := w.Stop()
			require.Len(t, pending, 4)
			for _, p := range pending {
				require.InDelta(t, int64(math.MaxInt64), p.Deadline.Sub(start), float64(time.Second))
			}
		})
	}
}

func TestTimerStopAndReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		start := time.Now()
		sleep := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		var fired []time.Duration
		timer := w.AfterFunc(time.Second, func() { fired = append(fired, time.Since(start)) })

		require.True(t, timer.Reset(2*time.Second), "pending")
		sleep(1500 * time.Millisecond)
		require.Empty(t, fired)
		require.True(t, timer.Stop())
		require.False(t, timer.Stop())
		sleep(time.Minute)
		require.Empty(t, fired)

		require.False(t, timer.Reset(time.Second), "stopped")
		sleep(2 * time.Second)
		require.Len(t, fired, 1)
		require.False(t, timer.Stop(), "fired")
		require.False(t, timer.Reset(time.Second), "fired")
		sleep(2 * time.Second)
		require.Len(t, fired, 2)
		require.Equal(t, time.Minute+2500*time.Millisecond, fired[0])
		require.Equal(t, fired[0]+2*time.Second, fired[1])
	})
}

func TestUninitializedTimerPanics(t *testing.T) {
	require.PanicsWithValue(t, "timingwheel: Stop called on uninitialized Timer", func() { new(timingwheel.Timer).Stop() })
	require.PanicsWithValue(t, "timingwheel: Reset called on uninitialized Timer", func() { new(timingwheel.Timer).Reset(1) })
	require.False(t, timingwheel.Timeout{}.Cancel())
}

func TestBadArgumentsPanic(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for want, f := range map[string]func(){
		"timingwheel: Schedule: nil function":                            func() { w.Schedule(1, nil) },
		"timingwheel: ScheduleAt: nil function":                          func() { w.ScheduleAt(time.Now(), nil) },
		"timingwheel: AfterFunc: nil function":                           func() { w.AfterFunc(1, nil) },
		"timingwheel: WithExecutor(nil)":                                 func() { timingwheel.New(timingwheel.WithExecutor(nil)) },
		"timingwheel: New: nil Option":                                   func() { timingwheel.New(nil) },
		"timingwheel: ScheduleAtFixedRate: nil JobOption":                func() { w.ScheduleAtFixedRate(1, 1, func() {}, nil) },
		"timingwheel: NewKeyed(nil)":                                     func() { timingwheel.NewKeyed[int](nil) },
		"timingwheel: WithTick(0s): less than 1µs":                       func() { timingwheel.New(timingwheel.WithTick(0)) },
		"timingwheel: WithTick(999ns): less than 1µs":                    func() { timingwheel.New(timingwheel.WithTick(999)) },
		"timingwheel: WithTick(-1s): less than 1µs":                      func() { timingwheel.New(timingwheel.WithTick(-time.Second)) },
		"timingwheel: WithWheelSize(1): not from 2 to 65536":             func() { timingwheel.New(timingwheel.WithWheelSize(1)) },
		"timingwheel: WithWheelSize(-8): not from 2 to 65536":            func() { timingwheel.New(timingwheel.WithWheelSize(-8)) },
		"timingwheel: WithWheelSize(65537): not from 2 to 65536":         func() { timingwheel.New(timingwheel.WithWheelSize(65537)) },
		"timingwheel: WithShards(-1): not from 0 to 65536":               func() { timingwheel.New(timingwheel.WithShards(-1)) },
		"timingwheel: WithShards(65537): not from 0 to 65536":            func() { timingwheel.New(timingwheel.WithShards(65537)) },
		"timingwheel: Drive: the wheel was made without WithManualDrive": func() { w.Drive(0) },
	} {
		require.PanicsWithValue(t, want, f)
	}
	require.Zero(t, w.Len())
	require.PanicsWithValue(t, "timingwheel: WithExecutor(nil)", func() {
		timingwheel.New(timingwheel.WithExecutor(timingwheel.ExecutorFunc(nil)))
	})
	require.PanicsWithValue(t, "timingwheel: WithExecutor(nil)", func() {
		timingwheel.New(timingwheel.WithExecutor(timingwheel.SubmitFunc(nil)))
	})
	require.PanicsWithValue(t, "timingwheel: WithExecutor(nil)", func() {
		timingwheel.New(timingwheel.WithExecutor((*pool.Pool)(nil)))
	})
}

func TestOptionsAtTheirBounds(t *testing.T) {
	for _, opts := range [][]timingwheel.Option{
		{timingwheel.WithTick(time.Microsecond)},
		{timingwheel.WithTick(math.MaxInt64)},
		{timingwheel.WithWheelSize(2)},
		{timingwheel.WithWheelSize(65535)},
		{timingwheel.WithWheelSize(65536)},
		{timingwheel.WithShards(0)},
		{timingwheel.WithShards(3)},
	} {
		w := timingwheel.New(opts...)
		ran := make(chan struct{})
		w.AfterFunc(0, func() { close(ran) })
		<-ran
		for _, d := range []time.Duration{1, time.Second, math.MaxInt64} {
			timeout, err := w.Schedule(d, func() {})
			require.NoError(t, err)
			timeout.Cancel()
		}
		w.Stop()
	}
}

func TestStoppedWheelRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		timer := w.AfterFunc(time.Second, never)
		timeout, err := w.Schedule(time.Second, never)
		require.NoError(t, err)
		zero, err := w.Schedule(time.Hour, never)
		require.NoError(t, err)
		require.True(t, zero.Cancel())
		start := time.Now()

		pending := w.Stop()
		require.Len(t, pending, 2)
		for _, p := range pending {
			require.Equal(t, start.Add(time.Second), p.Deadline)
			require.NotNil(t, p.Func)
		}
		require.Zero(t, w.Len())
		require.Nil(t, w.Stop(), "idempotent")

		require.False(t, timer.Stop())
		require.False(t, timer.Reset(1), "dead")
		require.False(t, timeout.Cancel())
		_, err = w.Schedule(1, never)
		require.ErrorIs(t, err, timingwheel.ErrStopped)
		_, err = w.ScheduleAt(time.Now(), never)
		require.ErrorIs(t, err, timingwheel.ErrStopped)
		late := w.AfterFunc(0, never)
		require.False(t, late.Reset(0))
		require.False(t, late.Stop())
		time.Sleep(time.Hour)
		require.Zero(t, w.Len())
	})
}

// In a synctest bubble a goroutine that is left makes the test fail.
func TestNoGoroutineIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			w := timingwheel.New()
			w.AfterFunc(time.Hour, never)
			w.AfterFunc(0, func() {})
			w.Stop()
		}
	})
}

// Every method may be called from inside a task, under every executor.
func TestReentrant(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{
		"goroutines": timingwheel.Goroutines(),
		"inline":     timingwheel.Inline(),
		"func":       timingwheel.ExecutorFunc(func(task func()) { go task() }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
				done := make(chan []timingwheel.Pending)
				var timer *timingwheel.Timer
				assigned := make(chan struct{})
				runs := 0
				timer = w.AfterFunc(time.Millisecond, func() {
					<-assigned
					if runs++; runs < 3 {
						require.False(t, timer.Reset(time.Millisecond), "it has fired")
						return
					}
					require.False(t, timer.Stop())
					timeout, err := w.Schedule(time.Second, never)
					require.NoError(t, err)
					require.True(t, timeout.Cancel())
					other := w.AfterFunc(time.Second, never)
					require.True(t, other.Reset(time.Minute))
					require.Equal(t, 1, w.Len())
					w.AfterFunc(0, func() {
						pending := w.Stop()
						go func() { done <- pending }()
					})
				})
				close(assigned)
				require.Len(t, <-done, 1)
				require.Equal(t, 3, runs)
			})
		})
	}
}

func TestDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
		start := time.Now()
		ran := 0
		for _, d := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond} {
			w.AfterFunc(d, func() { ran++ })
		}
		time.Sleep(5 * time.Millisecond)
		require.Zero(t, ran, "nothing fires by itself")
		require.Equal(t, 2, w.Drive(0))
		require.Equal(t, 2, ran)
		require.Zero(t, w.Drive(-1))
		require.Zero(t, w.Drive(time.Millisecond), "it waits no longer than it may")
		require.Equal(t, 6*time.Millisecond, time.Since(start))
		require.Equal(t, 1, w.Drive(time.Hour))
		require.Equal(t, 10*time.Millisecond, time.Since(start), "nor longer than it must")

		// One drives, another waits for its turn; Stop ends both.
		results := make(chan int)
		for range 2 {
			go func() { results <- w.Drive(time.Hour) }()
		}
		synctest.Wait()
		w.Stop()
		require.Zero(t, <-results)
		require.Zero(t, <-results)
		require.Equal(t, 10*time.Millisecond, time.Since(start))
		require.Zero(t, w.Drive(time.Hour))
	})
}

// A call from an inline task waits until its timeout ends. The zero-delay task that it
// adds is taken in its turn.
func TestDriveFromATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		nested := -1
		w.AfterFunc(0, func() {
			w.AfterFunc(0, func() {})
			nested = w.Drive(time.Second)
		})
		w.Drive(0)
		require.Zero(t, nested)
		w.Drive(0)
		require.Zero(t, w.Len())
	})
}

// Deadlines must come from readings of package time alone, which are monotonic.
func TestDeadlinesAreMonotonic(t *testing.T) {
	w := timingwheel.New()
	at := time.Now().Add(time.Hour)
	_, err := w.ScheduleAt(at.Round(0), never) // as if from a wall clock
	require.NoError(t, err)
	pending := w.Stop()
	require.Len(t, pending, 1)
	require.Contains(t, pending[0].Deadline.String(), " m=", "the deadline has lost its monotonic reading")
	require.WithinDuration(t, at, pending[0].Deadline, time.Second)
}

// Canceled and fired tasks must keep neither their closures nor what these hold.
func TestClosuresAreReleased(t *testing.T) {
	const size = 8 << 10
	timers := unlessShort(20_000, 5000)
	held := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	closure := func(wg *sync.WaitGroup) func() {
		big := make([]byte, size)
		return func() { big[0]++; wg.Done() }
	}
	w := timingwheel.New()
	defer w.Stop()
	keep := make([]timingwheel.Timeout, timers)
	before := held()

	var wg sync.WaitGroup
	for i := range keep {
		keep[i], _ = w.Schedule(time.Hour, closure(&wg))
	}
	require.Greater(t, held()-before, int64(timers*size*9/10), "the measurement works")
	for _, timeout := range keep {
		require.True(t, timeout.Cancel())
	}
	waitFor(t, func() bool { return held()-before < 1<<20 }) // what was canceled

	wg.Add(timers)
	for i := range keep {
		keep[i], _ = w.Schedule(time.Millisecond, closure(&wg))
	}
	wg.Wait()
	// The last task's goroutine may still hold its function.
	waitFor(t, func() bool { return held()-before < 1<<20 })
	runtime.KeepAlive(keep)
}

// A slow function delays nobody: tasks that all sleep begin together.
func TestSlowFunctionsDelayNobody(t *testing.T) {
	const tasks, sleep = 10_000, 50 * time.Millisecond
	// lastStart returns how long after begin the last of the tasks started.
	lastStart := func(begin time.Time, start func(f func())) time.Duration {
		var last atomic.Int64
		var wg sync.WaitGroup
		wg.Add(tasks)
		for range tasks {
			start(func() {
				defer wg.Done()
				since := int64(time.Since(begin))
				for was := last.Load(); was < since && !last.CompareAndSwap(was, since); was = last.Load() {
				}
				time.Sleep(sleep)
			})
		}
		wg.Wait()
		return time.Duration(last.Load())
	}
	// On a loaded machine one attempt says little.
	for attempt := 1; ; attempt++ {
		baseline := lastStart(time.Now(), func(f func()) { go f() })
		due := time.Now().Add(200 * time.Millisecond) // the first tick, on which all are due
		w := timingwheel.New(timingwheel.WithTick(200 * time.Millisecond))
		last := lastStart(due, func(f func()) { w.AfterFunc(50*time.Millisecond, f) })
		require.Empty(t, w.Stop())
		t.Logf("the last of %d started %v after the tick; with a goroutine each, after %v", tasks, last, baseline)
		if last < max(500*time.Millisecond, 3*baseline) {
			return
		}
		require.Less(t, attempt, 5)
	}
}
