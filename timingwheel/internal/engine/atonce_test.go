package engine

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// withhold keeps openAtOnce from starting a goroutine: it seems to be on its way.
func withhold(s *shard) {
	s.lock()
	defer s.unlock()
	s.atOnce.Open(&s.arena, 0)
}

func requireCounts(t *testing.T, e *testWheel, c Counts) {
	t.Helper()
	require.Equal(t, c, e.Stats().Counts)
}

// Until a goroutine has taken it, a function that is due at once is pending like any other.
func TestAtOnceIsPendingUntilItIsTaken(t *testing.T) {
	e := newTestWheel(withShards(1), withMaxPending(3))
	s := &e.shards[0]
	withhold(s)
	var ran atomic.Int32
	add := func(f func()) Handle {
		h, err := e.Schedule(0, f)
		require.NoError(t, err)
		return Handle(h)
	}
	canceled, moved := add(mustNotRun), add(mustNotRun)
	add(func() { ran.Add(1) })
	_, err := e.Schedule(0, mustNotRun)
	require.ErrorIs(t, err, ErrTooManyPending)
	e.verify(t)
	requireCounts(t, e, Counts{Pending: 3, Scheduled: 3, Rejected: 1})
	require.EqualValues(t, 3, e.Snapshot(0).Due)

	s.lock()
	require.True(t, canceled.Cancel())
	require.True(t, moved.Reset(moved.After(time.Hour)))
	s.unlock()
	e.verify(t)
	s.runAtOnce()
	require.EqualValues(t, 1, ran.Load())
	e.verify(t)
	requireCounts(t, e, Counts{Pending: 1, Scheduled: 3, Expired: 1, Stopped: 1, Reset: 1, Rejected: 1})
	st := e.Stats()
	require.EqualValues(t, 1, st.Lateness.Total())

	withhold(s)
	add(mustNotRun)
	s.stop() // the mark
	s.runAtOnce()
	back := e.Stop() // and the pass
	require.Len(t, back, 2, "that which was moved, and that which nobody had taken")
	s.runAtOnce()
	requireCounts(t, e, Counts{Scheduled: 4, Expired: 1, Stopped: 1, Reset: 1, HandedBack: 2, Rejected: 1})
}

// They are taken in the order in which they were added, slice by slice.
func TestAtOnceIsTakenInOrder(t *testing.T) {
	const n = 3*SliceLen + 1
	e := newTestWheel(withShards(1))
	defer e.Stop()
	s := &e.shards[0]
	withhold(s)
	var order []int
	for i := range n {
		_, err := e.Schedule(0, func() { order = append(order, i) })
		require.NoError(t, err)
	}
	for more := true; more; {
		var alone run.Task
		var tasks []run.Task
		alone, tasks, more = s.takeAtOnce()
		require.LessOrEqual(t, len(tasks), SliceLen)
		require.Equal(t, more, s.atOnce.IsOpen())
		if alone != nil {
			require.Empty(t, tasks)
			tasks = []run.Task{alone}
		}
		for _, task := range tasks {
			e.runner.Run(task)
		}
	}
	require.Len(t, order, n)
	require.IsIncreasing(t, order)
	e.verify(t)
}

// They are as late as the goroutine is that takes them.
func TestAtOnceLateness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTestWheel(withShards(1))
		defer e.Stop()
		s := &e.shards[0]
		withhold(s)
		_, err := e.Schedule(0, noop)
		require.NoError(t, err)
		time.Sleep(time.Second)
		s.runAtOnce()
		st := e.Stats()
		require.EqualValues(t, 1, st.Lateness.Total())
		require.GreaterOrEqual(t, st.Lateness.Quantile(1), time.Second)
	})
}

// Functions that are due at once give their room back, as others do, though some that stay are
// among them.
func TestAtOnceIsTidied(t *testing.T) {
	const n, stay = 200 * SliceLen, 50
	e := newTestWheel(withShards(1))
	defer e.Stop()
	s := &e.shards[0]
	withhold(s)
	for i := range n {
		_, err := e.Schedule(0, noop)
		require.NoError(t, err)
		if i%(n/stay) == 0 {
			e.Schedule(time.Hour, mustNotRun)
		}
	}
	for more := true; more; {
		_, _, more = s.takeAtOnce()
	}
	e.verify(t)
	require.Equal(t, stay, s.arena.Len())
	require.False(t, s.arena.IsSparse(), "room for %d", s.arena.Cap())
}

// Functions run while more of them are taken. Otherwise none would run as long as functions are
// added faster than they are taken.
func TestAtOnceRunsBetweenSlices(t *testing.T) {
	needsProcessors(t)
	const n = 500 * SliceLen
	e := newTestWheel(withShards(1))
	defer e.Stop()
	s := &e.shards[0]
	for left := 0; left == 0; { // or else the goroutine was faster than the test
		withhold(s)
		var ran atomic.Int64
		for range n {
			_, err := e.Schedule(0, func() { ran.Add(1) })
			require.NoError(t, err)
		}
		go s.runAtOnce()
		for s.lockForDriver(); s.arena.Len() == n; s.lockForDriver() {
			s.unlock()
			runtime.Gosched()
		}
		left = s.arena.Len() // the test has the lock between two slices, or after the last one
		for start := time.Now(); ran.Load() == 0 && time.Since(start) < time.Minute; {
			runtime.Gosched()
		}
		s.unlock()
		require.NotZero(t, ran.Load())
	}
}

// A driver that is held up, with the lock of a shard, holds up nothing that is due at once.
func TestAtOnceDoesNotWaitForTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTestWheel(withShards(2))
		defer e.Stop()
		s := &e.shards[0]
		s.lock()
		s.add(Delay{s.clock.Now(), time.Millisecond}, func() { time.Sleep(time.Second) }, Internal|NoExecutor)
		s.unlock()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		var ran atomic.Bool
		_, err := e.Schedule(0, func() { ran.Store(true) })
		require.NoError(t, err)
		synctest.Wait()
		hasRun := ran.Load()
		time.Sleep(time.Second) // Stop needs the lock that the driver has
		require.True(t, hasRun, "it waits for the driver")
	})
}

// A function that blocks or ends its goroutine delays no other, and drain waits for it.
func TestAtOnceFunctionsThatBlock(t *testing.T) {
	const n = 2*SliceLen + 2
	e := newTestWheel(withShards(1))
	defer e.Stop()
	release := make(chan struct{})
	var began atomic.Int32
	for i := range n {
		_, err := e.Schedule(0, func() {
			began.Add(1)
			if i%3 == 0 {
				runtime.Goexit()
			}
			<-release
		})
		require.NoError(t, err)
	}
	for end := time.Now().Add(time.Minute); began.Load() < n; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d of %d have begun", began.Load(), n)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, e.Drain(ended), context.Canceled, "functions are running")
	close(release)
	require.NoError(t, e.Drain(t.Context()))
	requireCounts(t, e, Counts{Scheduled: n, Expired: n})
}

// The option's handler gets the panic of a function that was alone, and of one that was not.
func TestAtOncePanics(t *testing.T) {
	var handled atomic.Int32
	e := newTestWheel(withShards(1), func(c *Config) { c.PanicHandler = func(any, []byte) { handled.Add(1) } })
	s := &e.shards[0]
	for _, n := range []int32{1, 5} {
		handled.Store(0)
		withhold(s)
		for range n {
			_, err := e.Schedule(0, func() { panic("a task's own") })
			require.NoError(t, err)
		}
		s.runAtOnce()
		for end := time.Now().Add(time.Minute); handled.Load() < n; runtime.Gosched() {
			require.True(t, time.Now().Before(end), "%d of %d panics were handled", handled.Load(), n)
		}
	}
	require.NoError(t, e.Drain(t.Context()))
	require.EqualValues(t, 6, e.Stats().Panicked)
}

// Each function runs or is canceled, whoever is first, beside a stop in the middle.
func TestAtOnceAgainstCancelAndStop(t *testing.T) {
	const adders, each = 8, 300
	e := newTestWheel(withShards(2), withMaxPending(adders*each))
	var accepted, ran, canceled atomic.Int64
	var wg sync.WaitGroup
	for range adders {
		wg.Go(func() {
			for i := range each {
				scheduled, err := e.Schedule(0, func() { ran.Add(1) })
				if err != nil {
					require.ErrorIs(t, err, ErrStopped)
					return
				}
				h := Handle(scheduled)
				accepted.Add(1)
				if i%2 == 0 {
					h.LockShard()
					if rand.IntN(4) == 0 {
						h.Reset(h.After(time.Duration(rand.IntN(2))))
					} else if h.Cancel() {
						canceled.Add(1)
					}
					h.UnlockShard()
				}
			}
		})
	}
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
	back := e.Stop()
	wg.Wait()
	require.NoError(t, e.Drain(t.Context()))
	st := e.Stats()
	require.Equal(t, accepted.Load(), ran.Load()+canceled.Load()+int64(len(back)))
	require.Equal(t, st.Scheduled, st.Expired+st.Stopped+st.HandedBack)
	require.Zero(t, st.Pending+st.Running)
	e.verify(t)
}

// Functions that were due at once leave no chunk of the arena to the few entries among them.
func TestAtOnceTidies(t *testing.T) {
	w := newTestWheel(withShards(1))
	defer w.Stop()
	s := &w.shards[0]
	const functions = 30_000
	s.lock()
	for i := range functions {
		delay := time.Duration(0)
		if i%1000 == 500 {
			delay = time.Hour
		}
		_, err := s.accept(Delay{Now: s.clock.Now(), D: delay}, noop, OneShot)
		require.NoError(t, err)
	}
	s.unlock()
	waitUntil(t, func() bool { return w.Engine.Len() == functions/1000 && w.runner.Running.Load() == 0 })
	s.lock()
	defer s.unlock()
	require.False(t, s.arena.IsSparse(), "room for %d of %d", s.arena.Cap(), s.arena.Len())
}
