package timingwheel

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
	s := &w.engine().Shards()[0]
	for range 200 {
		s.turns.gaveWay, s.turns.lastWait = -time.Hour, 0
		s.lockForDriver()
		entered := false // guarded by s.mu
		left := make(chan struct{})
		go func() {
			s.lock()
			entered = true
			s.mu.Unlock()
			close(left)
		}()
		for !s.turns.waiting.Load() {
			time.Sleep(time.Microsecond)
		}
		s.mu.Unlock()
		s.relockForDriver()
		first := entered
		s.mu.Unlock()
		<-left
		require.True(t, first)
	}
}

func TestDriverDoesNotGiveWayAgainAtOnce(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	s.turns.gaveWay = w.engine().Clock().now() + time.Hour // as if a moment ago, until the test ends
	s.turns.waiting.Store(true)
	s.relockForDriver() // would hang
	s.turns.waiting.Store(false)
	s.mu.Unlock()
}

// Before a bucket, the driver lets nobody in: it has not had the lock for long.
func TestDriverBeginsBeforeTheWaitingCaller(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	s.turns.gaveWay = -time.Hour
	s.turns.waiting.Store(true)
	s.lockForDriver() // would hang
	s.turns.waiting.Store(false)
	s.mu.Unlock()
}

// While the driver waits for the lock, callers do not take it in passing.
func TestNobodyPassesTheDriver(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	require.True(t, s.tryLock())
	s.mu.Unlock()
	s.turns.wanted.Store(true)
	require.False(t, s.tryLock())
	s.turns.wanted.Store(false)

	s.lock()
	driven := make(chan struct{})
	go func() {
		s.lockForDriver()
		s.mu.Unlock()
		close(driven)
	}()
	for !s.turns.wanted.Load() {
		time.Sleep(time.Microsecond)
	}
	s.mu.Unlock()
	<-driven
	require.False(t, s.turns.wanted.Load())
	require.True(t, s.tryLock())
	s.mu.Unlock()
}

// One caller at a time waits for the lock itself; the others line up in the turnstile, so that
// the driver has one rival at the most.
func TestCallersLineUpInTheGate(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	s.lock()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s.lock()
			s.unlock()
		})
	}
	for !s.turns.waiting.Load() {
		time.Sleep(time.Microsecond)
	}
	open := s.turns.turnstile.TryLock()
	s.unlock()
	wg.Wait()
	require.False(t, open, "the turnstile is open while a caller waits")
	require.True(t, s.turns.turnstile.TryLock())
	s.turns.turnstile.Unlock()
}

// The token of a caller who got the lock earlier does not count for the one who waits now.
func TestStaleTokenLetsNobodyBy(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	s.turns.gaveWay = -time.Hour
	s.turns.entered = make(chan struct{}, 1)
	s.turns.entered <- struct{}{} // stale
	s.mu.Lock()
	var entered atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		s.waitForLock()
		entered.Store(true)
		s.mu.Unlock()
	})
	for !s.turns.waiting.Load() {
		time.Sleep(time.Microsecond)
	}
	gaveWay := make(chan struct{})
	go func() {
		s.giveWay()
		close(gaveWay)
	}()
	select {
	case <-gaveWay:
		t.Error("the driver goes on while the caller waits")
	case <-time.After(50 * time.Millisecond):
	}
	s.mu.Unlock()
	<-gaveWay
	wg.Wait()
	require.True(t, entered.Load())
	require.Positive(t, s.turns.lastWait)
}

// The driver gives way no more often than minTurn, also when the last time was short: each
// time costs it some microseconds.
func TestDriverKeepsItsTurnForAWhile(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	s.turns.entered = make(chan struct{}, 1)
	s.turns.waiting.Store(true)
	end, fed := make(chan struct{}), make(chan struct{})
	go func() { // the callers, who never keep the driver waiting
		defer close(fed)
		for {
			select {
			case s.turns.entered <- struct{}{}:
			case <-end:
				return
			}
		}
	}()
	kept := false
	for round := 0; round < 10_000 && !kept; round++ { // the test itself may be slower than minTurn
		s.turns.gaveWay, s.turns.lastWait = s.clock.now(), 0
		before := s.turns.gaveWay
		s.giveWay()
		kept = s.turns.gaveWay == before
	}
	close(end)
	<-fed
	s.turns.waiting.Store(false)
	require.True(t, kept)
}

// The driver gives way at least every maxTurn, however long that took the last time, and also
// while the wheel's own clock stands still. If nobody waits any more, it goes on at once.
func TestDriverGivesWayAtLeastEveryMaxTurn(t *testing.T) {
	w := virtual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	s.turns.entered = make(chan struct{}, 1)
	w.engine().Clock().made = w.engine().Clock().made.Add(-time.Hour)
	before := s.clock.real() - 2*maxTurn
	s.turns.gaveWay, s.turns.lastWait = before, time.Hour
	s.giveWay()
	require.Greater(t, s.turns.gaveWay, before)
	require.Less(t, s.turns.lastWait, time.Hour)
}

// A caller that has just got the lock does not leave the driver waiting for it.
func TestGivingWayEnds(t *testing.T) {
	rounds := 3000
	if testing.Short() {
		rounds = 1000
	}
	w := manual()
	defer w.Stop()
	s := &w.engine().Shards()[0]
	for range rounds {
		s.turns.entered = nil // as for the first caller
		s.turns.gaveWay, s.turns.lastWait = -time.Hour, 0
		s.mu.Lock()
		var caller sync.WaitGroup
		caller.Go(func() {
			s.waitForLock()
			s.unlock()
		})
		for !s.turns.waiting.Load() {
			runtime.Gosched()
		}
		s.mu.Unlock()
		s.giveWay()
		caller.Wait()
	}
}
