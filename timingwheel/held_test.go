package timingwheel

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// addOwn adds a task of the wheel's own to a shard, d from now.
func (s *shard) addOwn(d time.Duration, f func()) {
	s.lock()
	defer s.unlock()
	s.add(delay{s.clock.now(), d}, f, own|alone)
}

// addFunction adds a user's function to a shard, d from now.
func (s *shard) addFunction(d time.Duration, f func()) {
	s.lock()
	defer s.unlock()
	s.accept(delay{s.clock.now(), d}, f, oneShot)
}

// A driver that has more and more to flush, but nothing for the workers, does not keep them
// waiting for what it has held back.
func TestHeldTasksWaitForFewBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(1), WithWheelSize(1024))
		defer w.Stop()
		s, held := &w.shards[0], [2]int{}
		for round := range 2 {
			start := 400 * time.Duration(round) * time.Millisecond
			s.addOwn(start+time.Millisecond, func() { time.Sleep(time.Second) }) // the driver is late
			s.addFunction(start+time.Millisecond, noop)
			for i := range 300 {
				s.addOwn(start+time.Duration(2+i)*time.Millisecond, func() {
					if w.driver.held != nil {
						held[round]++
					}
				})
			}
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Zero(t, w.Len())
		for _, n := range held {
			require.Positive(t, n)
			require.Less(t, n, mostHeld)
		}
	})
}

// What was held back does not wait for a cascade either, also if nothing of that is due.
func TestHeldTasksDoNotWaitForACascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(2))
		defer w.Stop()
		held := 0
		w.shards[0].addFunction(time.Millisecond, noop)
		for range 10 * sliceLen {
			w.shards[1].addOwn(time.Millisecond, func() {
				if w.driver.held != nil {
					held++
				}
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Zero(t, w.Len())
		require.Equal(t, sliceLen, held, "the first slice")
	})
}

// Whatever the driver has held back, it leaves an empty batch for the next driver, which then
// allocates none.
func TestDriverLeavesAnEmptyBatch(t *testing.T) {
	for _, n := range []int{1, 2, 300} {
		synctest.Test(t, func(t *testing.T) {
			w := New(WithShards(1))
			defer w.Stop()
			d := &w.driver
			for range n {
				w.shards[0].addFunction(time.Millisecond, func() {
					time.Sleep(time.Second)
				})
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			spare := d.spare.Load()
			require.NotNil(t, spare, "while the tasks run")
			require.Empty(t, spare.tasks)
			w.shards[0].addOwn(time.Millisecond, func() { require.Same(t, spare, d.spare.Load()) })
			w.shards[0].addFunction(time.Millisecond, noop)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Same(t, spare, d.spare.Load(), "it was used, and is left again")
			time.Sleep(time.Second)
		})
	}
}

// Nor does it wait for a caller that has the lock of the next bucket's shard.
func TestHeldTasksDoNotWaitForALock(t *testing.T) {
	w := New(WithShards(2))
	defer w.Stop()
	ran := make(chan struct{})
	after := delay{w.clock.now(), 5 * time.Millisecond}
	for i := range w.shards {
		s := &w.shards[i]
		s.lock()
		_, err := s.accept(after, func() { ran <- struct{}{} }, oneShot)
		s.unlock()
		require.NoError(t, err)
	}
	w.shards[1].lock()
	<-ran
	w.shards[1].unlock()
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

// Many tasks are not held back at all: what they wait for may take long.
func TestManyTasksAreNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := New(WithShards(1))
		defer w.Stop()
		s, held := &w.shards[0], 0
		s.addOwn(time.Millisecond, func() { time.Sleep(time.Second) }) // the driver is late
		for range mostHeld {
			s.addFunction(time.Millisecond, noop)
		}
		for i := range 10 {
			s.addOwn(time.Duration(2+i)*time.Millisecond, func() {
				if w.driver.held != nil {
					held++
				}
			})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.Zero(t, w.Len())
		require.Zero(t, held)
	})
}

// What was held back waits while a few empty buckets are dropped, and not while many are.
func TestHeldTasksDoNotWaitForEmptyBuckets(t *testing.T) {
	for _, empty := range []int{10, 20} {
		w := New(WithManualDrive(), WithShards(1), WithWheelSize(65536))
		for i := range empty {
			timeout, err := w.Schedule(time.Second+time.Duration(i)*time.Millisecond, mustNotRun)
			require.NoError(t, err)
			require.True(t, timeout.Cancel())
		}
		require.GreaterOrEqual(t, w.driver.queue.Len(), empty)
		ran := make(chan bool, 1)
		w.runner.admit(1)
		w.driver.held = newBatch(function(func() { ran <- true }))
		w.driver.dropEmpty()
		if empty > 16 {
			require.Nil(t, w.driver.held)
			<-ran
		} else {
			require.NotNil(t, w.driver.held)
		}
		require.Zero(t, w.driver.queue.Len())
		w.Stop()
	}
}

// A task that is alone goes behind what is in the queue already.
func TestHeldTaskOvertakesNone(t *testing.T) {
	w := New(WithManualDrive())
	defer w.Stop()
	queue, ran := w.driver.workers, make(chan bool, 2)
	w.runner.admit(2)
	queue.add(newBatch(function(func() { ran <- true })), w.runner)
	w.driver.runHeld(newBatch(function(func() { ran <- !queue.hasTasks() })))
	require.True(t, <-ran)
	require.True(t, <-ran, "it ran while an older task was in the queue")
}
