package engine

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// fairness arranges who gets a shard's lock next: any number of callers, and the driver,
// which takes the lock again and again while a cascade goes on.
//
//   - A caller that finds the lock taken tries again for about 2 us, since it is mostly held
//     for less. Then it lines up at the turnstile. One caller at a time sleeps at the lock
//     itself, so the driver has at most one rival that sleeps there.
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
	if !s.tryLock() && !s.spin() {
		s.waitForLock()
	}
}

// spin tries to lock s.mu for about 2 us, or until the driver wants the lock. A caller that
// sleeps instead costs some microseconds, in which its processor may have nothing to do: of
// 2 goroutines on 2 processors that add, and cancel at random among 1 M, each operation took
// 498 ns by the wall for 334 with spin, and 732 ns of processor time for 621 (medians of 5 by
// turns; 8 goroutines: 572 for 351, and 733 for 652). A third of the tries gave 411 ns.
// sync.Mutex spins only if no other goroutine is runnable on its processor.
func (s *shard) spin() bool {
	for range 100 {
		for range 50 { // leaves the lock's cache line to its holder for some 20 ns
			if s.fairness.wanted.Load() {
				return false
			}
		}
		if s.tryLock() {
			return true
		}
	}
	return false
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

// lateHint tells callers whether the driver is late. On a busy machine it waits for a
// processor: its timer is looked at only when a goroutine leaves one, which may compute for
// 10 ms before, and once taken off, it stands in line behind all that compute. So now and
// then a caller that adds something while the driver is late lets others run first.
//
// Beside 16 goroutines that did nothing but add and cancel, 1000 timers a second were late
// by 12 ms at the 99th percentile instead of 190, and package time's by 20. The price is
// a load and a comparison for each add.
//
// A caller that yields may have to wait for a processor as long as the driver. So few do.
// When all yielded, one goroutine that added 20,000 timers beside others that computed took
// half a minute instead of a second.
//
// Nothing depends on the hint but how late timers are.
type lateHint struct {
	// lateAfter is when the driver will be late, since the wheel's start, in ns. The
	// driver sets it, and whoever makes it earlier. One of two at the same time may get
	// lost. But a time that has passed does not stay: the driver runs for it, and sets
	// the next.
	lateAfter atomic.Uint64

	// Of so many callers that find the driver late, one yields. It is here rather than a
	// constant for the tests. Only a caller that finds the driver late looks at it.
	oneOf uint32
}

const (
	grace = time.Millisecond // how late the driver may be before callers yield
	asked = 4096             // oneOf of every wheel
)

// next is called by the driver. It says when the driver will be at work again at the
// latest, or that it is at work now.
func (p *lateHint) next(at time.Duration) { p.lateAfter.Store(lateAt(at)) }

// expect notes a time at which the driver has to run.
func (p *lateHint) expect(at time.Duration) {
	if late := lateAt(at); late < p.lateAfter.Load() {
		p.lateAfter.Store(late)
	}
}

func lateAt(at time.Duration) uint64 { return uint64(min(Later(max(0, at), grace), farOff-1)) }

// isLate reports whether the driver is late, or now is no time of the wheel: negative, or
// farOff. One comparison tells both.
func (p *lateHint) isLate(now time.Duration) bool { return uint64(now) > p.lateAfter.Load() }

// yield lets others run, now and then, if the driver is late.
func (p *lateHint) yield(now time.Duration) {
	if p.isLate(now) && rand.Uint32N(p.oneOf) == 0 { // a count would be a cache line that all callers write
		runtime.Gosched()
	}
}
