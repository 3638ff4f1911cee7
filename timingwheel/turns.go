package timingwheel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// turns arranges who gets a shard's lock next, between callers, of whom there may
// be any number, and the driver, which takes it again as soon as it has released
// it while a long cascade goes on. Neither must starve the other:
//
//   - Callers who find the lock taken line up in the gate, so that one of them at a
//     time waits for the lock itself, and the driver has one rival at the most.
//   - While the driver wants the lock, no caller takes it in passing.
//   - The driver lets the caller at the gate in before it goes on, but only after
//     it has had the lock, on and off, for as long as it waited the last time.
//
// Simpler ways were tried. After a bare unlock between two slices, the driver takes
// the lock straight back, until sync.Mutex declares starvation after 1 ms. With
// runtime.Gosched in between, the driver goes to the end of the scheduler's queue:
// with 8 goroutines computing on 2 processors, 1000 timers a second were 20 s
// late. And when the driver passed the gate itself, it stood in line behind all
// callers: with 8 that did nothing but add and cancel, a cascade of 1 M took
// seconds instead of 20 ms.
type turns struct {
	gate    sync.Mutex    // held by the one caller who waits for the lock
	waiting atomic.Bool   // there is one
	entered chan struct{} // gets a token, unless it has one, when that one has got it
	wanted  atomic.Bool   // by the driver

	// What follows is the driver's alone.
	gaveWay  time.Duration // when it last let a caller in, since the start
	lastWait time.Duration // how long that took
}

// The driver gives way no more often than minTurn, since each time costs it some
// microseconds, and no less often than maxTurn, which a caller may have to wait.
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
func (s *shard) tryLock() bool { return !s.turns.wanted.Load() && s.mu.TryLock() }

func (s *shard) waitForLock() {
	t := &s.turns
	t.gate.Lock()
	defer t.gate.Unlock()
	t.waiting.Store(true)
	s.mu.Lock()
	t.waiting.Store(false)
	select {
	case t.entered <- struct{}{}:
	default:
	}
}

// lockLast locks s.mu for a caller who does so again and again, and lets all others go
// first. With lock it would take it straight back, and they would wait until sync.Mutex
// declares starvation, 1 ms.
func (s *shard) lockLast() {
	for s.turns.wanted.Load() {
		runtime.Gosched()
	}
	s.waitForLock() // behind the one who stands at the gate
}

// lockForDriver locks s.mu for the driver.
func (s *shard) lockForDriver() {
	t := &s.turns
	if t.waiting.Load() {
		s.giveWay()
	}
	if s.mu.TryLock() {
		return
	}
	t.wanted.Store(true)
	s.mu.Lock()
	t.wanted.Store(false)
}

// giveWay waits until the caller at the gate has got the lock, unless the last
// time was just now.
func (s *shard) giveWay() {
	t := &s.turns
	before := s.clock.now()
	if before-t.gaveWay < min(max(t.lastWait, minTurn), maxTurn) {
		return
	}
	select {
	case <-t.entered: // of one who came earlier
	default:
	}
	if t.waiting.Load() {
		<-t.entered // who waits has yet to send
	}
	t.gaveWay = s.clock.now()
	t.lastWait = t.gaveWay - before
}
