package engine

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Between two slices the caller that waits gets the lock before the driver has it again.
// The next caller gets it only when the driver has had its share.
func TestDriverLetsTheWaitingCallerIn(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.fairness.entered = make(chan struct{}, 1) // as the first flush does
	for range 200 {
		s.fairness.gaveWay, s.fairness.lastWait = -time.Hour, 0
		s.lockForDriver()
		entered := false // guarded by s.mu
		left := make(chan struct{})
		go func() {
			s.lock()
			entered = true
			s.mu.Unlock()
			close(left)
		}()
		for !s.fairness.atTurnstile.Load() {
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

// So it is between two slices of a cascade.
func TestCascadeLetsTheWaitingCallerIn(t *testing.T) {
	for range 100 {
		w := manual()
		s, d := &w.shards[0], &w.driver
		for range 2 * SliceLen {
			addFunction(s, 0, noop)
		}
		b, ok := d.queue.Poll()
		require.True(t, ok)
		d.flushFirst(b)
		s.fairness.gaveWay, s.fairness.lastWait = -time.Hour, 0
		s.mu.Lock()
		found := make(chan int)
		go func() {
			s.lock()
			handed := len(d.found.tasks)
			s.mu.Unlock()
			found <- handed
		}()
		for !s.fairness.atTurnstile.Load() {
			time.Sleep(time.Microsecond)
		}
		s.mu.Unlock()
		d.flushNext()
		require.Equal(t, SliceLen, <-found)
		w.Stop()
	}
}

func TestDriverDoesNotGiveWayAgainAtOnce(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.fairness.gaveWay = w.clock.Now() + time.Hour // as if a moment ago, until the test ends
	s.fairness.atTurnstile.Store(true)
	s.relockForDriver() // would hang
	s.fairness.atTurnstile.Store(false)
	s.mu.Unlock()
}

// Before a bucket, the driver lets nobody in: it has not had the lock for long.
func TestDriverBeginsBeforeTheWaitingCaller(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.fairness.gaveWay = -time.Hour
	s.fairness.atTurnstile.Store(true)
	s.lockForDriver() // would hang
	s.fairness.atTurnstile.Store(false)
	s.mu.Unlock()
}

// While the driver waits for the lock, callers do not take it in passing.
func TestNobodyPassesTheDriver(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	require.True(t, s.tryLock())
	s.mu.Unlock()
	s.fairness.wanted.Store(true)
	require.False(t, s.tryLock())
	s.fairness.wanted.Store(false)

	s.lock()
	driven := make(chan struct{})
	go func() {
		s.lockForDriver()
		s.mu.Unlock()
		close(driven)
	}()
	for !s.fairness.wanted.Load() {
		time.Sleep(time.Microsecond)
	}
	s.mu.Unlock()
	<-driven
	require.False(t, s.fairness.wanted.Load())
	require.True(t, s.tryLock())
	s.mu.Unlock()
}

// One caller at a time waits for the lock itself; the others line up in the turnstile, so that
// the driver has one rival at the most.
func TestCallersLineUpInTheGate(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.lock()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			s.lock()
			defer s.unlock()
		})
	}
	for !s.fairness.atTurnstile.Load() {
		time.Sleep(time.Microsecond)
	}
	open := s.fairness.turnstile.TryLock()
	s.unlock()
	wg.Wait()
	require.False(t, open, "the turnstile is open while a caller waits")
	require.True(t, s.fairness.turnstile.TryLock())
	s.fairness.turnstile.Unlock()
}

// The token of a caller who got the lock earlier does not count for the one who waits now.
func TestStaleTokenLetsNobodyBy(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.fairness.gaveWay = -time.Hour
	s.fairness.entered = make(chan struct{}, 1)
	s.fairness.entered <- struct{}{} // stale
	s.mu.Lock()
	var entered atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		s.waitForLock()
		entered.Store(true)
		s.mu.Unlock()
	})
	for !s.fairness.atTurnstile.Load() {
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
	require.Positive(t, s.fairness.lastWait)
}

// The driver gives way no more often than minTurn, also when the last time was short: each
// time costs it some microseconds.
func TestDriverKeepsItsTurnForAWhile(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.fairness.entered = make(chan struct{}, 1)
	s.fairness.atTurnstile.Store(true)
	end, fed := make(chan struct{}), make(chan struct{})
	go func() { // the callers, who never keep the driver waiting
		defer close(fed)
		for {
			select {
			case s.fairness.entered <- struct{}{}:
			case <-end:
				return
			}
		}
	}()
	kept := false
	for round := 0; round < 10_000 && !kept; round++ { // the test itself may be slower than minTurn
		s.fairness.gaveWay, s.fairness.lastWait = s.clock.Now(), 0
		before := s.fairness.gaveWay
		s.giveWay()
		kept = s.fairness.gaveWay == before
	}
	close(end)
	<-fed
	s.fairness.atTurnstile.Store(false)
	require.True(t, kept)
}

// The driver gives way at least every maxTurn, however long that took the last time, and also
// while the wheel's own clock stands still. If nobody waits any more, it goes on at once.
func TestDriverGivesWayAtLeastEveryMaxTurn(t *testing.T) {
	w := virtual()
	defer w.Stop()
	s := &w.shards[0]
	s.fairness.entered = make(chan struct{}, 1)
	w.clock.manual.made = w.clock.manual.made.Add(-time.Hour)
	before := s.clock.real() - 2*maxTurn
	s.fairness.gaveWay, s.fairness.lastWait = before, time.Hour
	s.giveWay()
	require.Greater(t, s.fairness.gaveWay, before)
	require.Less(t, s.fairness.lastWait, time.Hour)
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
		s.fairness.entered = make(chan struct{}, 1)
		s.fairness.gaveWay, s.fairness.lastWait = -time.Hour, 0
		s.mu.Lock()
		var caller sync.WaitGroup
		caller.Go(func() {
			s.waitForLock()
			s.unlock()
		})
		for !s.fairness.atTurnstile.Load() {
			runtime.Gosched()
		}
		s.mu.Unlock()
		s.giveWay()
		caller.Wait()
	}
}

// A caller that has the lock is no longer counted as waiting when it sends its token. If it
// were, the driver could throw that token away as an earlier caller's, and wait for another
// that nobody sends.
func TestDriverWaitsForNoTokenThatItHas(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	s.fairness.entered = make(chan struct{}, 1) // as the first flush does
	var turns atomic.Int64
	var over atomic.Bool
	var driver sync.WaitGroup
	driver.Go(func() {
		for !over.Load() {
			s.fairness.gaveWay, s.fairness.lastWait = -time.Hour, 0
			s.giveWay()
			turns.Add(1)
			runtime.Gosched()
		}
	})
	for end := time.Now().Add(time.Second / 2); time.Now().Before(end); {
		s.waitForLock()
		s.unlock()
		began := time.Now()
		for before := turns.Load(); turns.Load() < before+2; runtime.Gosched() {
			require.Less(t, time.Since(began), time.Minute, "the driver waits for a token")
		}
	}
	over.Store(true)
	driver.Wait()
}

// A caller in a bubble makes no channel that the driver uses outside.
func TestCallersInABubbleLeaveNothingBehind(t *testing.T) {
	w := manual()
	defer w.Stop()
	s := &w.shards[0]
	synctest.Test(t, func(*testing.T) {
		s.waitForLock()
		s.unlock()
	})
	require.Nil(t, s.fairness.entered)
}

func TestPulse(t *testing.T) {
	var p lateHint
	p.next(math.MaxInt64)
	require.False(t, p.isLate(farOff-1))
	require.True(t, p.isLate(-1), "no time of the wheel")
	p.expect(time.Second)
	require.False(t, p.isLate(time.Second+grace))
	require.True(t, p.isLate(time.Second+grace+1))
	p.expect(time.Minute)
	require.True(t, p.isLate(2*time.Second), "the earlier time counts")
	p.next(2 * time.Second)
	require.False(t, p.isLate(2*time.Second))
	require.True(t, p.isLate(time.Minute))
}

// The pulse follows what the wheel holds, whoever adds it.
func TestPulseOfAWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withShards(1))
		defer w.Stop()
		lateAfter := func() time.Duration {
			synctest.Wait()
			return time.Duration(w.driver.lateHint.lateAfter.Load())
		}
		const never = time.Duration(farOff - 1)
		require.Equal(t, never, lateAfter(), "nothing is pending")
		w.Schedule(100*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+grace, lateAfter())
		w.Schedule(200*time.Millisecond, noop)
		require.Equal(t, 100*time.Millisecond+grace, lateAfter())
		canceled, _ := w.Schedule(50*time.Millisecond, noop)
		require.Equal(t, 50*time.Millisecond+grace, lateAfter())
		canceled.Cancel()
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, 200*time.Millisecond+grace, lateAfter())
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, never, lateAfter())
		w.Schedule(time.Second, noop)
		w.Stop()
		require.Equal(t, never, lateAfter(), "after Stop nothing is late")
	})
}

// On one processor, a goroutine that adds without a pause lets the driver run when something
// is due. One that computes does so only when it is taken off the processor. Here it only
// does what each add does first: with the race detector, an add takes too long. What counts
// is how often it does so while the driver is late, and no time: on a busy machine other
// programs have the processor most of the time.
func TestCallersYieldToALateDriver(t *testing.T) {
	needsProcessors(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const oneOf = 64 // what computes does some thousand rounds also on a busy machine
	w := newTestWheel()
	defer w.Stop()
	w.driver.lateHint.oneOf = oneOf
	late := func(loop func(now time.Duration)) int {
		var all []int
		for range 9 {
			var fired atomic.Bool
			n, after := 0, w.clock.Now()+2*time.Millisecond
			w.AfterFunc(2*time.Millisecond, func() { fired.Store(true) })
			for !fired.Load() {
				now := w.clock.Now()
				if now > after+w.clock.tick+grace {
					n++
				}
				loop(now)
			}
			all = append(all, n)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	atLeastOnce(t, func() bool {
		computing, adding := late(func(time.Duration) {}), late(func(now time.Duration) { w.HereAt(now) })
		t.Logf("late for %d calls, and beside one that computes for %d rounds", adding, computing)
		return adding < 8*oneOf
	})
}

// A driver that is behind but at work is not late: nobody has to yield to it.
func TestPulseOfADriverAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestWheel(withShards(1))
		defer w.Stop()
		s, late := &w.shards[0], true
		addOwn(s, 100*time.Millisecond, func() { time.Sleep(10 * time.Millisecond) })
		addOwn(s, 101*time.Millisecond, func() { late = w.driver.lateHint.isLate(w.clock.Now()) })
		time.Sleep(time.Second)
		synctest.Wait()
		require.False(t, late)
	})
}
