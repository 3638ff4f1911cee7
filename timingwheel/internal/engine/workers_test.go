package engine

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// A function that is due for the workers does not wait until the driver has flushed all else that
// is due. The wheel's own tasks run on the driver: here they wait until the functions have run.
func TestWorkersDoNotWaitForTheDriver(t *testing.T) {
	for _, functions := range []int{1, 2, 200} {
		for _, cascade := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWheel(withShards(2))
				defer w.Stop()
				s, other := &w.shards[0], &w.shards[1]
				var ran sync.WaitGroup
				ran.Add(functions)
				addOwn(s, time.Millisecond, func() { time.Sleep(time.Second) }) // the driver is late
				for range functions {
					addFunction(s, 2*time.Millisecond, ran.Done)
				}
				addOwn(other, 3*time.Millisecond, ran.Wait)
				if cascade {
					for range 10 * SliceLen {
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

// It does not wait for the rest of its own cascade, which has no more functions due for the
// workers.
func TestWorkersDoNotWaitForACascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withShards(1))
		defer w.Stop()
		s, ran := &w.shards[0], make(chan struct{})
		addFunction(s, time.Millisecond, func() { close(ran) })
		for range SliceLen {
			addOwn(s, time.Millisecond, noop)
		}
		addOwn(s, time.Millisecond, func() { <-ran })
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, w.Len())
	})
}

// It does not wait for a caller that has the lock of the next bucket's shard.
func TestWorkersDoNotWaitForALock(t *testing.T) {
	w := newTestWheel(withShards(2))
	defer w.Stop()
	ran := make(chan struct{})
	after := Delay{Now: w.clock.Now(), D: 5 * time.Millisecond}
	for i := range w.shards {
		s := &w.shards[i]
		s.lock()
		_, err := s.accept(after, func() { ran <- struct{}{} }, OneShot)
		s.unlock()
		require.NoError(t, err)
	}
	w.shards[1].lock()
	<-ran
	w.shards[1].unlock()
	<-ran
}

// It does not wait while many empty buckets are dropped.
func TestWorkersDoNotWaitForEmptyBuckets(t *testing.T) {
	w := newTestWheel(withManualDrive(), withShards(1), withWheelSize(65536))
	defer w.Stop()
	for i := 0; w.driver.queue.Len() < 20; i++ { // on a busy machine cancels drop more of them
		timeout, err := w.Schedule(time.Second+time.Duration(i)*time.Millisecond, mustNotRun)
		require.NoError(t, err)
		require.True(t, timeout.Cancel())
	}
	ran := make(chan bool)
	w.runner.Admit(1)
	w.driver.alone = run.Function(func() { ran <- true })
	w.driver.dropEmpty()
	require.Nil(t, w.driver.alone)
	<-ran
	require.Zero(t, w.driver.queue.Len())
}
