package engine_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/internal/wallclock/wallclocktest"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

func suspendable(t *testing.T, opts ...timingwheel.Option) (*timingwheel.TimingWheel, *engine.Engine) {
	w := timingwheel.New(append(opts, timingwheel.WithSuspendedTime())...)
	require.True(t, w.Stats().CountsSuspends)
	t.Cleanup(func() { w.Stop() })
	return w, (*engine.Engine)(w)
}

// The notice of the system makes fire what came due while the machine was suspended, and
// nothing else. Nobody calls the wheel meanwhile.
func TestResume(t *testing.T) {
	for name, opts := range map[string][]timingwheel.Option{
		"default": nil,
		"precise": {timingwheel.WithPreciseWakeups()},
	} {
		t.Run(name, func(t *testing.T) {
			w, e := suspendable(t, opts...)
			fired := make(chan int, 10)
			w.AfterFunc(90*time.Minute, func() { fired <- 90 })
			w.AfterFunc(3*time.Hour, func() { fired <- 180 })
			e.Suspend(2 * time.Hour)
			require.Empty(t, fired)
			start := time.Now()
			wallclocktest.Notify(t)
			require.Equal(t, 90, <-fired)
			t.Logf("fired %v after the notice", time.Since(start))
			e.Suspend(2 * time.Hour)
			wallclocktest.Notify(t)
			require.Equal(t, 180, <-fired)
			require.InDelta(t, 4*time.Hour, w.Stats().Suspended, float64(time.Second))
			require.Empty(t, fired)
		})
	}
}

// Every call after a suspend is right, even before the system gives notice.
func TestAddsAfterASuspend(t *testing.T) {
	const slept, d = 8 * time.Hour, 20 * time.Millisecond
	for name, arm := range map[string]func(w *timingwheel.TimingWheel, f func()){
		"Schedule":   func(w *timingwheel.TimingWheel, f func()) { w.Schedule(d, f) },
		"ScheduleAt": func(w *timingwheel.TimingWheel, f func()) { w.ScheduleAt(time.Now().Add(d), f) },
		"AfterFunc":  func(w *timingwheel.TimingWheel, f func()) { w.AfterFunc(d, f) },
		"After":      func(w *timingwheel.TimingWheel, f func()) { c := w.After(d); go func() { <-c; f() }() },
		"ticker":     func(w *timingwheel.TimingWheel, f func()) { c := w.Tick(d); go func() { <-c; f() }() },
		"job":        func(w *timingwheel.TimingWheel, f func()) { w.ScheduleWithFixedDelay(d, time.Hour, f) },
		"batch": func(w *timingwheel.TimingWheel, f func()) {
			w.ScheduleBatch(nil, []timingwheel.Delayed{{After: d, Func: f}})
		},
		"context": func(w *timingwheel.TimingWheel, f func()) {
			ctx, _ := w.WithTimeout(t.Context(), d)
			go func() { <-ctx.Done(); f() }()
		},
		"context until": func(w *timingwheel.TimingWheel, f func()) {
			ctx, _ := w.WithDeadline(t.Context(), time.Now().Add(d))
			go func() { <-ctx.Done(); f() }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, e := suspendable(t)
			for range 3 {
				e.Suspend(slept)
				start, fired := time.Now(), make(chan time.Time, 100)
				arm(w, func() { fired <- time.Now() })
				require.GreaterOrEqual(t, (<-fired).Sub(start), d)
			}
			require.InDelta(t, 3*slept, w.Stats().Suspended, float64(time.Second))
		})
	}
}

// Deadlines follow the clocks as they are, after a suspend too. A timer that moves to package time
// keeps its remaining time.
func TestDeadlinesAfterASuspend(t *testing.T) {
	w, e := suspendable(t)
	near := func(want time.Duration, at time.Time) {
		require.InDelta(t, want, time.Until(at), float64(time.Minute))
		require.InDelta(t, want, time.Until(at.Round(0)), float64(time.Minute), "by the wall clock")
	}
	timer := w.AfterFunc(5*time.Hour, func() {})
	job, err := w.ScheduleAtFixedRate(6*time.Hour, time.Hour, func() {})
	require.NoError(t, err)
	channel := w.NewTimer(7 * time.Hour)
	e.Suspend(2 * time.Hour)
	w.Schedule(time.Hour, func() {})

	at, ok := timer.Deadline()
	require.True(t, ok)
	near(3*time.Hour, at)
	at, _ = job.Next()
	near(4*time.Hour, at)
	near(time.Hour, w.Snapshot(1).Next[0])
	for _, p := range w.Stop() {
		require.Less(t, time.Until(p.Deadline), 3*time.Hour+time.Minute)
	}
	at, ok = channel.Deadline()
	require.True(t, ok)
	near(5*time.Hour, at)
	channel.Reset(time.Hour)
	at, ok = channel.Deadline()
	require.True(t, ok)
	near(time.Hour, at)
}

// So does a context.
func TestContextAfterASuspendAndStop(t *testing.T) {
	w, e := suspendable(t)
	ctx, cancel := w.WithTimeout(t.Context(), 2*time.Hour+100*time.Millisecond)
	defer cancel()
	e.Suspend(2 * time.Hour)
	w.Schedule(time.Hour, func() {}) // the clock finds it out
	w.Stop()
	select {
	case <-ctx.Done():
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
	case <-time.After(10 * time.Second):
		t.Error("late by the suspend")
	}
}

func TestTickersAndRatesAfterASuspend(t *testing.T) {
	w, e := suspendable(t)
	ticker := w.NewTicker(time.Hour)
	var burst, skip atomic.Int64
	_, err := w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { burst.Add(1) })
	require.NoError(t, err)
	skipping, err := w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { skip.Add(1) }, timingwheel.OnMissed(timingwheel.MissedSkip))
	require.NoError(t, err)
	e.Suspend(5*time.Hour + 30*time.Minute)
	wallclocktest.Notify(t)
	<-ticker.C
	for burst.Load() < 5 || skip.Load() < 1 {
		runtime.Gosched()
	}
	require.Empty(t, ticker.C)
	require.EqualValues(t, 1, skip.Load())
	for { // the run may have yet to plan the next
		if at, ok := skipping.Next(); ok {
			require.InDelta(t, 30*time.Minute, time.Until(at), float64(time.Minute))
			break
		}
	}
	require.EqualValues(t, 5, burst.Load())
}

// Nothing is early by the time that counts suspends, whenever they come.
func TestSuspendsAtAnyTime(t *testing.T) {
	w, e := suspendable(t)
	var adding, pending sync.WaitGroup
	var early atomic.Int64
	stop := make(chan struct{})
	suspends := sync.WaitGroup{}
	suspends.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(rand.N(3 * time.Millisecond)):
			}
			e.Suspend(time.Duration(1+rand.IntN(10)) * time.Second)
			if rand.IntN(2) == 0 {
				wallclocktest.Notify(t)
			}
		}
	})
	for range 4 {
		adding.Go(func() {
			for range 2000 {
				d := rand.N(time.Minute)
				pending.Add(1)
				due := e.Clock().Now() + d
				timer := w.AfterFunc(d, func() {
					if e.Clock().Now() < due {
						early.Add(1)
					}
					pending.Done()
				})
				if rand.IntN(4) == 0 && timer.Stop() {
					pending.Done()
				}
				if rand.IntN(10) == 0 {
					time.Sleep(100 * time.Microsecond)
					w.Stats()
				}
			}
		})
	}
	adding.Wait()
	pending.Wait()
	close(stop)
	suspends.Wait()
	require.Zero(t, early.Load())
	require.Zero(t, w.Len())
	require.Positive(t, w.Stats().Suspended)
}

// A step of the wall clock alone, forward or back, counts as nothing. The next reading of the
// clock finds it, without a notice: deadlines are right by the wall clock again.
func TestStepIsNoSuspend(t *testing.T) {
	for _, step := range []time.Duration{8 * time.Hour, -3 * time.Hour, time.Second, -time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			w, e := suspendable(t)
			timer := w.AfterFunc(time.Hour, func() {})
			near := func() {
				t.Helper()
				at, ok := timer.Deadline()
				require.True(t, ok)
				tolerance := float64(min(step.Abs()/2, time.Minute)) // of a loaded machine, but less than the step
				require.InDelta(t, time.Hour, time.Until(at), float64(time.Minute))
				require.InDelta(t, 0, time.Until(at.Round(0))-time.Until(at), tolerance, "by the wall clock")
			}
			near()
			e.StepWallClock(step)
			w.Schedule(time.Hour, func() {})
			near()
			wallclocktest.Notify(t)
			near()
			require.Zero(t, w.Stats().Suspended)
		})
	}
}

// A step moves no timer of a wheel that counts no suspends either, and no deadline.
func TestStepMovesNoTimer(t *testing.T) {
	for _, step := range []time.Duration{8 * time.Hour, -3 * time.Hour} {
		w := timingwheel.New()
		t.Cleanup(func() { w.Stop() })
		far := w.AfterFunc(time.Hour, func() {})
		(*engine.Engine)(w).StepWallClock(step)
		near := make(chan struct{})
		w.AfterFunc(20*time.Millisecond, func() { close(near) })
		select {
		case <-near:
		case <-time.After(time.Minute):
			t.Fatal("the next timer does not fire")
		}
		at, ok := far.Deadline()
		require.True(t, ok, "it has fired")
		require.InDelta(t, time.Hour, time.Until(at), float64(time.Minute))
	}
}

// A notice sets the start anew even if nobody reads the clock.
func TestNoticeOfAStep(t *testing.T) {
	for _, step := range []time.Duration{8 * time.Hour, -3 * time.Hour} {
		w, e := suspendable(t)
		timer := w.AfterFunc(time.Hour, func() {})
		e.StepWallClock(step)
		wallclocktest.Notify(t)
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			at, _ := timer.Deadline()
			if off := time.Until(at.Round(0)) - time.Until(at); off.Abs() < time.Minute {
				break
			}
			require.Less(t, time.Since(start), time.Minute, "nobody was told")
		}
		require.Zero(t, w.Stats().Suspended)
	}
}

// Stop gives the descriptor back, and so does the garbage collector for a wheel that was
// forgotten.
func TestSuspendableWheelsLeakNothing(t *testing.T) {
	for range 10 {
		w := timingwheel.New(timingwheel.WithSuspendedTime())
		require.Len(t, wallclocktest.Notices(t), 1)
		w.AfterFunc(time.Millisecond, func() {})
		w.Sleep(5 * time.Millisecond)
	}
	for deadline := time.Now().Add(30 * time.Second); len(wallclocktest.Notices(t)) > 0; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "a descriptor is left")
		runtime.GC()
	}
	w, _ := suspendable(t)
	require.Len(t, wallclocktest.Notices(t), 1)
	w.Stop()
	for len(wallclocktest.Notices(t)) > 0 {
		runtime.Gosched()
	}
}
