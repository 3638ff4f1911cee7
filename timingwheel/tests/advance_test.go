package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endOfClock is where a manual clock ends.
const endOfClock = time.Duration(math.MaxInt64 - 1)

// Each function runs at its own time, in order, also those that others schedule.
func TestAdvance(t *testing.T) {
	w := virtual()
	defer w.Stop()
	require.Equal(t, moonLanding, w.Now())
	var ran []time.Duration
	note := func() { ran = append(ran, w.Now().Sub(moonLanding)) }
	for _, d := range []time.Duration{time.Hour, 0, 3 * second, 24 * time.Hour, msec / 2} {
		w.Schedule(d, note)
	}
	w.Schedule(second, func() {
		note()
		w.Schedule(-1, note)
		w.Schedule(second, note)
		w.Schedule(48*time.Hour, note)
	})
	require.Zero(t, ran, "nothing runs but in Advance")
	require.Equal(t, 1, w.Advance(0), "what is due now")
	require.Equal(t, []time.Duration{0}, ran)
	require.Equal(t, 5, w.Advance(3*second))
	require.Equal(t, []time.Duration{0, msec, second, second, 2 * second, 3 * second}, ran)
	require.Equal(t, moonLanding.Add(3*second), w.Now())
	ran = nil
	require.Equal(t, 1, w.Advance(24*time.Hour-3*second-1))
	require.Equal(t, 1, w.Advance(1))
	require.Equal(t, []time.Duration{time.Hour, 24 * time.Hour}, ran)
	verify(t, w)
	require.Zero(t, w.Advance(24*time.Hour))
	require.Equal(t, 1, w.Advance(math.MaxInt64), "saturates")
	require.Equal(t, moonLanding.Add(endOfClock), w.Now())
	w.Schedule(0, note)
	require.Equal(t, 1, w.Advance(0), "the clock has ended")
	require.Zero(t, w.Stats().Lateness.Max, "nothing was late")
	require.Equal(t, endOfClock, w.Stats().Now)
	verify(t, w)
}

func TestAdvanceThatMakesNoSense(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualDrive())
	defer w.Stop()
	require.PanicsWithValue(t, "timingwheel: Advance: the wheel was made without WithManualClock", func() { w.Advance(0) })
	require.WithinDuration(t, time.Now(), w.Now(), time.Minute)
	w = virtual()
	require.PanicsWithValue(t, "timingwheel: Advance(-1ns): negative", func() { w.Advance(-1) })
	require.PanicsWithValue(t, "timingwheel: Drive: the wheel was made without WithManualDrive", func() { w.Drive(0) })
	for _, opts := range [][]timingwheel.Option{
		{timingwheel.WithManualClock(moonLanding), timingwheel.WithManualDrive()}, {timingwheel.WithManualDrive(), timingwheel.WithManualClock(moonLanding)},
	} {
		require.PanicsWithValue(t, "timingwheel: New: WithManualDrive excludes WithManualClock", func() { timingwheel.New(opts...) })
	}
	require.Len(t, append(w.Stop(), w.Stop()...), 0)
	require.Zero(t, w.Advance(time.Hour), "a stopped wheel")
	require.Equal(t, moonLanding, w.Now())
	for _, start := range []time.Time{{}, time.Now(), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
		w := timingwheel.New(timingwheel.WithManualClock(start), timingwheel.WithPreciseWakeups())
		require.Equal(t, start.Round(0), w.Now())
		ran := false
		w.ScheduleAt(start.Add(time.Hour), func() { ran = true })
		w.Advance(time.Hour)
		require.True(t, ran)
		require.False(t, w.Stats().Precise)
		w.Stop()
	}
}

// Channels, tickers, contexts, futures, keys and jobs follow the virtual clock.
func TestAllFollowTheManualClock(t *testing.T) {
	w := virtual()
	defer w.Stop()
	timer, after, ticker := w.NewTimer(time.Hour), w.After(2*time.Hour), w.NewTicker(time.Hour)
	ctx, cancel := w.WithTimeout(t.Context(), 90*time.Minute)
	defer cancel()
	at, ok := ctx.Deadline()
	require.True(t, ok)
	require.Equal(t, moonLanding.Add(90*time.Minute), at)
	require.Contains(t, ctx.(interface{ String() string }).String(), "[1h30m0s]")
	at, _ = timer.Deadline()
	require.Equal(t, moonLanding.Add(time.Hour), at)
	future, err := timingwheel.Submit(w, time.Hour, func(context.Context) (time.Time, error) { return w.Now(), nil })
	require.NoError(t, err)
	k := timingwheel.NewKeyed[string](w)
	var expired time.Time
	k.Schedule("key", time.Hour, func() { expired = w.Now() })
	at, _ = k.Deadline("key")
	require.Equal(t, moonLanding.Add(time.Hour), at)
	var runs []time.Duration
	job := mustJob(t)(w.ScheduleAtFixedRate(0, 20*time.Minute, func() { runs = append(runs, w.Now().Sub(moonLanding)) }))
	next, _ := job.Next()
	require.Equal(t, moonLanding, next)

	w.Advance(time.Hour)
	require.Equal(t, moonLanding.Add(time.Hour), <-timer.C)
	require.Equal(t, moonLanding.Add(time.Hour), <-ticker.C)
	require.Equal(t, []time.Duration{0, 20 * time.Minute, 40 * time.Minute, time.Hour}, runs)
	require.Equal(t, moonLanding.Add(time.Hour), expired)
	value, err := future.Wait(t.Context())
	require.NoError(t, err)
	require.Equal(t, moonLanding.Add(time.Hour), value)
	require.NoError(t, ctx.Err())

	done := ctx.Done()
	w.Advance(time.Hour)
	require.Equal(t, context.DeadlineExceeded, ctx.Err())
	<-done
	require.Equal(t, moonLanding.Add(2*time.Hour), <-after)
	require.True(t, job.Stop())
	require.False(t, timer.Reset(time.Minute))
	w.Advance(time.Minute)
	require.Equal(t, moonLanding.Add(2*time.Hour+time.Minute), <-timer.C)
	past, cancel := w.WithDeadline(t.Context(), w.Now())
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, past.Err())
	soon, cancel := w.WithDeadline(t.Context(), w.Now().Add(time.Nanosecond))
	defer cancel()
	require.NoError(t, soon.Err())
}

// A job at midnight runs 366 times in a leap year, each time at midnight.
func TestCalendarFollowsTheManualClock(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualClock(time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)), timingwheel.WithTick(second))
	defer w.Stop()
	var days []time.Time
	job := mustJob(t)(w.ScheduleFunc(midnight{}, func() { days = append(days, w.Now()) }))
	w.Advance(366 * 24 * time.Hour)
	require.Len(t, days, 366)
	for i, at := range days {
		require.Equal(t, time.Date(2024, 1, 2+i, 0, 0, 0, 0, time.UTC), at)
	}
	require.EqualValues(t, 366, w.Stats().Expired, "it looks at the calendar no more often than it runs")
	next, ok := job.Next()
	require.True(t, ok)
	require.Equal(t, time.Date(2025, 1, 2, 0, 0, 0, 0, time.UTC), next)
}

type valueKey struct{}

type midnight struct{}

func (midnight) Next(prev time.Time) time.Time {
	return time.Date(prev.Year(), prev.Month(), prev.Day()+1, 0, 0, 0, 0, prev.Location())
}

// A deadline in real time and one in virtual time do not hide each other; two in virtual
// time are compared.
func TestParentsOfAManualClock(t *testing.T) {
	w := timingwheel.New(timingwheel.WithManualClock(time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)))
	defer w.Stop()
	realTime, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ctx, cancel := w.WithTimeout(realTime, second)
	defer cancel()
	derived := context.WithValue(ctx, valueKey{}, "value")
	child, cancel := w.WithTimeout(derived, time.Minute)
	defer cancel()
	at, _ := child.Deadline()
	require.Equal(t, w.Now().Add(second), at, "the parent's is earlier")
	sooner, cancel := w.WithTimeout(derived, msec)
	defer cancel()
	w.Advance(msec)
	require.Equal(t, context.DeadlineExceeded, sooner.Err())
	require.NoError(t, child.Err())
	w.Advance(second)
	require.Equal(t, context.DeadlineExceeded, ctx.Err())
	<-child.Done()
	require.NoError(t, realTime.Err())
	require.Nil(t, ctx.Value(valueKey{}))
	require.Equal(t, "value", child.Value(valueKey{}))
}

// The same holds below a context of package context whose deadline is the earlier of the two, on a
// wheel in real time, and on a wheel in another virtual time.
func TestDeadlinesOfDifferentClocks(t *testing.T) {
	start := map[bool]time.Time{true: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC), false: moonLanding}
	ended := func(ctx context.Context, cancel context.CancelFunc) bool {
		defer cancel()
		return ctx.Err() != nil
	}
	for future := range start {
		w := timingwheel.New(timingwheel.WithManualClock(start[future]))
		defer w.Stop()
		long, cancel := w.WithTimeout(t.Context(), 10*time.Hour)
		defer cancel()
		between, cancel := context.WithTimeout(long, 30*time.Minute) // in 2300 real time is the earlier
		defer cancel()
		child, cancel := w.WithTimeout(between, time.Minute)
		w.Advance(2 * time.Minute)
		require.True(t, ended(child, cancel), future)

		other := timingwheel.New(timingwheel.WithManualClock(start[future].Add(20 * time.Hour)))
		defer other.Stop()
		onOther, cancelOnOther := other.WithTimeout(long, time.Minute)
		other.Advance(time.Minute)
		require.True(t, ended(onOther, cancelOnOther), future)

		realTime := timingwheel.New()
		defer realTime.Stop()
		for _, parent := range []context.Context{long, between} {
			ctx, cancel := realTime.WithTimeout(parent, msec)
			at, _ := ctx.Deadline()
			require.WithinDuration(t, time.Now(), at, time.Hour)
			<-ctx.Done()
			cancel()
		}
		require.NoError(t, long.Err())
	}
}

// A stopped wheel's time has ended: what waits for it ends at once, and so does what comes
// later.
func TestEndOfAManualClock(t *testing.T) {
	for name, end := range map[string]func(w *timingwheel.TimingWheel){
		"Stop":     func(w *timingwheel.TimingWheel) { w.Stop() },
		"Shutdown": func(w *timingwheel.TimingWheel) { require.NoError(t, w.Shutdown(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			w := virtual()
			w.Advance(second)
			now := moonLanding.Add(second)
			timer, ticker := w.NewTimer(time.Hour), w.NewTicker(time.Hour)
			ctx, cancel := w.WithTimeoutCause(t.Context(), time.Hour, errCause)
			defer cancel()
			done := ctx.Done()
			slept := make(chan error, 1)
			go func() { slept <- w.SleepContext(t.Context(), time.Hour) }()
			for w.Len() < 4 {
				runtime.Gosched()
			}
			end(w)
			require.NoError(t, <-slept)
			require.Equal(t, now, <-timer.C)
			require.Equal(t, context.Canceled, ctx.Err())
			require.Equal(t, timingwheel.ErrStopped, context.Cause(ctx))
			<-done
			require.Empty(t, ticker.C)

			timer.Reset(time.Hour)
			require.Equal(t, now, <-timer.C)
			require.Equal(t, now, <-w.After(time.Hour))
			w.Sleep(time.Hour)
			_, ok := timer.Deadline()
			require.False(t, ok)
			timer.Reset(time.Hour)
			require.True(t, timer.Stop(), "it takes the value back")
			later, cancel := w.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			require.Equal(t, context.Canceled, later.Err())
			require.Equal(t, timingwheel.ErrStopped, context.Cause(later))
			require.Zero(t, w.Len())
		})
	}
}

// The clock stays at the function that panics, ends the goroutine or stops the wheel.
func TestAdvanceThatIsCutShort(t *testing.T) {
	w := virtual()
	var ran []time.Duration
	note := func() { ran = append(ran, w.Now().Sub(moonLanding)) }
	for _, f := range []func(){func() { panic("the task's") }, note, runtime.Goexit, note} {
		w.Schedule(second, f)
	}
	w.Schedule(2*second, func() { note(); w.Stop() })
	w.Schedule(2*second, note)
	w.Schedule(3*second, note)
	require.PanicsWithValue(t, "the task's", func() { w.Advance(time.Hour) })
	require.Equal(t, moonLanding.Add(second), w.Now())
	var goexit sync.WaitGroup
	goexit.Go(func() { w.Advance(time.Hour) })
	goexit.Wait()
	require.Equal(t, moonLanding.Add(second), w.Now())
	w.Advance(time.Hour)
	require.Equal(t, []time.Duration{second, second, 2 * second, 2 * second}, ran)
	require.Equal(t, moonLanding.Add(2*second), w.Now(), "the wheel was stopped then")
	require.Zero(t, w.Advance(time.Hour))
}

// Goroutines that use the wheel as its clock goes on: nothing is early by the wheel's clock,
// nothing is lost, nobody hangs.
func TestAdvanceRaces(t *testing.T) {
	for _, executor := range []func() timingwheel.Executor{timingwheel.Inline, timingwheel.Goroutines, func() timingwheel.Executor { return newPool(2, 1000, fullCallerRuns) }} {
		w := timingwheel.New(timingwheel.WithManualClock(moonLanding), timingwheel.WithExecutor(executor()), timingwheel.WithShards(4))
		var accepted, ran atomic.Int64
		var users sync.WaitGroup
		for i := range 4 {
			r := rand.New(rand.NewPCG(uint64(i), 0))
			users.Go(func() {
				for range 500 {
					due := w.Now().Add(time.Duration(r.IntN(100)) * msec)
					_, err := w.ScheduleAt(due, func() {
						if w.Now().Before(due) {
							t.Error("early")
						}
						ran.Add(1)
					})
					if err == nil {
						accepted.Add(1)
					}
					switch r.IntN(20) {
					case 0:
						w.Sleep(5 * msec)
					case 1:
						ctx, cancel := w.WithTimeout(t.Context(), 5*msec)
						<-ctx.Done()
						cancel()
					}
				}
			})
		}
		over := make(chan struct{})
		var advancers sync.WaitGroup
		for range 2 {
			advancers.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
						w.Advance(msec)
						runtime.Gosched()
					}
				}
			})
		}
		users.Wait()
		for w.Len() > 0 {
			runtime.Gosched()
		}
		close(over)
		advancers.Wait()
		w.Stop()
		require.NoError(t, w.Shutdown(t.Context()))
		require.Equal(t, accepted.Load(), ran.Load())
	}
}

// At the end of the clock no task is armed again, even if it arms itself, so that Advance returns.
// Tasks that would be due later stay pending.
func TestAdvanceToTheEndOfTheClock(t *testing.T) {
	for _, tick := range []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Hour} {
		w := virtual(timingwheel.WithTick(tick))
		const century = 100 * 365 * 24 * time.Hour
		ticker := w.NewTicker(century)
		runs, resets, chain := 0, 0, 0
		mustJob(t)(w.ScheduleAtFixedRate(century, century, func() { runs++ }))
		var timer *timingwheel.Timer
		timer = w.AfterFunc(century, func() { resets++; timer.Reset(century) })
		var next func()
		next = func() { chain++; w.Schedule(century, next) }
		next()
		never, _ := w.Schedule(math.MaxInt64, mustNotRun)
		returned := make(chan int)
		go func() { returned <- w.Advance(math.MaxInt64) }()
		select {
		case handed := <-returned:
			require.Equal(t, 6, handed)
		case <-time.After(time.Minute):
			t.Fatal("Advance does not return")
		}
		require.Equal(t, []int{2, 2, 3}, []int{runs, resets, chain})
		require.Equal(t, endOfClock, w.Now().Sub(moonLanding))
		require.Len(t, ticker.C, 1)
		require.Equal(t, 5, w.Len())
		verify(t, w)
		require.Zero(t, w.Advance(math.MaxInt64))
		w.Schedule(1, mustNotRun)
		require.Zero(t, w.Advance(0))
		require.True(t, timer.Reset(0))
		require.Equal(t, 1, w.Advance(0))
		require.True(t, never.Cancel())
		require.Len(t, w.Stop(), 3)
	}
}
