package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// fairness arranges who gets a shard's lock next: any number of callers, and the driver,
// which takes the lock again and again while a cascade goes on.
//
//   - Callers that find the lock taken line up at the turnstile. One of them at a time waits
//     for the lock itself, so the driver has at most one rival.
//   - While the driver wants the lock, no caller takes it in passing.
//   - The driver lets the caller at the turnstile in before it goes on with a cascade. It
//     does so only after it has had the lock, on and off, for as long as it waited the last
//     time.
//
// Simpler ways were tried:
//
//   - A bare unlock between two slices: the driver takes the lock straight back, until
//     sync.Mutex declares starvation after 1 ms.
//   - runtime.Gosched between two slices: the driver goes to the end of the scheduler's
//     queue. With 8 goroutines computing on 2 processors, 1000 timers a second were 20 s
//     late.
//   - A driver that passes the turnstile itself: it stands in line behind all callers. With 8
//     callers that did nothing but add and cancel, a cascade of 1 M took seconds instead
//     of 20 ms.
//   - A driver that lets the caller in before it begins a bucket, too: the caller may have
//     to wait for a processor. Beside 16 callers that did nothing but add and cancel, 1000
//     timers a second were 1.5 times as late.
type fairness struct {
	turnstile   sync.Mutex  // held by the one caller that waits for the lock
	atTurnstile atomic.Bool // there is such a caller
	wanted      atomic.Bool // the driver wants the lock

	// entered has room for one token, which the caller that waits sends when it has the
	// lock, if the driver is giving way. The driver makes it before the first flush, and with
	// s.mu held. A caller must not: what it makes in a bubble of testing/synctest, the driver
	// cannot use outside. Nor can a caller use outside what the driver has made in a bubble:
	// but no driver gives way any more then.
	entered chan struct{}
	giving  atomic.Bool // the driver gives way

	// Only the driver uses what follows.
	gaveWay  time.Duration // when it last let a caller in, since the wheel's start
	lastWait time.Duration // how long that took
}

// The driver gives way no more often than every minTurn, since each time costs it some
// microseconds. It gives way at least every maxTurn, which a caller may have to wait.
const (
	minTurn = 50 * time.Microsecond
	maxTurn = time.Millisecond
)

// lock locks s.mu for a caller.
func (s *shard) lock() {
	if !s.tryLock() {
		s.waitForLock()
	}
}

func (s *shard) unlock() { s.mu.Unlock() }

// tryLock locks s.mu if it is free and the driver does not want it.
func (s *shard) tryLock() bool { return !s.fairness.wanted.Load() && s.mu.TryLock() }

func (s *shard) waitForLock() {
	t := &s.fairness
	t.turnstile.Lock()
	defer t.turnstile.Unlock()
	t.atTurnstile.Store(true)
	s.mu.Lock()
	t.atTurnstile.Store(false)
	if !t.giving.Load() { // after the Store: a driver that has seen atTurnstile has set giving before
		return
	}
	select {
	case t.entered <- struct{}{}:
	default:
	}
}

// lockLast locks s.mu for a caller that does so again and again, and lets all others go
// first. With lock, such a caller would take it straight back.
func (s *shard) lockLast() {
	for s.fairness.wanted.Load() {
		runtime.Gosched()
	}
	s.waitForLock() // behind the caller that is at the turnstile
}

// relockForDriver locks s.mu for the driver, which goes on with a cascade.
func (s *shard) relockForDriver() {
	if s.fairness.atTurnstile.Load() {
		s.giveWay()
	}
	s.lockForDriver()
}

// lockForDriver locks s.mu for the driver.
func (s *shard) lockForDriver() {
	if s.mu.TryLock() {
		return
	}
	t := &s.fairness
	t.wanted.Store(true)
	s.mu.Lock()
	t.wanted.Store(false)
}

// giveWay waits until the caller at the turnstile has the lock, unless the driver gave
// way a moment ago.
func (s *shard) giveWay() {
	t := &s.fairness
	before := s.clock.real()
	if before-t.gaveWay < min(max(t.lastWait, minTurn), maxTurn) {
		return
	}
	select {
	case <-t.entered: // from an earlier caller
	default:
	}
	t.giving.Store(true)
	if t.atTurnstile.Load() {
		<-t.entered // the caller that waits has yet to send
	}
	t.giving.Store(false)
	t.gaveWay = s.clock.real()
	t.lastWait = t.gaveWay - before
}
