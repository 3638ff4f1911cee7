package timingwheel_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// The driver goroutine ends when nothing more is due. A caller that adds at that moment
// must find that it is still there, or have another started. Each round waits for its
// task: one lost wake-up stops the test.
func TestDriverEndsAndLosesNoWakeUp(t *testing.T) {
	const callers = 3
	rounds := unlessShort(8000, 3000)
	atProcessors(t, func(t *testing.T) {
		for _, shards := range []int{1, 4} {
			w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithShards(shards))
			var left atomic.Int64
			left.Store(callers)
			for range callers {
				go func() {
					fired := make(chan struct{}, 1)
					f := func() { fired <- struct{}{} }
					for n := range rounds {
						w.Schedule(time.Duration(n%3)*time.Microsecond-time.Microsecond, f)
						<-fired
						for range rand.IntN(4) {
							runtime.Gosched() // the queue is empty for a time that varies
						}
					}
					left.Add(-1)
				}()
			}
			waitFor(t, func() bool { return left.Load() == 0 })
			require.Zero(t, w.Len())
			require.Empty(t, w.Stop())
		}
	})
}

// The driver has the wheel's label, also if an executor has run tasks on it and has cleared
// theirs. To be seen, the driver waits for the shard's lock, which a task has left locked.
func TestTraceLabelsTheDriver(t *testing.T) {
	executors := blocking()
	executors["goroutines"] = timingwheel.Goroutines()
	executors["pool"] = newPool(2, 2, fullWait)
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			name := fmt.Sprintf("%s %d", name, rand.Int()) // nothing else has its label
			w := timingwheel.New(timingwheel.WithTrace(name), timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
			defer w.Stop()
			far, _ := w.Schedule(time.Hour, noop)
			shard, locked := engine.Handle(far), make(chan struct{})
			w.Schedule(0, func() {
				// With 0, the driver could inherit a label. With only one, it could have come and gone
				// before the lock is held.
				for n := range 50 {
					w.Schedule(time.Duration(1+n)*200*time.Millisecond, noop)
				}
				shard.LockShard()
				close(locked)
			})
			<-locked // also tells the race detector that what the task did came first
			defer shard.UnlockShard()
			label := fmt.Sprintf(`"timingwheel":%q`, name)
			waitFor(t, func() bool {
				var b strings.Builder
				pprof.Lookup("goroutine").WriteTo(&b, 1)
				for stanza := range strings.SplitSeq(b.String(), "\n\n") {
					if strings.Contains(stanza, "sync.(*Mutex).Lock+") && strings.Contains(stanza, label) {
						return true
					}
				}
				return false
			})
		})
	}
}

// A task that blocks delays none that is due on the same tick, and none that is due later.
// The clock of the bubble tells.
func TestBlockingTaskDelaysNoOther(t *testing.T) {
	for _, shards := range []int{1, 4} {
		for _, n := range []int{2, 5, 255, 256, 257, 1000} {
			synctest.Test(t, func(t *testing.T) {
				w := timingwheel.New(timingwheel.WithShards(shards))
				start, release := time.Now(), make(chan struct{})
				var late atomic.Int64
				var ran sync.WaitGroup
				for i := range n {
					d := time.Second + time.Duration(i%2)*time.Millisecond
					ran.Add(1)
					w.Schedule(d, func() {
						if time.Since(start) != d {
							late.Add(1)
						}
						ran.Done()
						<-release
					})
				}
				ran.Wait()
				require.Zero(t, late.Load())
				close(release)
				require.NoError(t, w.Shutdown(t.Context()))
			})
		}
	}
}

// At no time do two goroutines drive. Inline tasks show it, also where they end the
// driver's goroutine.
func TestDriverIsAlone(t *testing.T) {
	w := timingwheel.New(timingwheel.WithTick(time.Microsecond), timingwheel.WithShards(4), timingwheel.WithExecutor(timingwheel.Inline()))
	var driving, ran atomic.Int64
	const callers, rounds = 4, 3000
	for range callers {
		go func() {
			for n := range rounds {
				w.Schedule(0, func() {
					if driving.Add(1) != 1 {
						t.Error("two drivers at once")
					}
					runtime.Gosched()
					driving.Add(-1)
					ran.Add(1)
					if n%10 == 0 {
						runtime.Goexit()
					}
				})
				if n%5 == 0 {
					time.Sleep(time.Microsecond)
				}
			}
		}()
	}
	waitFor(t, func() bool { return ran.Load() == callers*rounds })
	require.Empty(t, w.Stop())
}

type maker = func(opts ...timingwheel.Option) *timingwheel.TimingWheel

// A wheel that nobody refers to fires what is pending. Then it is garbage, and its driver
// goroutine is gone. One that was never used, or was stopped, is garbage at once.
func TestForgottenWheel(t *testing.T) {
	goroutines := runtime.NumGoroutine()
	for name, use := range map[string]func(start maker, note func()){
		"unused": func(start maker, note func()) { start(); note() },
		"stopped": func(start maker, note func()) {
			w := start()
			w.AfterFunc(time.Hour, note)
			w.Stop()
			note()
		},
		"fires": func(start maker, note func()) {
			start().AfterFunc(20*time.Millisecond, note)
		},
		"fires and schedules": func(start maker, note func()) {
			w := start()
			w.AfterFunc(time.Millisecond, func() { w.Schedule(time.Millisecond, note) })
		},
		"canceled": func(start maker, note func()) {
			if start().AfterFunc(20*time.Millisecond, note).Stop() { // or it was slow, and has fired
				note()
			}
		},
		"surface": func(start maker, note func()) {
			w := start()
			w.NewTimer(5 * time.Millisecond)
			w.WithTimeout(context.Background(), 5*time.Millisecond)
			w.NewTicker(time.Millisecond).Stop()
			timingwheel.Submit(w, 10*time.Millisecond, func(context.Context) (int, error) { note(); return 0, nil })
			timingwheel.NewKeyed[int](w).Schedule(1, time.Millisecond, noop)
			job, _ := w.ScheduleAtFixedRate(0, time.Hour, noop)
			job.Stop()
		},
		"pool": func(start maker, note func()) {
			start(timingwheel.WithExecutor(newPool(2, 2, fullWait))).AfterFunc(time.Millisecond, note)
		},
		"limit and handler": func(start maker, note func()) {
			w := start(timingwheel.WithMaxPending(1), timingwheel.WithPanicHandler(func(any, []byte) { note() }))
			w.AfterFunc(time.Millisecond, func() { panic("caught") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			var noted atomic.Int64
			var wheel weak.Pointer[timingwheel.TimingWheel]
			start := func(opts ...timingwheel.Option) *timingwheel.TimingWheel {
				w := timingwheel.New(opts...)
				wheel = weak.Make(w)
				return w
			}
			use(start, func() { noted.Add(1) })
			waitForGarbage(t, func() bool {
				return wheel.Value() == nil && noted.Load() == 1
			})
			waitFor(t, func() bool { return runtime.NumGoroutine() <= goroutines+1 }) // and that of the subtest
		})
	}
}

// In a bubble a forgotten wheel leaves no goroutine to wait for, or the test would end in
// a deadlock.
func TestForgottenWheelInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fired := false
		timingwheel.New().AfterFunc(time.Hour, func() { fired = true })
		timingwheel.New().AfterFunc(time.Hour, noop).Stop()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.True(t, fired)
	})
}

// The next driver goroutine hands on at once the tasks that the last one had taken when it ended.
// It does not wait for the next deadline.
func TestNewDriverHandsOnWhatTheLastHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(exitingHandler{slog.DiscardHandler})
		w := timingwheel.New(timingwheel.WithLogger(log), timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1))
		start := time.Now()
		var ran []time.Duration
		w.AfterFunc(time.Second, func() { time.Sleep(5 * time.Second) })
		w.AfterFunc(2*time.Second, func() { ran = append(ran, time.Since(start)) }) // late, and logged
		w.AfterFunc(time.Hour, noop)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{6 * time.Second}, ran)
		w.Stop()
	})
}

// exitingHandler ends the goroutine that logs.
type exitingHandler struct{ slog.Handler }

func (exitingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (exitingHandler) Handle(context.Context, slog.Record) error {
	runtime.Goexit()
	return nil
}

// A context that ends together with a function that blocks does not wait for it.
func TestContextDoesNotWaitForAFunctionOfItsOwnTick(t *testing.T) {
	for name, executor := range blocking() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
				defer w.Stop()
				start := time.Now()
				w.Schedule(time.Second, func() { time.Sleep(time.Minute) })
				ctx, cancel := w.WithTimeout(t.Context(), time.Second)
				defer cancel()
				<-ctx.Done()
				require.Equal(t, time.Second, time.Since(start))
				time.Sleep(time.Hour)
			})
		})
	}
}

// Also at the very beginning of a bubble, where no time has passed since the wheel was made.
func TestFunctionThatHoldsUpFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1))
		defer w.Stop()
		w.Schedule(0, func() { time.Sleep(time.Minute) })
		synctest.Wait()
		require.Zero(t, w.Stats().HeldUp)
		start := time.Now()
		<-w.After(time.Second)
		require.Equal(t, time.Second, time.Since(start))
		require.Positive(t, w.Stats().HeldUp)
		time.Sleep(time.Minute)
	})
}

// A task that is due at once runs after the tasks that were due before.
func TestDueAtOnceGoesBehindWhatWasDueBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		var order []int
		w.Schedule(time.Millisecond, func() { order = append(order, 1) })
		time.Sleep(5 * time.Millisecond)
		w.Schedule(0, func() { order = append(order, 2) })
		require.Equal(t, 2, w.Drive(0))
		require.Equal(t, []int{1, 2}, order)
	})
}

// Under manual drive, a task that a function adds without delay runs in the next call, since it is
// due after this call began. It runs in this call with another one that waits since before the call.
// In a bubble it is due now.
func TestDriveLeavesWhatIsAddedForTheNextCall(t *testing.T) {
	ran := 0
	addsAnother := func(w *timingwheel.TimingWheel) func() {
		return func() { time.Sleep(time.Microsecond); w.Schedule(0, func() { ran++ }) }
	}
	w := manual()
	defer w.Stop()
	w.Schedule(0, addsAnother(w))
	require.Equal(t, 1, w.Drive(0))
	require.Zero(t, ran)
	require.Equal(t, 1, w.Drive(0))
	require.Equal(t, 1, ran)
	w.Schedule(1, addsAnother(w))
	time.Sleep(2 * msec)
	w.Schedule(0, func() {})
	require.Equal(t, 3, w.Drive(0))
	require.Equal(t, 2, ran)
	ran = 0
	synctest.Test(t, func(t *testing.T) {
		w := manual()
		defer w.Stop()
		w.Schedule(0, func() { w.Schedule(0, func() { ran++ }) })
		require.Equal(t, 2, w.Drive(0))
		require.Equal(t, 1, ran)
	})
}
