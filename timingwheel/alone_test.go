package timingwheel

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// addOwn adds a task of the wheel's own to a shard, d from now.
func addOwn(s *engine.Shard, d time.Duration, f func()) {
	s.Lock()
	defer s.Unlock()
	s.Add(engine.Delay{Now: s.Clock.Now(), D: d}, f, engine.Internal|engine.NoExecutor)
}

// addFunction adds a user's function to a shard, d from now.
func addFunction(s *engine.Shard, d time.Duration, f func()) {
	s.Lock()
	defer s.Unlock()
	s.Accept(engine.Delay{Now: s.Clock.Now(), D: d}, f, engine.OneShot)
}

// What is due for the workers does not wait until the driver has flushed what else is due.
// The wheel's own tasks run on the driver: here they wait until the functions have run.
func TestWorkersDoNotWaitForTheDriver(t *testing.T) {
	for _, functions := range []int{1, 2, 200} {
		for _, cascade := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := New(WithShards(2))
				defer w.Stop()
				s, other := &w.engine().Shards()[0], &w.engine().Shards()[1]
				var ran sync.WaitGroup
				ran.Add(functions)
				addOwn(s, time.Millisecond, func() { time.Sleep(time.Second) }) // the driver is late
				for range functions {
					addFunction(s, 2*time.Millisecond, ran.Done)
				}
				addOwn(other, 3*time.Millisecond, ran.Wait)
				if cascade {
					for range 10 * engine.SliceLen {
						addOwn(other, 3*time.Millisecond, noop)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Zero(t, w.Len())
			})
		}
	}
}

// Nor does it wait for the rest of its own cascade, of which nothing more is due for them.
func TestWorkersDoNotWaitForACascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(1))
		defer w.Stop()
		s, ran := &w.engine().Shards()[0], make(chan struct{})
		addFunction(s, time.Millisecond, func() { close(ran) })
		for range engine.SliceLen {
			addOwn(s, time.Millisecond, noop)
		}
		addOwn(s, time.Millisecond, func() { <-ran })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, w.Len())
	})
}

// Nor does it wait for a caller that has the lock of the next bucket's shard.
func TestWorkersDoNotWaitForALock(t *testing.T) {
	w := New(WithShards(2))
	defer w.Stop()
	ran := make(chan struct{})
	after := engine.Delay{Now: w.engine().Clock().Now(), D: 5 * time.Millisecond}
	for i := range w.engine().Shards() {
		s := &w.engine().Shards()[i]
		s.Lock()
		_, err := s.Accept(after, func() { ran <- struct{}{} }, engine.OneShot)
		s.Unlock()
		require.NoError(t, err)
	}
	w.engine().Shards()[1].Lock()
	<-ran
	w.engine().Shards()[1].Unlock()
	<-ran
}

// Whoever drives by hand holds nothing back: there may be no other call.
func TestDrivingByHandHoldsNothingBack(t *testing.T) {
	ran := make(chan struct{})
	w := New(WithManualDrive())
	defer w.Stop()
	w.Schedule(0, func() { ran <- struct{}{} })
	require.Equal(t, 1, w.Drive(0))
	<-ran
	w = New(WithManualClock(time.Now()))
	defer w.Stop()
	w.Schedule(time.Second, func() { ran <- struct{}{} })
	require.Equal(t, 1, w.Advance(time.Second))
	<-ran
}

// Nor does it wait while many empty buckets are dropped.
func TestWorkersDoNotWaitForEmptyBuckets(t *testing.T) {
	w := New(WithManualDrive(), WithShards(1), WithWheelSize(65536))
	defer w.Stop()
	for i := range 20 {
		timeout, err := w.Schedule(time.Second+time.Duration(i)*time.Millisecond, mustNotRun)
		require.NoError(t, err)
		require.True(t, timeout.Cancel())
	}
	require.GreaterOrEqual(t, w.engine().Driver().Queue.Len(), 20)
	ran := make(chan bool)
	w.engine().Runner().Admit(1)
	w.engine().Driver().Alone = run.Function(func() { ran <- true })
	w.engine().Driver().DropEmpty()
	require.Nil(t, w.engine().Driver().Alone)
	<-ran
	require.Zero(t, w.engine().Driver().Queue.Len())
}

// A task that is alone goes behind what is in the queue already.
func TestTaskThatIsAloneOvertakesNone(t *testing.T) {
	w := New(WithManualDrive())
	defer w.Stop()
	queue, ran := w.engine().Driver().Workers, make(chan bool, 2)
	w.engine().Runner().Admit(2)
	queue.Enqueue(run.NewBatch(run.Function(func() { ran <- true })), w.engine().Runner())
	queue.Work(run.Function(func() { ran <- !queue.HasTasks() }), w.engine().Runner())
	require.True(t, <-ran)
	require.True(t, <-ran, "it ran while an older task was in the queue")
}
