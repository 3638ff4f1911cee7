package engine

import (
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
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
	executors["slices"] = run.Foreign{UserExecutor: wholeSlices{}}
	for name, executor := range executors {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tasks = 5000
				w := newTestWheel(withExecutor(executor), withShards(2))
				ran := 0
				w.Schedule(time.Second, func() { time.Sleep(time.Second) })
				var timeouts []timeout
				for i := range tasks {
					s := &w.shards[i%2]
					var h Handle
					h.shard = s
					s.lock()
					err := h.Accept(Delay{Now: w.clock.Now(), D: 1500 * time.Millisecond}, func() { ran++; time.Sleep(time.Millisecond) }, OneShot)
					h.UnlockShard()
					require.NoError(t, err)
					timeouts = append(timeouts, timeout(h))
				}
				time.Sleep(2*time.Second + 100*time.Millisecond - time.Microsecond)
				synctest.Wait()
				require.EqualValues(t, tasks-SliceLen, w.Len())
				st := w.verifyStats(t)
				require.EqualValues(t, w.Len(), st.Waiting)
				if name != "slices" {
					require.Equal(t, time.Millisecond-time.Microsecond, st.HeldUp, "of one function, and not of the pile")
				}
				for i := range 500 {
					require.True(t, timeouts[tasks-1-i].Cancel())
				}
				w.verify(t)
				require.Len(t, w.Stop(), tasks-SliceLen-500)
				require.NoError(t, w.Shutdown(t.Context()))
				require.Equal(t, SliceLen, ran)
			})
		})
	}
}

// A worker may take room for a task of a wheel that has just been stopped. It learns that the
// room was not needed, or it would be lost.
func TestStoppedWheelNeedsNoRoom(t *testing.T) {
	w := newTestWheel(withExecutor(run.NewBounded(1, 0, run.Waits, nil)))
	w.Stop()
	require.False(t, w.driver.LetIn())
}

// Waiting entries go on in the order in which they came due, the shard that has waited longest
// first. With a Pool that lets in one at a time, it is the order of the deadlines.
func TestShardThatHasWaitedLongestGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := run.NewBounded(1, 0, run.Waits, nil)
		w := newTestWheel(withExecutor(pool), withShards(4))
		release := make(chan struct{})
		pool.Execute([]func(){func() { <-release }})
		var order, want []int
		for i := range 40 {
			addFunction(&w.shards[i*7%4], time.Duration(1+i)*time.Second, func() { order = append(order, i) })
			want = append(want, i)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 40, w.Len())
		close(release)
		synctest.Wait()
		require.Equal(t, want, order)
		w.Stop()
		pool.Close(t.Context())
	})
}

// The shard whose first entry was due first goes first, also behind a call that is apart.
func TestSlicesOfTheShardThatHasWaitedLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withExecutor(run.Inline{}), withShards(2))
		defer w.Stop()
		w.Schedule(time.Second, func() { time.Sleep(time.Minute) })
		var order []int
		for i, s := range []int{1, 0, 1} { // the last of shard 1 is more than a slice away from its first
			for range SliceLen {
				addFunction(&w.shards[s], time.Duration(2+i)*time.Second, func() { order = append(order, i) })
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		var want []int
		for i := range 3 {
			for range SliceLen {
				want = append(want, i)
			}
		}
		require.Equal(t, want, order)
	})
}

// A worker gives its room back just when an entry has found none and is about to join the line. The
// driver tries again. An entry of another wheel that comes due meanwhile goes behind.
func TestPoolServesWhoJoinsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := run.NewBounded(1, 0, run.Waits, nil)
		var order []string
		wheels := map[string]*testWheel{}
		flush := func(name string) {
			w := manual(withExecutor(pool))
			wheels[name] = w
			w.Schedule(0, func() { order = append(order, name) })
			b, ok := w.driver.queue.Poll()
			require.True(t, ok)
			w.driver.flushFirst(b)
			require.EqualValues(t, 1, w.driver.numWaiting.Load())
		}
		require.True(t, pool.TryAcquire())
		flush("first")
		pool.Release() // by a worker that has seen an empty line
		flush("second")
		wheels["first"].driver.handOver()
		synctest.Wait()
		require.Equal(t, []string{"first", "second"}, order)
		for _, w := range wheels {
			w.Stop()
		}
		pool.Close(t.Context())
	})
}

// The entry that waited on a shard was canceled. An entry that comes there later does not go behind
// it, but to the Pool, which has room by now.
func TestNothingWaitsBehindWhatWasCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := run.NewBounded(1, 0, run.Waits, nil)
		busy := make(chan struct{})
		pool.Execute([]func(){func() { <-busy }})
		w := newTestWheel(withExecutor(pool), withShards(2))
		defer w.Stop()
		var handles []ref
		for i := range w.shards {
			handles = append(handles, addFunction(&w.shards[i], time.Duration(i), mustNotRun))
		}
		time.Sleep(time.Second)
		for i, h := range handles {
			s := &w.shards[i]
			s.lock()
			require.True(t, s.cancel(h))
			s.unlock()
		}
		close(busy)
		synctest.Wait()
		var ran atomic.Int64
		for i := range w.shards {
			addFunction(&w.shards[i], 0, func() { ran.Add(1) })
			time.Sleep(time.Second)
		}
		require.EqualValues(t, 2, ran.Load())
		pool.Close(t.Context())
	})
}

// admission is one that has room for nothing, and notes who waits for it.
type admission struct {
	run.Admission
	joined, left []int64 // how many waited on the wheel at that moment
}

func (a *admission) TryAcquire() bool   { return false }
func (a *admission) Serve()             {}
func (a *admission) Join(w run.Waiter)  { a.joined = append(a.joined, w.Waits()) }
func (a *admission) Leave(w run.Waiter) { a.left = append(a.left, w.Waits()) }

// An entry waits before its wheel joins the line: or a worker could find nothing there that
// waits, and take the wheel out. A wheel that is stopped leaves.
func TestWheelWaitsBeforeItJoins(t *testing.T) {
	room := new(admission)
	w := manual(func(c *Config) { c.Room, c.MayBlock = room, false })
	w.Schedule(0, mustNotRun)
	require.Zero(t, w.Drive(0))
	require.Equal(t, []int64{1}, room.joined)
	require.Len(t, w.Stop(), 1)
	require.Equal(t, []int64{0}, room.left)
}
