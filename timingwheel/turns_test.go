package timingwheel

import (
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
		s.lockForDriver()
		first := entered
		s.mu.Unlock()
		<-left
		require.True(t, first)
	}
}

func TestDriverDoesNotGiveWayAgainAtOnce(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.turns.gaveWay = w.clock.now() + time.Hour // as if a moment ago, until the test ends
	s.turns.waiting.Store(true)
	s.lockForDriver() // would hang
	s.turns.waiting.Store(false)
	s.mu.Unlock()
}

// While the driver waits for the lock, callers do not take it in passing.
func TestNobodyPassesTheDriver(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
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
