package timingwheel_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// A fixed rate and a fixed delay, with a jitter longer than the period too: the first run is
// later by the part that the name sets, and the others follow a period apart.
func TestJitter(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		type schedule = func(initial, period time.Duration, f func(), opts ...timingwheel.JobOption) (*timingwheel.Job, error)
		for kind, schedule := range map[string]schedule{"rate": w.ScheduleAtFixedRate, "delay": w.ScheduleWithFixedDelay} {
			for _, jitter := range []time.Duration{500 * msec, 7 * second} {
				early := 0
				for i := range 100 {
					opt := timingwheel.Jitter(jitter, fmt.Sprint("job", i))
					job := mustJob(t)(schedule(second, second, log.note, opt))
					again := mustJob(t)(schedule(second, second, log.note, opt))
					next, _ := job.Next()
					same, _ := again.Next()
					require.Equal(t, next, same, "the same after a restart")
					part := time.Until(next) - second
					require.True(t, part >= 0 && part < jitter, "%s: %v", kind, part)
					if part < jitter/2 {
						early++
					}
					require.True(t, again.Stop())
					if i > 0 {
						require.True(t, job.Stop())
						continue
					}
					first := next.Sub(log.start)
					time.Sleep(time.Until(next) + 2*second + 500*msec)
					runs := log.take()
					require.Len(t, runs, 3)
					for n, at := range runs {
						want := first + time.Duration(n)*second
						require.True(t, at >= want && at <= want+10*msec, "%v, not %v", at, want)
					}
					require.True(t, job.Stop())
				}
				require.True(t, early > 25 && early < 75, "%s: %d of 100 in the first half", kind, early)
			}
		}
	})
}

// Occurrences of a calendar go on with their delay, whatever the policy: none is lost.
func TestJitterOfACalendar(t *testing.T) {
	for _, policy := range []timingwheel.MissedPolicy{timingwheel.MissedBurst, timingwheel.MissedSkip, timingwheel.MissedDelay} {
		for _, jitter := range []time.Duration{0, second, 7 * second, 1000 * time.Hour} {
			jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
				job := mustJob(t)(w.ScheduleFunc(everySecond{}, log.note, timingwheel.OnMissed(policy), timingwheel.Jitter(jitter, "report")))
				next, _ := job.Next()
				require.Equal(t, jitter == 0, next.Truncate(second).Equal(next))
				first := next.Sub(log.start)
				require.True(t, first > 0 && first <= second, "one whose delay has not passed is still to come: %v", first)
				time.Sleep(5*second + 500*msec)
				runs := log.take()
				require.GreaterOrEqual(t, len(runs), 5)
				for i, at := range runs {
					want := first + time.Duration(i)*second
					require.True(t, at >= want && at <= want+2*msec, "%v, not %v", at, want)
				}
				require.True(t, job.Stop())
			})
		}
	}
}

// The largest jitter saturates, and a calendar that ends still ends.
func TestJitterOfExtremes(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		huge := timingwheel.Jitter(math.MaxInt64, "x")
		job := mustJob(t)(w.ScheduleAtFixedRate(math.MaxInt64, 1, log.note, huge))
		time.Sleep(time.Hour)
		require.Empty(t, log.take())
		require.True(t, job.Stop())
		job = mustJob(t)(w.ScheduleFunc(schedulerFunc(func(time.Time) time.Time { return time.Time{} }), log.note, huge))
		<-job.Done()
		require.NoError(t, job.Err())
	})
}

// A run that takes two seconds and a half: with MissedSkip the job goes on at the times that are
// later by the same part, and its runs do not overlap.
func TestJitterOfASlowJob(t *testing.T) {
	jobBubble(t, func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog) {
		job := mustJob(t)(w.ScheduleFunc(everySecond{}, func() { log.note(); time.Sleep(2*second + 500*msec) }, timingwheel.Jitter(7*second, "report")))
		next, _ := job.Next()
		first := next.Sub(log.start)
		time.Sleep(first + 6*second + 500*msec)
		runs := log.take()
		require.Len(t, runs, 3)
		for i, at := range runs {
			want := first + time.Duration(3*i)*second
			require.True(t, at >= want && at <= want+2*msec, "%v, not %v", at, want)
		}
		require.NoError(t, job.StopWait(t.Context()))
	})
}
