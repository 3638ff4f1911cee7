package timingwheel

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A job that only reads its calendar takes room in the Pool, and gives it back. A task of another
// wheel that found no room meanwhile gets it at once, because no other event would tell it.
func TestRoomOfAJobThatOnlyLooksGoesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(1, 0, fullWait)
		calendar, other := New(WithExecutor(pool)), New(WithExecutor(pool))
		ran := false
		other.Schedule(lookInterval+second, func() { ran = true })
		var looks atomic.Int64
		calendar.attachment().wall = func() time.Time {
			if looks.Add(1) == 3 { // the job has the room, and has yet to find that it has to wait
				time.Sleep(2 * second)
				require.EqualValues(t, 1, other.Stats().Waiting)
			}
			return time.Now()
		}
		mustJob(t)(calendar.ScheduleFunc(at(time.Now().Add(time.Hour)), noop))
		require.EqualValues(t, 2, looks.Load())
		time.Sleep(lookInterval + time.Minute)
		require.GreaterOrEqual(t, looks.Load(), int64(3))
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
