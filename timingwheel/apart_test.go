package timingwheel

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// wholeSlices is an executor of a user's own that runs all tasks of a call itself.
type wholeSlices struct{}

func (wholeSlices) Execute(tasks []func()) {
	for _, task := range tasks {
		task()
	}
}

// A function has held the driver up, and thousands of short ones wait behind it. Under any
// executor, all but a slice of them can be canceled, and are handed back by Stop.
func TestWhatWaitsBehindACallStaysPending(t *testing.T) {
	executors := maps.Clone(blocking())
	executors["slices"] = wholeSlices{}
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tasks = 5000
				w := New(WithExecutor(executor), WithShards(2))
				ran := 0
				w.Schedule(time.Second, func() { time.Sleep(time.Second) })
				var timeouts []Timeout
				for i := range tasks {
					s := &w.engine().Shards()[i%2]
					var h engine.Handle
					h.JoinTo(s)
					err := h.Accept(engine.Delay{Now: w.engine().Clock().Now(), D: 1500 * time.Millisecond}, func() { ran++; time.Sleep(time.Millisecond) }, engine.OneShot)
					h.UnlockShard()
					require.NoError(t, err)
					timeouts = append(timeouts, Timeout(h))
				}
				time.Sleep(2*time.Second + 100*time.Millisecond - time.Microsecond)
				synctest.Wait()
				require.EqualValues(t, tasks-engine.SliceLen, w.Len())
				st := w.verifyStats(t)
				require.EqualValues(t, w.Len(), st.Waiting)
				if name != "slices" {
					require.Equal(t, time.Millisecond-time.Microsecond, st.HeldUp, "of one function, and not of the pile")
				}
				for i := range 500 {
					require.True(t, timeouts[tasks-1-i].Cancel())
				}
				w.verify(t)
				require.Len(t, w.Stop(), tasks-engine.SliceLen-500)
				require.NoError(t, w.Shutdown(t.Context()))
				require.Equal(t, engine.SliceLen, ran)
			})
		})
	}
}

// What waits goes on in the order in which it came due, the shard first that has waited
// longest: with a Pool, which lets in one at a time, it is the order of the deadlines.
func TestShardThatHasWaitedLongestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(1, 0, fullWait)
		w := New(WithExecutor(pool), WithShards(4))
		release := make(chan struct{})
		pool.Execute([]func(){func() { <-release }})
		var order, want []int
		for i := range 40 {
			addFunction(&w.engine().Shards()[i*7%4], time.Duration(1+i)*time.Second, func() { order = append(order, i) })
			want = append(want, i)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 40, w.Len())
		close(release)
		synctest.Wait()
		require.Equal(t, want, order)
		w.Stop()
		pool.Close()
	})
}

// Behind a call that is apart, too, the shard goes first whose first entry was due first.
func TestSlicesOfTheShardThatHasWaitedLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithExecutor(Inline()), WithShards(2))
		defer w.Stop()
		w.Schedule(time.Second, func() { time.Sleep(time.Minute) })
		var order []int
		for i, s := range []int{1, 0, 1} { // the last of shard 1 is more than a slice away from its first
			for range engine.SliceLen {
				addFunction(&w.engine().Shards()[s], time.Duration(2+i)*time.Second, func() { order = append(order, i) })
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		var want []int
		for i := range 3 {
			for range engine.SliceLen {
				want = append(want, i)
			}
		}
		require.Equal(t, want, order)
	})
}

// A job that only has to look at its calendar takes room in the Pool, and gives it back. What
// has found no room meanwhile, on another wheel, gets it at once: nothing else would tell.
func TestRoomOfAJobThatOnlyLooksGoesToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newPool(1, 0, fullWait)
		calendar, other := manual(WithExecutor(pool)), manual(WithExecutor(pool))
		ran := false
		other.Schedule(time.Second, func() { ran = true })
		looks := 0
		calendar.engine().SetWall(func() time.Time {
			if looks++; looks == 3 { // the job has the room, and has yet to find that it has to wait
				require.Zero(t, other.Drive(0))
				require.EqualValues(t, 1, other.Stats().Waiting)
			}
			return time.Now()
		})
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
