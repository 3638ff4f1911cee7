package timingwheel

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type schedulerFunc func(prev time.Time) time.Time

func (f schedulerFunc) Next(prev time.Time) time.Time { return f(prev) }

// The wall clock is set forward, as after a suspend, and back, and nobody gives notice. A
// planned time is found within a minute, and never before it has come.
func TestCalendarFollowsTheWallClock(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *TimingWheel, log *timeLog) {
		var step atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
		w.attachment().wall = wall
		job := mustJob(t)(w.ScheduleFunc(hourly, log.note))
		time.Sleep(10*time.Minute + second)
		step.Store(int64(49*time.Minute + 50*second)) // it says 59:51 now
		time.Sleep(time.Minute)
		require.Equal(t, []time.Duration{11 * time.Minute}, log.take())
		next, _ := job.Next()
		require.Equal(t, log.start.Add(2*time.Hour), next)

		step.Store(int64(-30 * time.Minute)) // and now 10 minutes before midnight
		time.Sleep(2 * time.Hour)
		require.Empty(t, log.take())
		time.Sleep(30 * time.Minute)
		require.Equal(t, []time.Duration{150 * time.Minute}, log.take(), "at two o'clock by the wall")

		// A week is skipped; the next hour is not.
		step.Add(int64(7 * 24 * time.Hour))
		time.Sleep(time.Hour)
		require.Equal(t, []time.Duration{162 * time.Minute, 210 * time.Minute}, log.take())
		require.EqualValues(t, 4, job.Runs())
	})
}

// The wall clock is set while a run is under way. No planned time is run twice after a small
// step back, and the right clock goes after a large one; of those that it jumps over the
// policy decides.
func TestClockIsSetDuringARun(t *testing.T) {
	for _, c := range []struct {
		step   time.Duration
		missed MissedPolicy
		want   []string // by the wall clock
	}{
		{-30 * time.Minute, MissedSkip, []string{"01:00", "02:00", "03:00", "04:00"}},
		{-30 * time.Minute, MissedBurst, []string{"01:00", "02:00", "03:00", "04:00"}},
		{-30 * time.Minute, MissedDelay, []string{"01:00", "02:00", "03:00", "04:00"}},
		{-10 * time.Hour, MissedSkip, []string{"01:00", "16:00", "17:00", "18:00"}},
		{-10 * time.Hour, MissedBurst, []string{"01:00", "16:00", "17:00", "18:00"}},
		{-10 * time.Hour, MissedDelay, []string{"01:00", "16:00", "17:00", "18:00"}},
		{150 * time.Minute, MissedSkip, []string{"01:00", "04:00", "05:00", "06:00"}},
		{150 * time.Minute, MissedBurst, []string{"01:00", "03:30", "03:30", "04:00"}},
		{150 * time.Minute, MissedDelay, []string{"01:00", "04:00", "05:00", "06:00"}},
	} {
		for _, hasNotice := range []bool{false, true} {
			t.Run(fmt.Sprint(c.step, c.missed, hasNotice), func(t *testing.T) {
				jobBubble(t, func(t *testing.T, w *TimingWheel, _ *timeLog) {
					var step atomic.Int64
					wall := func() time.Time { return time.Now().Add(time.Duration(step.Load())) }
					w.attachment().wall = wall
					var notice notices
					if hasNotice {
						notice.giveTo(w)
					}
					runs := make(chan string)
					job := mustJob(t)(w.ScheduleFunc(hourly, func() {
						runs <- wall().UTC().Format("15:04")
						step.Store(int64(c.step))
						notice.give(nil)
					}, OnMissed(c.missed)))
					for _, want := range c.want {
						require.Equal(t, want, <-runs)
					}
					job.Stop()
				})
			})
		}
	}
}
