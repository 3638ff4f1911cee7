package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Between two slices the caller that waits gets the lock before the driver has it again.
// The next caller gets it only when the driver has had its share.
func TestDriverLetsTheWaitingCallerIn(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	for range 200 {
		s.Fairness.GaveWay, s.Fairness.LastWait = -time.Hour, 0
		s.LockForDriver()
		entered := false // guarded by s.mu
		left := make(chan struct{})
		go func() {
			s.Lock()
			entered = true
			s.Mu.Unlock()
			close(left)
		}()
		for !s.Fairness.Waiting.Load() {
			time.Sleep(time.Microsecond)
		}
		s.Mu.Unlock()
		s.RelockForDriver()
		first := entered
		s.Mu.Unlock()
		<-left
		require.True(t, first)
	}
}

// So it is between two slices of a cascade.
func TestCascadeLetsTheWaitingCallerIn(t *testing.T) {
	for range 100 {
		w := manual()
		s, d := &w.shards[0], &w.driver
		for range 2 * SliceLen {
			addFunction(s, 0, noop)
		}
		b, ok := d.Queue.Poll()
		require.True(t, ok)
		d.Begin(b)
		s.Fairness.GaveWay, s.Fairness.LastWait = -time.Hour, 0
		s.Mu.Lock()
		found := make(chan int)
		go func() {
			s.Lock()
			handed := len(d.Due.Tasks)
			s.Mu.Unlock()
			found <- handed
		}()
		for !s.Fairness.Waiting.Load() {
			time.Sleep(time.Microsecond)
		}
		s.Mu.Unlock()
		d.Step()
		require.Equal(t, SliceLen, <-found)
		w.Stop()
	}
}

func TestDriverDoesNotGiveWayAgainAtOnce(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.Fairness.GaveWay = w.clock.Now() + time.Hour // as if a moment ago, until the test ends
	s.Fairness.Waiting.Store(true)
	s.RelockForDriver() // would hang
	s.Fairness.Waiting.Store(false)
	s.Mu.Unlock()
}

// Before a bucket, the driver lets nobody in: it has not had the lock for long.
func TestDriverBeginsBeforeTheWaitingCaller(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.Fairness.GaveWay = -time.Hour
	s.Fairness.Waiting.Store(true)
	s.LockForDriver() // would hang
	s.Fairness.Waiting.Store(false)
	s.Mu.Unlock()
}

// While the driver waits for the lock, callers do not take it in passing.
func TestNobodyPassesTheDriver(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	require.True(t, s.TryLock())
	s.Mu.Unlock()
	s.Fairness.Wanted.Store(true)
	require.False(t, s.TryLock())
	s.Fairness.Wanted.Store(false)

	s.Lock()
	driven := make(chan struct{})
	go func() {
		s.LockForDriver()
		s.Mu.Unlock()
		close(driven)
	}()
	for !s.Fairness.Wanted.Load() {
		time.Sleep(time.Microsecond)
	}
	s.Mu.Unlock()
	<-driven
	require.False(t, s.Fairness.Wanted.Load())
	require.True(t, s.TryLock())
	s.Mu.Unlock()
}

// One caller at a time waits for the lock itself; the others line up in the turnstile, so that
// the driver has one rival at the most.
func TestCallersLineUpInTheGate(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.Lock()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s.Lock()
			defer s.Unlock()
		})
	}
	for !s.Fairness.Waiting.Load() {
		time.Sleep(time.Microsecond)
	}
	open := s.Fairness.Turnstile.TryLock()
	s.Unlock()
	wg.Wait()
	require.False(t, open, "the turnstile is open while a caller waits")
	require.True(t, s.Fairness.Turnstile.TryLock())
	s.Fairness.Turnstile.Unlock()
}

// The token of a caller who got the lock earlier does not count for the one who waits now.
func TestStaleTokenLetsNobodyBy(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.Fairness.GaveWay = -time.Hour
	s.Fairness.Entered = make(chan struct{}, 1)
	s.Fairness.Entered <- struct{}{} // stale
	s.Mu.Lock()
	var entered atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		s.WaitForLock()
		entered.Store(true)
		s.Mu.Unlock()
	})
	for !s.Fairness.Waiting.Load() {
		time.Sleep(time.Microsecond)
	}
	gaveWay := make(chan struct{})
	go func() {
		s.GiveWay()
		close(gaveWay)
	}()
	select {
	case <-gaveWay:
		t.Error("the driver goes on while the caller waits")
	case <-time.After(50 * time.Millisecond):
	}
	s.Mu.Unlock()
	<-gaveWay
	wg.Wait()
	require.True(t, entered.Load())
	require.Positive(t, s.Fairness.LastWait)
}

// The driver gives way no more often than minTurn, also when the last time was short: each
// time costs it some microseconds.
func TestDriverKeepsItsTurnForAWhile(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.Fairness.Entered = make(chan struct{}, 1)
	s.Fairness.Waiting.Store(true)
	end, fed := make(chan struct{}), make(chan struct{})
	go func() { // the callers, who never keep the driver waiting
		defer close(fed)
		for {
			select {
			case s.Fairness.Entered <- struct{}{}:
			case <-end:
				return
			}
		}
	}()
	kept := false
	for round := 0; round < 10_000 && !kept; round++ { // the test itself may be slower than minTurn
		s.Fairness.GaveWay, s.Fairness.LastWait = s.Clock.Now(), 0
		before := s.Fairness.GaveWay
		s.GiveWay()
		kept = s.Fairness.GaveWay == before
	}
	close(end)
	<-fed
	s.Fairness.Waiting.Store(false)
	require.True(t, kept)
}

// The driver gives way at least every maxTurn, however long that took the last time, and also
// while the wheel's own clock stands still. If nobody waits any more, it goes on at once.
func TestDriverGivesWayAtLeastEveryMaxTurn(t *testing.T) {
	w := virtual()
	defer w.Stop()
	s := &w.shards[0]
	s.Fairness.Entered = make(chan struct{}, 1)
	w.clock.Made = w.clock.Made.Add(-time.Hour)
	before := s.Clock.Real() - 2*MaxTurn
	s.Fairness.GaveWay, s.Fairness.LastWait = before, time.Hour
	s.GiveWay()
	require.Greater(t, s.Fairness.GaveWay, before)
	require.Less(t, s.Fairness.LastWait, time.Hour)
}

// A caller that has just got the lock does not leave the driver waiting for it.
func TestGivingWayEnds(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 1000
	}
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	for range rounds {
		s.Fairness.Entered = nil // as for the first caller
		s.Fairness.GaveWay, s.Fairness.LastWait = -time.Hour, 0
		s.Mu.Lock()
		var caller sync.WaitGroup
		caller.Go(func() {
			s.WaitForLock()
			s.Unlock()
		})
		for !s.Fairness.Waiting.Load() {
			runtime.Gosched()
		}
		s.Mu.Unlock()
		s.GiveWay()
		caller.Wait()
	}
}
