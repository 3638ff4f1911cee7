package timingwheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A job that only has to look at its calendar takes room in the Pool, and gives it back. What
// has found no room meanwhile, on another wheel, gets it at once: nothing else would tell.
func TestRoomOfAJobThatOnlyLooksGoesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(1, 0, fullWait)
		calendar, other := manual(WithExecutor(pool)), manual(WithExecutor(pool))
		ran := false
		other.Schedule(time.Second, func() { ran = true })
		looks := 0
		calendar.attachment().wall = func() time.Time {
			if looks++; looks == 3 { // the job has the room, and has yet to find that it has to wait
				require.Zero(t, other.Drive(0))
				require.EqualValues(t, 1, other.Stats().Waiting)
			}
			return time.Now()
		}
		mustJob(t)(calendar.ScheduleFunc(at(time.Now().Add(time.Hour)), noop))
		require.Equal(t, 2, looks)
		time.Sleep(lookInterval)
		require.Zero(t, calendar.Drive(0))
		require.GreaterOrEqual(t, looks, 3)
		synctest.Wait()
		require.True(t, ran)
		calendar.Stop()
		other.Stop()
		pool.Close()
	})
}

// at is a Scheduler with one time.
type at time.Time

func (a at) Next(prev time.Time) time.Time {
	if next := time.Time(a); next.After(prev) {
		return next
	}
	return time.Time{}
}
