package timingwheel_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// inBubbles runs a test in a bubble that is moved to a date, for dates of all kinds: that with which
// a bubble begins, one near the present and so near the start of a wheel, and others on both sides.
func inBubbles(t *testing.T, test func(t *testing.T, inBubble func(f func(t *testing.T)))) {
	now := time.Now().Truncate(time.Second) // since some schedules are for whole seconds
	dates := map[string]time.Time{"begin": {}, "now": now.Add(time.Second), "in an hour": now.Add(time.Hour)}
	for _, year := range []int{2010, 2020, 2030, 2040, 2060, 2150, 2200} {
		dates[strconv.Itoa(year)] = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for name, date := range dates {
		t.Run(name, func(t *testing.T) {
			test(t, func(f func(t *testing.T)) {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Until(date))
					f(t)
				})
			})
		})
	}
}

// A wheel made outside runs by the bubble's clock the tasks that are started in the bubble.
func TestOuterWheelInABubble(t *testing.T) { inBubbles(t, outerWheelInABubble) }

func outerWheelInABubble(t *testing.T, inBubble func(func(t *testing.T))) {
	w := timingwheel.New()
	defer w.Stop()
	outside := w.AfterFunc(time.Hour, func() {})
	inBubble(func(t *testing.T) {
		start := time.Now()
		w.Sleep(time.Hour)
		require.Equal(t, time.Hour, time.Since(start))
		<-w.After(time.Minute)
		require.Equal(t, time.Hour+time.Minute, time.Since(start))

		fired := make(chan time.Duration, 10)
		note := func() { fired <- time.Since(start) }
		start = time.Now()
		timer := w.AfterFunc(time.Second, note)
		require.True(t, timer.Reset(3*time.Second))
		timeout, err := w.Schedule(2*time.Second, note)
		require.NoError(t, err)
		canceled, err := w.ScheduleAt(start.Add(time.Second), note)
		require.NoError(t, err)
		require.True(t, canceled.Cancel())
		require.True(t, timeout.Reset(4*time.Second))
		require.Equal(t, 3*time.Second, <-fired)
		require.Equal(t, 4*time.Second, <-fired)
		require.False(t, timeout.Cancel())

		ticker := w.NewTicker(time.Second)
		<-ticker.C
		<-ticker.C
		require.Equal(t, 6*time.Second, time.Since(start))
		ticker.Stop()

		ctx, cancel := w.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, context.DeadlineExceeded, ctx.Err())
		require.Equal(t, 66*time.Second, time.Since(start))

		keyed := timingwheel.NewKeyed[int](w)
		_, err = keyed.Schedule(1, time.Second, note)
		require.NoError(t, err)
		require.Equal(t, 67*time.Second, <-fired)
		job, err := w.ScheduleAtFixedRate(0, time.Second, note)
		require.NoError(t, err)
		<-fired
		require.Equal(t, 68*time.Second, <-fired)
		require.True(t, job.Stop())
		require.PanicsWithValue(t, setInABubble, func() { outside.Reset(time.Hour) })
	})
	require.Equal(t, 1, w.Len())
	require.True(t, outside.Stop())
}

// A wheel that accepts no more outside accepts no more in a bubble.
func TestOuterWheelAfterShutdownInABubble(t *testing.T) {
	w := timingwheel.New()
	require.NoError(t, w.Shutdown(t.Context()))
	synctest.Test(t, func(t *testing.T) {
		_, err := w.Schedule(time.Second, func() { t.Error("ran though refused") })
		require.ErrorIs(t, err, timingwheel.ErrStopped)
		start := time.Now()
		w.Sleep(time.Second)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// Every kind of clock tells a bubble that has the present date, also the wheel of the process.
func TestEveryClockInABubbleOfThePresent(t *testing.T) {
	for name, w := range map[string]*timingwheel.TimingWheel{
		"default": timingwheel.Default(),
		"suspend": timingwheel.New(timingwheel.WithSuspendedTime()),
		"precise": timingwheel.New(timingwheel.WithPreciseWakeups()),
		"coarse":  timingwheel.New(timingwheel.WithTick(time.Hour)),
	} {
		t.Run(name, func(t *testing.T) {
			for _, ahead := range []time.Duration{0, time.Microsecond, time.Millisecond, time.Second} {
				timer := w.AfterFunc(time.Hour, noop)
				date := time.Now().Add(ahead)
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Until(date))
					start := time.Now()
					w.Sleep(2 * time.Hour)
					require.Equal(t, 2*time.Hour, time.Since(start).Truncate(time.Hour))
					ctx, cancel := w.WithDeadline(t.Context(), time.Now().Add(time.Hour))
					defer cancel()
					<-ctx.Done()
					require.PanicsWithValue(t, setInABubble, func() { timer.Reset(time.Hour) })
				})
				require.True(t, timer.Stop())
				require.Zero(t, w.Len())
			}
			if w != timingwheel.Default() {
				w.Stop()
			}
		})
	}
}

const (
	setInABubble     = "timingwheel: what was made outside of this testing/synctest bubble is set in it: make it in the bubble"
	stoppedInABubble = "timingwheel: a wheel that was made outside of this testing/synctest bubble is driven or stopped in it: do that outside, or make the wheel in the bubble"
	usedOutside      = "timingwheel: the wheel was made in a testing/synctest bubble and is used outside of it: make another one outside"
)

// Every kind of timer that is made in a bubble on an outer wheel belongs to the bubble.
func TestEveryKindOnAnOuterWheelInABubble(t *testing.T) {
	inBubbles(t, everyKindOnAnOuterWheelInABubble)
}

func everyKindOnAnOuterWheelInABubble(t *testing.T, inBubble func(func(t *testing.T))) {
	w := timingwheel.New()
	defer w.Stop()
	inBubble(func(t *testing.T) {
		start := time.Now()
		fired := make(chan time.Duration, 10)
		note := func() { fired <- time.Since(start) }

		group := timingwheel.NewGroup(w)
		_, err := group.Schedule(time.Second, note)
		require.NoError(t, err)
		require.True(t, group.AfterFunc(time.Second, note).Reset(2*time.Second))
		group.AfterFunc(time.Hour, note)
		require.Equal(t, time.Second, <-fired)
		require.Equal(t, 2*time.Second, <-fired)
		require.Equal(t, 1, group.Len())
		require.NoError(t, group.StopWait(t.Context()))

		future, err := timingwheel.Submit(w, time.Second, func(context.Context) (time.Duration, error) {
			time.Sleep(time.Second)
			return time.Since(start), nil
		})
		require.NoError(t, err)
		took, err := future.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, took)

		timeouts, err := w.ScheduleBatch(nil, []timingwheel.Delayed{{After: 3 * time.Second, Func: note}, {After: time.Second, Func: note}, {After: time.Second, Func: note}})
		require.NoError(t, err)
		require.True(t, timeouts[1].Cancel())
		require.Equal(t, 5*time.Second, <-fired)
		require.Equal(t, 7*time.Second, <-fired)

		ticker := w.NewTicker(time.Hour)
		ticker.Reset(time.Second)
		require.Equal(t, 8*time.Second, (<-ticker.C).Sub(start))
		ticker.Stop()

		job, err := w.ScheduleWithFixedDelay(time.Hour, time.Hour, note)
		require.NoError(t, err)
		require.True(t, job.Reset(time.Second))
		require.Equal(t, 9*time.Second, <-fired)
		require.True(t, job.Stop())

		daily, err := w.ScheduleFunc(everySecond{}, note)
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, <-fired)
		require.True(t, daily.Stop())
	})
	require.Zero(t, w.Len())
}

// Timers that were made outside can be stopped and queried in a bubble, but not set. The wheel
// cannot be stopped there.
func TestOuterThingsInABubble(t *testing.T) { inBubbles(t, outerThingsInABubble) }

func outerThingsInABubble(t *testing.T, inBubble func(func(t *testing.T))) {
	w := timingwheel.New()
	defer w.Stop()
	timer, channel, ticker := w.AfterFunc(time.Hour, noop), w.NewTimer(time.Hour), w.NewTicker(time.Hour)
	timeout, err := w.Schedule(time.Hour, noop)
	require.NoError(t, err)
	job := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, noop))
	group, keyed := timingwheel.NewGroup(w), timingwheel.NewKeyed[int](w)
	grouped := group.AfterFunc(time.Hour, noop)
	_, err = keyed.Schedule(1, time.Hour, noop)
	require.NoError(t, err)
	future, err := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
	require.NoError(t, err)
	ctx, cancel := w.WithTimeout(context.Background(), time.Hour)
	inBubble(func(t *testing.T) {
		for name, set := range map[string]func(){
			"timer":          func() { timer.Reset(time.Second) },
			"channel":        func() { channel.Reset(time.Second) },
			"ticker":         func() { ticker.Reset(time.Second) },
			"timeout":        func() { timeout.Reset(time.Second) },
			"job":            func() { job.Reset(time.Second) },
			"grouped":        func() { grouped.Reset(time.Second) },
			"group":          func() { group.AfterFunc(time.Second, noop) },
			"group schedule": func() { group.Schedule(time.Second, noop) },
			"keyed":          func() { keyed.Schedule(1, time.Second, noop) },
			"keyed reset":    func() { keyed.Reset(1, time.Second) },
		} {
			require.PanicsWithValue(t, setInABubble, set, name)
		}
		require.PanicsWithValue(t, stoppedInABubble, func() { w.Stop() })
		require.PanicsWithValue(t, stoppedInABubble, func() { w.Shutdown(t.Context()) })
		w.AfterFunc(time.Hour, noop)
		require.Equal(t, 9, w.Len())
		require.EqualValues(t, 9, w.Stats().Pending)
		require.EqualValues(t, 9, w.Snapshot(3).Pending)

		require.True(t, timer.Stop())
		require.True(t, channel.Stop())
		ticker.Stop()
		require.True(t, timeout.Cancel())
		require.True(t, job.Stop())
		require.NoError(t, group.StopWait(t.Context()))
		require.True(t, keyed.Cancel(1))
		require.True(t, future.Cancel())
		cancel()
	})
	require.NoError(t, group.StopWait(t.Context()))
	require.Error(t, ctx.Err())
	require.Zero(t, w.Len())
	w.Sleep(time.Millisecond) // it still runs
}

// A wheel that is driven by hand is driven where it was made.
func TestManualDriveInTheOtherPlace(t *testing.T) { inBubbles(t, manualDriveInTheOtherPlace) }

func manualDriveInTheOtherPlace(t *testing.T, inBubble func(func(t *testing.T))) {
	w := timingwheel.New(timingwheel.WithManualDrive())
	defer w.Stop()
	var inner *timingwheel.TimingWheel
	inBubble(func(t *testing.T) {
		require.PanicsWithValue(t, stoppedInABubble, func() { w.Drive(0) })
		require.PanicsWithValue(t, "timingwheel: the wheel with WithManualDrive was made outside of this testing/synctest bubble: make it in the bubble",
			func() { w.AfterFunc(time.Second, noop) })
		inner = timingwheel.New(timingwheel.WithManualDrive())
		inner.AfterFunc(time.Second, noop)
	})
	require.PanicsWithValue(t, usedOutside, func() { inner.Drive(0) })
}

func TestStopWaitInABubbleForAFunctionOutside(t *testing.T) {
	inBubbles(t, stopWaitInABubbleForAFunctionOutside)
}

func stopWaitInABubbleForAFunctionOutside(t *testing.T, inBubble func(func(t *testing.T))) {
	w := timingwheel.New()
	defer w.Stop()
	group := timingwheel.NewGroup(w)
	began, end := make(chan int), make(chan int)
	_, err := group.Schedule(0, func() { close(began); <-end })
	require.NoError(t, err)
	<-began
	inBubble(func(t *testing.T) {
		require.PanicsWithValue(t, "timingwheel: Group.StopWait in this testing/synctest bubble waits for a function outside: make the group in the bubble, or wait outside",
			func() { group.StopWait(t.Context()) })
	})
	close(end)
	require.NoError(t, group.StopWait(t.Context()))
}

// Timers that were made in a bubble work outside, or panic with a message of this package. Without
// that check, each call that panics here would end the process.
func TestInnerThingsOutsideOfTheirBubble(t *testing.T) { inBubbles(t, innerThingsOutsideOfTheirBubble) }

func innerThingsOutsideOfTheirBubble(t *testing.T, inBubble func(func(t *testing.T))) {
	for _, stopped := range []bool{false, true} {
		var works, panics []func()
		inBubble(func(t *testing.T) {
			w := timingwheel.New()
			timer, channel, ticker := w.AfterFunc(time.Hour, noop), w.NewTimer(time.Hour), w.NewTicker(time.Hour)
			timeout, _ := w.Schedule(time.Hour, noop)
			job := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, noop))
			group, keyed := timingwheel.NewGroup(w), timingwheel.NewKeyed[int](w)
			group.AfterFunc(time.Hour, noop)
			keyed.Schedule(1, time.Hour, noop)
			future, _ := timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
			plain, cancelPlain := w.WithTimeout(context.Background(), time.Hour)
			asked, cancelAsked := w.WithTimeout(context.Background(), time.Hour)
			below, cancelBelow := w.WithTimeout(t.Context(), time.Hour)
			ended, cancelEnded := w.WithTimeout(context.Background(), time.Second)
			asked.Done()
			below.Done()
			<-ended.Done()
			if stopped {
				w.Stop()
			}
			works = []func(){
				func() { timer.Stop() }, func() { timeout.Cancel() }, func() { group.Stop() }, func() { group.StopWait(context.Background()) },
				func() { keyed.Cancel(1) }, func() { w.Len() }, func() { w.Stats() }, func() { w.Snapshot(1) }, cancelEnded,
				func() { plain.Deadline() }, func() { job.Err() }, func() { timer.Deadline() }, func() { channel.Deadline() },
			}
			panics = []func(){
				func() { channel.Stop() }, func() { channel.Reset(1) }, ticker.Stop, func() { ticker.Reset(1) },
				func() { job.Stop() }, func() { job.Reset(1) }, func() { future.Cancel() }, func() { future.Wait(context.Background()) },
				cancelPlain, cancelAsked, cancelBelow,
				func() { group.AfterFunc(1, noop) }, func() { keyed.Schedule(1, 1, noop) }, func() { timingwheel.NewGroup(w) }, func() { timingwheel.NewKeyed[int](w) },
				func() { timingwheel.Submit(w, 1, func(context.Context) (int, error) { return 0, nil }) },
				func() { w.ScheduleBatch(nil, []timingwheel.Delayed{{After: 1, Func: noop}}) }, func() { w.NewTicker(1) },
				func() { w.Stop() }, func() { w.Shutdown(context.Background()) },
			}
		})
		for _, f := range works {
			require.NotPanics(t, f)
		}
		for i, f := range panics {
			require.PanicsWithValue(t, usedOutside, f, i)
		}
	}
}

func TestInnerWheelOutsideOfItsBubble(t *testing.T) { inBubbles(t, innerWheelOutsideOfItsBubble) }

func innerWheelOutsideOfItsBubble(t *testing.T, inBubble func(func(t *testing.T))) {
	var w *timingwheel.TimingWheel
	var timer *timingwheel.Timer
	inBubble(func(*testing.T) {
		w = timingwheel.New()
		timer = w.AfterFunc(time.Hour, func() {})
	})
	require.PanicsWithValue(t, usedOutside, func() { w.AfterFunc(time.Second, func() {}) })
	require.PanicsWithValue(t, usedOutside, func() { w.Sleep(time.Second) })
	require.PanicsWithValue(t, usedOutside, func() { w.WithTimeout(t.Context(), time.Second) })
	require.PanicsWithValue(t, usedOutside, func() { timer.Reset(time.Second) })
	require.PanicsWithValue(t, usedOutside, func() { w.Stop() })
	require.True(t, timer.Stop())
}
