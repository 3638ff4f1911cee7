package timingwheel

import (
	"bytes"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// notices takes the place of wallclock.Watch, and gives a notice when a test says so.
type notices struct {
	f        atomic.Pointer[func(error)] // nil: nobody watches
	watches  atomic.Int64                // begun
	refusing bool
}

func (n *notices) giveTo(w *TimingWheel) {
	w.attachment().calendarJobs.watch = func(f func(error)) (stop func(), err error) {
		if n.refusing {
			return nil, errors.New("refused")
		}
		n.f.Store(&f)
		n.watches.Add(1)
		return func() { n.f.Store(nil) }, nil
	}
}

func (n *notices) give(err error) {
	if f := n.f.Load(); f != nil {
		(*f)(err)
	}
}

// hourly is the Scheduler of a job at each full hour.
var hourly = schedulerFunc(func(prev time.Time) time.Time { return prev.Truncate(time.Hour).Add(time.Hour) })

// inWall is a job bubble in which the wall clock is step ahead of the bubble's.
func inWall(t *testing.T, f func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices), opts ...Option) {
	jobBubble(t, func(t *testing.T, w *TimingWheel, log *timeLog) {
		step, notice := new(atomic.Int64), new(notices)
		w.attachment().wall = func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
		notice.giveTo(w)
		f(t, w, log, step, notice)
	}, opts...)
}

// A daily job wakes nobody up before its time. Without a notice it does so once a minute.
func TestWakeupsOfADailyJob(t *testing.T) {
	for _, hasNotice := range []bool{false, true} {
		inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, _ *atomic.Int64, notice *notices) {
			notice.refusing = !hasNotice
			daily := schedulerFunc(func(prev time.Time) time.Time { return prev.Truncate(24 * time.Hour).Add(24 * time.Hour) })
			mustJob(t)(w.ScheduleFunc(daily, log.note))
			time.Sleep(10 * time.Hour) // at midnight it is in a coarse bucket, which has its own wake-ups
			before := w.Stats().Wakeups
			time.Sleep(time.Hour)
			wakeups := w.Stats().Wakeups - before
			t.Logf("notice: %v, wake-ups in an hour: %d", hasNotice, wakeups)
			if hasNotice {
				require.Zero(t, wakeups)
			} else {
				require.GreaterOrEqual(t, wakeups, int64(60))
			}
			time.Sleep(13 * time.Hour)
			synctest.Wait()
			require.Equal(t, []time.Duration{24 * time.Hour}, log.take())
			w.Stop()
		})
	}
}

// A job learns of each step of the clock at once, forward and back.
func TestCalendarFollowsANotice(t *testing.T) {
	inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
		job := mustJob(t)(w.ScheduleFunc(hourly, log.note))
		set := func(to time.Duration) {
			step.Store(int64(to))
			notice.give(nil)
			synctest.Wait()
		}
		time.Sleep(10*time.Minute + second/2)
		set(50 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{10*time.Minute + second/2}, log.take())
		next, _ := job.Next()
		require.Equal(t, log.start.Add(2*time.Hour), next)

		set(-30 * time.Minute) // it is 10 minutes before midnight now
		time.Sleep(2*time.Hour + 19*time.Minute)
		require.Empty(t, log.take())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{150 * time.Minute}, log.take(), "at two o'clock by the wall")

		set(7 * 24 * time.Hour) // a week is skipped; the next hour is not
		require.Len(t, log.take(), 1)
		require.EqualValues(t, 3, job.Runs())
	})
}

// All jobs learn of it, and all look at the clock when the watch has ended.
func TestAllCalendarJobsFollowANotice(t *testing.T) {
	for _, end := range []error{nil, errors.New("ended")} {
		inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
			const jobs = 20
			for range jobs {
				mustJob(t)(w.ScheduleFunc(hourly, log.note))
			}
			time.Sleep(second)
			step.Store(int64(2 * time.Hour))
			notice.give(end)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, log.take(), jobs)
		}, WithShards(4))
	}
}

// A notice is not lost that comes while a job reckons how long to wait.
func TestNoticeWhileAJobIsArmed(t *testing.T) {
	w := New()
	defer w.Stop()
	var notice notices
	notice.giveTo(w)
	var step, looks atomic.Int64
	w.attachment().wall = func() time.Time {
		now := time.Now().Add(time.Duration(step.Load()))
		if looks.Add(1) == 2 {
			step.Store(int64(2 * time.Hour))
			go notice.give(nil)
			waitForCallers(t, 1)
		}
		return now
	}
	ran := make(chan bool, 10)
	mustJob(t)(w.ScheduleFunc(hourly, func() { ran <- true }))
	<-ran
}

// The wheel watches while there is a job with a calendar, whatever ends the jobs.
func TestWatchesWhileThereAreCalendarJobs(t *testing.T) {
	inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, _ *atomic.Int64, notice *notices) {
		w.ScheduleAtFixedRate(0, time.Hour, noop)
		require.Zero(t, notice.watches.Load())
		first := mustJob(t)(w.ScheduleFunc(hourly, noop))
		second := mustJob(t)(w.ScheduleFunc(hourly, noop))
		require.EqualValues(t, 1, notice.watches.Load())
		require.True(t, first.Stop())
		require.NotNil(t, notice.f.Load())
		require.True(t, second.Stop())
		require.Nil(t, notice.f.Load())

		once := mustJob(t)(w.ScheduleFunc(at(time.Now().Add(time.Hour)), noop))
		require.NotNil(t, notice.f.Load())
		<-once.Done()
		require.Nil(t, notice.f.Load())

		never := mustJob(t)(w.ScheduleFunc(at(time.Now()), noop))
		<-never.Done()
		require.EqualValues(t, 2, notice.watches.Load())

		mustJob(t)(w.ScheduleFunc(hourly, noop))
		w.Stop()
		require.Nil(t, notice.f.Load())
		_, err := w.ScheduleFunc(hourly, noop)
		require.ErrorIs(t, err, ErrStopped)
		require.Nil(t, notice.f.Load())
		require.EqualValues(t, 3, notice.watches.Load())
	})
}

// When the watch ends by itself, jobs look at the clock once a minute again. The next job
// begins a new watch.
func TestCalendarWhoseWatchEnds(t *testing.T) {
	inWall(t, func(t *testing.T, w *TimingWheel, log *timeLog, step *atomic.Int64, notice *notices) {
		mustJob(t)(w.ScheduleFunc(hourly, log.note))
		time.Sleep(second)
		notice.give(errors.New("ended"))
		step.Store(int64(2 * time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Minute + second}, log.take())
		mustJob(t)(w.ScheduleFunc(hourly, noop))
		require.EqualValues(t, 2, notice.watches.Load())
	})
}

// Jobs of all shards come and go at the same time, and notices come meanwhile.
func TestCalendarJobsBesideEachOther(t *testing.T) {
	w := New(WithShards(8))
	defer w.Stop()
	var notice notices
	notice.giveTo(w)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range unlessShort(500, 100) {
				job := mustJob(t)(w.ScheduleFunc(hourly, noop))
				if i%8 == 0 {
					notice.give(nil)
				}
				require.True(t, job.Stop())
			}
		})
	}
	all.Wait()
	require.Nil(t, notice.f.Load())
	require.Positive(t, notice.watches.Load())
	require.Empty(t, w.attachment().calendarJobs.jobs)
}

// In virtual time there is nothing to watch, and in a bubble, also on a wheel that was made
// outside, a goroutine that waits for a notice would keep time from passing.
func TestWatchesOnlyRealTime(t *testing.T) {
	virtual := New(WithManualClock(time.Now()))
	defer virtual.Stop()
	var notice notices
	notice.giveTo(virtual)
	mustJob(t)(virtual.ScheduleFunc(hourly, noop))
	require.Zero(t, notice.watches.Load())

	outside := New()
	defer outside.Stop()
	notice.giveTo(outside)
	synctest.Test(t, func(t *testing.T) {
		w := New()
		job := mustJob(t)(w.ScheduleFunc(hourly, noop))
		require.Equal(t, lookInterval, job.calendar.look)
		w.Stop()
		ran := make(chan bool, 1)
		job = mustJob(t)(outside.ScheduleFunc(hourly, func() { ran <- true }))
		<-ran
		job.Stop()
	})
	require.Zero(t, notice.watches.Load())
}

// Nobody keeps a wheel for its watch: here nothing else does. The watch ends with the wheel.
func TestForgottenCalendarsAreGarbage(t *testing.T) {
	var notice notices
	forgotten := func() weak.Pointer[TimingWheel] {
		w := New(WithManualDrive())
		notice.giveTo(w)
		mustJob(t)(w.ScheduleFunc(hourly, noop))
		require.NotNil(t, notice.f.Load())
		return weak.Make(w)
	}
	w := forgotten()
	waitForGarbage(t, func() bool { return w.Value() == nil && notice.f.Load() == nil })
}

// The wheel keeps nothing of a watch that has ended, however it ended.
func TestEndedWatchesAreGarbage(t *testing.T) {
	w := New(WithManualDrive())
	var watches []weak.Pointer[[64]byte]
	var tell func(error)
	w.attachment().calendarJobs.watch = func(f func(error)) (stop func(), err error) {
		watch := new([64]byte)
		watches, tell = append(watches, weak.Make(watch)), f
		return func() { watch[0]++ }, nil
	}
	for range 3 {
		job := mustJob(t)(w.ScheduleFunc(hourly, noop))
		require.True(t, job.Stop())
		mustJob(t)(w.ScheduleFunc(hourly, noop))
		tell(errors.New("ended"))
	}
	require.Len(t, watches, 6)
	for _, watch := range watches {
		waitForGarbage(t, func() bool { return watch.Value() == nil })
	}
	w.Stop() // it lives until here
}

// The option does nothing where time is no system's. It does not complain either.
func TestSuspendedTimeOfNoSystem(t *testing.T) {
	var log bytes.Buffer
	logger := WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
	w := New(WithManualClock(time.Unix(0, 0)), WithExecutor(Inline()), WithSuspendedTime(), logger)
	defer w.Stop()
	ran := false
	w.AfterFunc(time.Hour, func() { ran = true })
	w.Advance(time.Hour)
	require.True(t, ran)
	require.Zero(t, w.Stats().Suspended)
	synctest.Test(t, func(t *testing.T) {
		w := New(WithSuspendedTime(), logger)
		start := time.Now()
		w.Sleep(48 * time.Hour)
		require.Equal(t, 48*time.Hour, time.Since(start))
		require.Equal(t, runtime.GOOS == "windows", w.Stats().CountsSuspends)
		w.Stop()
	})
	require.Empty(t, log.String())
}

// A wheel that counts suspends, made outside of a bubble, is used in it like any other.
func TestSuspendedTimeInABubbleOfAnother(t *testing.T) {
	w := New(WithSuspendedTime())
	defer w.Stop()
	synctest.Test(t, func(t *testing.T) {
		start, ran := time.Now(), make(chan time.Duration, 1)
		_, err := w.Schedule(time.Hour, func() { ran <- time.Since(start) })
		require.NoError(t, err)
		require.Equal(t, time.Hour, <-ran)
		_, err = w.ScheduleAt(time.Now().Add(time.Hour), func() { ran <- time.Since(start) })
		require.NoError(t, err)
		require.Equal(t, 2*time.Hour, <-ran)
		ctx, cancel := w.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		<-ctx.Done()
		require.Equal(t, 3*time.Hour, time.Since(start))
		require.Panics(t, func() { w.Stop() })
	})
	require.Zero(t, w.Len())
}
