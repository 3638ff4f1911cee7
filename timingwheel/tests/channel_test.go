package timingwheel_test

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// likeness_test.go compares channel timers with package time, step by step. Here is what
// differs, and what takes real goroutines and real time.

const msec = time.Millisecond

// bubble runs f in a bubble with a wheel that started at its beginning.
func bubble(t *testing.T, f func(t *testing.T, w *timingwheel.TimingWheel)) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New()
		defer w.Stop()
		f(t, w)
	})
}

func empty(c <-chan time.Time) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func TestSleep(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		for _, d := range []time.Duration{0, -1, math.MinInt64} {
			w.Sleep(d)
			require.Zero(t, time.Since(start))
		}
		w.Sleep(3 * msec)
		require.Equal(t, 3*msec, time.Since(start))
		w.Sleep(msec / 3)
		require.Equal(t, 4*msec, time.Since(start), "rounded up to a tick")
		require.Zero(t, w.Len())
	})
}

// Real time, while other goroutines need the processors too.
func TestSleepIsNeverShort(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(50 * time.Microsecond))
	defer w.Stop()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				d := time.Duration(rand.Int64N(int64(2 * msec)))
				start := time.Now()
				w.Sleep(d)
				if slept := time.Since(start); slept < d {
					t.Errorf("slept %v of %v", slept, d)
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
}

func TestAfter(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		require.Equal(t, start.Add(5*msec), <-w.After(5*msec))
		require.Equal(t, start.Add(5*msec), <-w.After(-time.Hour))
		c := w.After(math.MaxInt64)
		time.Sleep(10000 * time.Hour)
		require.True(t, empty(c))

		// In the order of their deadlines, not of their making.
		var mu sync.Mutex
		var got []int
		var wg sync.WaitGroup
		for _, slot := range []int{5, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0} {
			wg.Go(func() {
				<-w.After(time.Duration(slot) * 10 * msec)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, slot)
			})
			synctest.Wait()
		}
		wg.Wait()
		require.Equal(t, []int{0, 1, 1, 2, 3, 4, 5, 6, 6, 6, 7, 8, 9}, got)
	})
}

// The time in the channel is when the timer fired, not when it is received.
func TestChannelHasTheTimeOfTheFiring(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		after, ticker := w.After(10*msec), w.NewTicker(10*msec)
		time.Sleep(505 * msec)
		require.Equal(t, start.Add(10*msec), <-after)
		require.Equal(t, start.Add(10*msec), <-ticker.C, "the first of those that a slow receiver missed")
		require.Equal(t, start.Add(510*msec), <-ticker.C, "and then on along the grid")
		require.Equal(t, start.Add(520*msec), <-ticker.C)
		ticker.Stop()
	})
}

func TestLenAndCapOfTheChannels(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		timer, ticker := w.NewTimer(5*msec), w.NewTicker(5*msec)
		for _, c := range []<-chan time.Time{timer.C, ticker.C} {
			require.Equal(t, 1, cap(c))
			require.Empty(t, c)
		}
		time.Sleep(50 * msec)
		synctest.Wait()
		for _, c := range []<-chan time.Time{timer.C, ticker.C} {
			require.Len(t, c, 1)
		}
		require.True(t, timer.Stop(), "it takes back what nobody received")
		ticker.Stop()
		for _, c := range []<-chan time.Time{timer.C, ticker.C} {
			require.Empty(t, c)
		}
		require.False(t, timer.Stop())
		require.Nil(t, w.AfterFunc(msec, noop).C)
	})
}

func noop() {}

func TestResetOfAChannelTimer(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		timer := w.NewTimer(20 * msec)
		time.Sleep(10 * msec)
		require.True(t, timer.Reset(30*msec), "pending")
		time.Sleep(25 * msec)
		require.True(t, empty(timer.C), "the first deadline is forgotten")
		require.Equal(t, start.Add(40*msec), <-timer.C)
		require.False(t, timer.Reset(time.Hour), "fired and received")
		require.True(t, timer.Reset(msec), "to an earlier time, over two levels")
		require.Equal(t, start.Add(41*msec), <-timer.C)

		require.False(t, timer.Reset(msec))
		time.Sleep(2 * msec)
		synctest.Wait()
		require.True(t, timer.Reset(msec), "the value that nobody received counts")
		require.Equal(t, start.Add(44*msec), <-timer.C, "and is gone")
		require.False(t, timer.Stop())
		require.Zero(t, w.Len())
	})
}

func TestTicker(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		ticker := w.NewTicker(3 * msec)
		for i := range 1000 {
			require.Equal(t, start.Add(time.Duration(i+1)*3*msec), <-ticker.C)
		}
		ticker.Reset(700 * msec)
		for i := range 10 {
			require.Equal(t, start.Add(3*time.Second+time.Duration(i+1)*700*msec), <-ticker.C)
		}
		time.Sleep(time.Second)
		ticker.Stop()
		require.True(t, empty(ticker.C), "not even the tick that was sent already")
		time.Sleep(time.Hour)
		require.True(t, empty(ticker.C))
		require.Zero(t, w.Len())
		ticker.Stop()

		start = time.Now()
		ticker.Reset(msec)
		require.Equal(t, start.Add(msec), <-ticker.C, "Reset starts a stopped one again")
		ticker.Stop()
	})
}

// A driver that is late by many periods sends one tick, not all that were missed.
func TestTickerCatchesUpAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithManualDrive())
		ticker, hourly := w.NewTicker(10*msec), w.NewTicker(time.Hour)
		time.Sleep(105 * msec)
		w.Drive(0)
		<-ticker.C
		w.Drive(0)
		require.True(t, empty(ticker.C))
		time.Sleep(5 * msec)
		w.Drive(0)
		require.False(t, empty(ticker.C), "the grid is the old one")
		w.Stop()
		require.True(t, empty(hourly.C), "the wheel's end is no tick")
	})
}

func TestTickerPeriodRoundsUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		time.Sleep(msec / 4)
		ticker := w.NewTicker(1500 * time.Microsecond)
		defer ticker.Stop()
		start := time.Now()
		require.Equal(t, start.Add(2*msec+3*msec/4), <-ticker.C, "never early, and on a tick")
		for i := range 10 {
			require.Equal(t, start.Add(2*msec+3*msec/4+time.Duration(i+1)*2*msec), <-ticker.C)
		}
	})
}

func TestTickerOfTheLongestPeriod(t *testing.T) {
	for _, tick := range []time.Duration{msec, 7 * msec, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithTick(tick))
			defer w.Stop()
			time.Sleep(msec / 2)
			longest, half := w.NewTicker(math.MaxInt64), w.NewTicker(math.MaxInt64/2)
			time.Sleep(math.MaxInt64 / 4)
			require.True(t, empty(longest.C))
			longest.Reset(math.MaxInt64)
			time.Sleep(math.MaxInt64/4 + 10*msec)
			synctest.Wait()
			require.Equal(t, tick == math.MaxInt64, empty(half.C))
			require.Equal(t, 2, w.Len())
		})
	}
}

func TestTick(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		require.Nil(t, w.Tick(0))
		require.Nil(t, w.Tick(-1))
		start := time.Now()
		c := w.Tick(10 * msec)
		require.Equal(t, start.Add(10*msec), <-c)
		require.Equal(t, start.Add(20*msec), <-c)
	})
}

func TestTickersThatCannotBe(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for _, d := range []time.Duration{0, -1, math.MinInt64} {
		require.PanicsWithValue(t, "timingwheel: non-positive interval for NewTicker", func() { w.NewTicker(d) })
		ticker := w.NewTicker(time.Hour)
		require.PanicsWithValue(t, "timingwheel: non-positive interval for Ticker.Reset", func() { ticker.Reset(d) })
		require.Equal(t, 1, w.Len(), "as it was before the Reset that panicked")
		ticker.Stop()
	}
	var nobody timingwheel.Ticker
	require.PanicsWithValue(t, "timingwheel: Reset called on uninitialized Ticker", func() { nobody.Reset(1) })
	require.NotPanics(t, nobody.Stop)

	c := make(chan time.Time, 1)
	own := timingwheel.Ticker{C: c} // of a test double, say
	c <- time.Time{}
	own.Stop()
	require.Len(t, own.C, 1)

	// A Stop that panics holds no lock afterwards.
	other := w.NewTicker(msec)
	var timer *timingwheel.Timer
	require.Panics(t, func() { timer.Stop() })
	other.Stop()
}

// The driver itself serves channels and contexts: they do not wait for the executor.
func TestChannelsDoNotWaitForTheExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block, handed := make(chan struct{}), 0
		w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(1), timingwheel.WithExecutor(
			timingwheel.ExecutorFunc(func(func()) { handed++; <-block })))
		defer w.Stop()
		w.AfterFunc(msec, noop)
		timer, ticker := w.NewTimer(msec), w.NewTicker(msec)
		ctx, cancel := w.WithTimeout(t.Context(), msec)
		defer cancel()
		time.Sleep(msec)
		result := make(chan int)
		go func() { result <- w.Drive(0) }()
		synctest.Wait()
		require.Equal(t, 1, handed)
		require.Len(t, timer.C, 1)
		require.Len(t, ticker.C, 1)
		require.Error(t, ctx.Err())
		close(block)
		require.Equal(t, 1, <-result, "what the driver does itself is not handed over")
	})
}

// When the wheel stops, what waits for a channel must not wait for ever.
func TestChannelTimersOutliveTheWheel(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		start := time.Now()
		timer, stopped, reset := w.NewTimer(10*msec), w.NewTimer(10*msec), w.NewTimer(10*msec)
		fired := w.NewTimer(msec)
		ticker := w.NewTicker(msec)
		sleeper := make(chan time.Duration)
		go func() { w.Sleep(20 * msec); sleeper <- time.Since(start) }()
		time.Sleep(5 * msec)
		w.AfterFunc(time.Hour, noop)
		require.Len(t, w.Stop(), 1, "the function, and nothing else")
		require.Zero(t, w.Len())
		ticker.Stop()
		ticker.Reset(msec)

		require.True(t, stopped.Stop())
		require.False(t, stopped.Stop())
		require.True(t, reset.Reset(20*msec))
		require.True(t, fired.Reset(30*msec), "the value from before was never received")
		require.Equal(t, start.Add(10*msec), <-timer.C)
		require.False(t, timer.Reset(5*msec))
		require.Equal(t, start.Add(15*msec), <-timer.C)
		require.Equal(t, 20*msec, <-sleeper)
		require.Equal(t, start.Add(25*msec), <-reset.C)
		require.Equal(t, start.Add(35*msec), <-fired.C)

		late := w.NewTimer(5 * msec)
		require.Equal(t, start.Add(40*msec), <-late.C)
		require.Equal(t, start.Add(40*msec), <-w.After(0))
		w.Sleep(5 * msec)
		require.Equal(t, 45*msec, time.Since(start))
		lateTicker := w.NewTicker(msec)
		time.Sleep(time.Hour)
		require.True(t, empty(ticker.C))
		require.True(t, empty(lateTicker.C))
		require.True(t, empty(stopped.C))
		lateTicker.Stop()
	})
}

// A delay that is not positive is over at once on a stopped wheel, too.
func TestNegativeDelayOnAStoppedWheel(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		w.Stop()
		for _, d := range []time.Duration{0, -1, -time.Hour, math.MinInt64} {
			start := time.Now()
			timer := w.NewTimer(d)
			require.Equal(t, start, <-timer.C, d)
			timer.Reset(d)
			require.Equal(t, start, <-timer.C, d)
			require.Equal(t, start, <-w.After(d), d)
		}
	})
}

// However Stop or Reset races with the firing, with the receiver and with the wheel's
// Stop: when it has returned, no older value is received, and its result says whether one
// was or will have been received.
func TestNoStaleValue(t *testing.T) {
	for _, tick := range []time.Duration{time.Microsecond, 100 * time.Microsecond} {
		for _, stopWheel := range []bool{false, true} {
			w := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithWheelSize(2))
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() { noStaleValue(t, w) })
			}
			if stopWheel {
				time.Sleep(20 * msec)
				w.Stop()
			}
			wg.Wait()
			require.Zero(t, w.Len())
			w.Stop()
		}
	}
}

func noStaleValue(t *testing.T, w *timingwheel.TimingWheel) {
	delay := func() time.Duration { return time.Duration(rand.Int64N(int64(200 * time.Microsecond))) }
	timer := w.NewTimer(delay())
	for range 200 {
		time.Sleep(delay())
		d := delay()
		before := time.Now()
		timer.Reset(d)
		if rand.IntN(2) == 0 {
			got := <-timer.C
			if got.Before(before.Add(d)) {
				t.Errorf("a value of %v before the deadline", before.Add(d).Sub(got))
			}
			if timer.Stop() {
				t.Error("Stop took back a second value")
			}
		} else if !timer.Stop() {
			t.Error("Stop found neither a pending event nor a value, and nobody received")
		}
		if !empty(timer.C) {
			t.Error("a value after Stop")
		}
		timer.Reset(delay())
	}
	timer.Stop()
}

// If a receive races with Stop or Reset, exactly one of them gets the event.
func TestStopOrReceiveNotBoth(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(10 * time.Microsecond))
	defer w.Stop()
	for i := range 1000 {
		timer := w.NewTimer(time.Duration(rand.Int64N(int64(100 * time.Microsecond))))
		stopped, done := make(chan bool), make(chan struct{})
		received := false
		go func() {
			defer close(done)
			select {
			case <-timer.C:
				received = true
			case <-stopped:
			}
		}()
		time.Sleep(time.Duration(rand.Int64N(int64(150 * time.Microsecond))))
		var active bool
		if i%2 == 0 {
			active = timer.Stop()
		} else {
			active = timer.Reset(time.Hour)
		}
		close(stopped)
		<-done
		require.Equal(t, !active, received)
		timer.Stop()
	}
}

// Tickers are stopped, reset and received from at the same time, and the collector runs.
func TestTickerStress(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(10*time.Microsecond), timingwheel.WithWheelSize(4))
	defer w.Stop()
	var end atomic.Bool
	var wg sync.WaitGroup
	ticker := w.NewTicker(20 * time.Microsecond)
	for range 4 {
		wg.Go(func() {
			for !end.Load() {
				own := w.NewTicker(time.Duration(1 + rand.IntN(50_000)))
				<-own.C
				own.Stop()
				if !empty(own.C) {
					t.Error("a tick after Stop")
				}
			}
		})
		wg.Go(func() {
			for !end.Load() {
				<-ticker.C
			}
		})
		wg.Go(func() {
			for !end.Load() {
				if rand.IntN(2) == 0 {
					ticker.Stop()
				}
				ticker.Reset(time.Duration(1 + rand.IntN(50_000)))
				runtime.Gosched()
			}
		})
	}
	for range unlessShort(20, 8) {
		runtime.GC()
		time.Sleep(5 * msec)
	}
	end.Store(true)
	wg.Wait()
	ticker.Stop()
	require.Zero(t, w.Len())
}

// Several goroutines may receive from one ticker, and each tick goes to one.
func TestManyReceivers(t *testing.T) {
	bubble(t, func(t *testing.T, w *timingwheel.TimingWheel) {
		ticker := w.NewTicker(msec)
		var ticks atomic.Int64
		ctx := t.Context()
		for range 10 {
			go func() {
				for {
					select {
					case <-ticker.C:
						ticks.Add(1)
					case <-ctx.Done():
						return
					}
				}
			}()
		}
		time.Sleep(100*msec + msec/2)
		synctest.Wait()
		require.EqualValues(t, 100, ticks.Load())
		ticker.Stop()
	})
}

// All processors are busy with goroutines that only pass each other the turn. A timer on
// the wheel fires all the same.
func TestBusyGoroutinesDoNotStarveTheDriver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	w := timingwheel.New()
	defer w.Stop()
	var stop atomic.Bool
	var wg sync.WaitGroup
	ping, pong := make(chan struct{}), make(chan struct{})
	wg.Go(func() {
		defer close(ping)
		for !stop.Load() {
			ping <- struct{}{}
			<-pong
		}
	})
	wg.Go(func() {
		for range ping {
			pong <- struct{}{}
		}
	})
	w.AfterFunc(msec, func() { stop.Store(true) })
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("starved")
	}
}

// The wheel keeps nothing of a timer that fired or was stopped. It does keep one that is
// pending, as its doc says.
func TestChannelTimersAreReleased(t *testing.T) {
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	timers := unlessShort(50_000, 20_000)
	before := liveHeap()
	for range timers {
		w.NewTimer(time.Hour).Stop()
		w.NewTicker(time.Hour).Stop()
		_, cancel := w.WithTimeout(t.Context(), time.Hour)
		cancel()
	}
	waitFor(t, func() bool { return liveHeap() < before+uint64(timers)*10 })
	for range timers {
		w.NewTimer(time.Hour)
	}
	require.Equal(t, timers, w.Len())
	require.Greater(t, liveHeap(), before+uint64(timers)*100)
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
