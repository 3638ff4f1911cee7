package timingwheel_test

import (
	"fmt"
	"math/rand/v2"
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

// A timer that was pushed back, has come due, and waits for a bounded executor says for when
// it was set last. So does Stop, which hands it back.
func TestDeadlineOfAResetTimerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithShards(1), timingwheel.WithExecutor(pool.New(1, 0, pool.Wait)))
		release := make(chan struct{})
		w.Schedule(0, func() { <-release })
		want := time.Now().Add(50 * time.Millisecond)
		timer := w.AfterFunc(10*time.Millisecond, func() { t.Error("it runs") })
		for _, d := range []time.Duration{20, 30, 50} { // from the second on without the lock
			require.True(t, timer.Reset(d*time.Millisecond))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		at, ok := timer.Deadline()
		require.True(t, ok)
		require.Equal(t, want, at)
		back := w.Stop()
		require.Len(t, back, 1)
		require.Equal(t, want, back[0].Deadline)
		close(release)
	})
}

// A Timer that was reset before Shutdown, or to an earlier time during it, fires when it is due. A
// later time is refused, also after an earlier one was not.
func TestResetTimersDuringShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithShards(1))
		start := time.Now()
		var before, during time.Duration
		timer := w.AfterFunc(time.Second, func() { before = time.Since(start) })
		other := w.AfterFunc(2*time.Hour, func() { during = time.Since(start) })
		const late, early = time.Hour + 7*time.Millisecond, 30*time.Minute + 7*time.Millisecond
		for range 3 {
			require.True(t, timer.Reset(late))
			require.True(t, other.Reset(2*time.Hour))
		}
		ended := make(chan error)
		go func() { ended <- w.Shutdown(t.Context()) }()
		synctest.Wait()
		for range 2 {
			require.True(t, other.Reset(early))
			require.False(t, other.Reset(early+time.Millisecond))
			require.False(t, timer.Reset(late+time.Millisecond))
		}
		require.NoError(t, <-ended)
		require.Equal(t, late, before)
		require.Equal(t, early, during)
	})
}

// A Reset to now is due at once, without rounding, also between two ticks and on a Timer that
// was pushed back.
func TestResetToNowIsNotRounded(t *testing.T) {
	for resets := range 4 {
		synctest.Test(t, func(t *testing.T) {
			w := manual()
			defer w.Stop()
			ran := 0
			timer := w.AfterFunc(time.Minute, func() { ran++ })
			time.Sleep(300 * time.Microsecond)
			for range resets {
				require.True(t, timer.Reset(time.Hour))
			}
			require.True(t, timer.Reset(0))
			verify(t, w)
			require.Equal(t, 1, w.Drive(0))
			require.Equal(t, 1, ran)
			require.False(t, timer.Reset(-1))
			require.Equal(t, 1, w.Drive(0))
			require.Equal(t, 2, ran)
		})
	}
}

// A Timer of short ticks is reset, and now and then stopped, about when it fires. Once Reset has
// returned true, the function does not run before the new time; once Stop has, it does not
// run at all.
func TestResetAboutWhenItFires(t *testing.T) {
	for _, tick := range []time.Duration{time.Microsecond, 20 * time.Microsecond, time.Millisecond} {
		for _, procs := range []int{1, 2, 8} {
			t.Run(fmt.Sprintf("tick %v, %d processors", tick, procs), func(t *testing.T) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				w := timingwheel.New(timingwheel.WithTick(tick), timingwheel.WithWheelSize(8), timingwheel.WithShards(2))
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() { resetAboutWhenItFires(t, w, 3*tick) })
				}
				all.Wait()
				require.Empty(t, w.Stop())
				requireAccounts(t, w.Stats())
			})
		}
	}
}

// resetAboutWhenItFires compares the nth run, in the order of their times, with the nth deadline.
// Functions may overtake each other, but each run of a later arming comes after the earlier
// deadlines too.
func resetAboutWhenItFires(t *testing.T, w *timingwheel.TimingWheel, most time.Duration) {
	start := time.Now()
	var mu sync.Mutex
	var runs []time.Duration
	timer := w.AfterFunc(0, func() {
		mu.Lock()
		defer mu.Unlock()
		runs = append(runs, time.Since(start))
	})
	due := []time.Duration{0} // of each time that it was armed, and was not stopped
	for time.Since(start) < time.Duration(unlessShort(100, 20))*time.Millisecond {
		stopped := rand.IntN(8) == 0 && timer.Stop()
		if stopped {
			due = due[:len(due)-1]
		}
		d, before := rand.N(most), time.Since(start)
		if !timer.Reset(d) {
			due = append(due, 0)
		} else if stopped {
			t.Error("a timer that was stopped is pending")
		}
		due[len(due)-1] = before + d
		for until := time.Since(start) + rand.N(most); time.Since(start) < until; { // no yield
		}
	}
	waitFor(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(runs) >= len(due)
	})
	mu.Lock()
	defer mu.Unlock()
	if len(runs) != len(due) {
		t.Errorf("armed %d times, ran %d times", len(due), len(runs))
		return
	}
	for i := range runs {
		if runs[i] < due[i] {
			t.Errorf("run %d at %v instead of %v", i, runs[i], due[i])
		}
	}
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
