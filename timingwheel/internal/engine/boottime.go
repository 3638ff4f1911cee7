package engine

import (
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/tickwheel/tickwheel/internal/bubble"
	"github.com/tickwheel/tickwheel/internal/wallclock"
)

// bootTime makes a clock count the time for which the machine was suspended. The monotonic
// clock, which Go's timers follow, stands still meanwhile.
//
// The tempting way is to correct the clock when the system tells that the machine has
// resumed. But a caller may add an entry before that is known. When the clock then moves by
// the hours slept, the entry would fire early by these hours. So each reading tells by itself:
// a suspend moves the wall clock and not the monotonic one, and time.Now reads both. Only when
// one of them has moved without the other are the system's clocks asked for how long the machine
// was suspended. A reading takes some 20 ns more than one of time.Since; to ask each time
// would take 300.
//
// The notice of the system has another purpose. It wakes the driver, whose timer has not
// counted the suspend either.
type bootTime struct {
	// start is when the wheel was made, by the clocks as they show now: the time since start is
	// what passed, and a time reckoned from it is right by the wall clock. It is replaced
	// when a clock has moved without the other.
	start atomic.Pointer[time.Time]

	made      time.Time                                     // when the clock was made; counts without suspends
	suspended func() (least, most time.Duration, err error) // wallclock.Suspended; tests put another in its place
	before    time.Duration                                 // at most the suspended time until made
	forward   func(d time.Duration)                         // moves the queue's clock
	stop      func()                                        // ends the watch

	mu    sync.Mutex
	slept time.Duration // since made, at least; guarded by mu
}

// step is the least difference of two clocks that is taken for a step of one. They are read
// one after the other, and a thread may lose its processor between.
const step = time.Millisecond

// CountSuspends makes the clock of a new engine count the time for which the machine is
// suspended, where it does not do so by itself, and where the system tells.
func (e *Engine) CountSuspends(log *slog.Logger) {
	if e.clock.IsManual() || e.clock.IsBubbled() || wallclock.MonotonicCounts {
		return
	}
	b, err := newBootTime(e.clock.Start, e.driver.queue.Forward)
	if err == nil {
		e.clock.boot, e.clock.plain = b, false
	} else if log != nil {
		log.Warn("timingwheel: suspended time is not counted", "error", err)
	}
}

func newBootTime(made time.Time, forward func(time.Duration)) (*bootTime, error) {
	b := &bootTime{made: made, suspended: wallclock.Suspended, forward: forward}
	b.start.Store(&made)
	var err error
	if _, b.before, err = b.suspended(); err != nil {
		return nil, err
	}
	watched := weak.Make(b) // so that a wheel that is forgotten is garbage
	b.stop, err = wallclock.Watch(func(error) {
		if b := watched.Value(); b != nil {
			b.look()
		}
	})
	if err != nil {
		return nil, err
	}
	runtime.AddCleanup(b, func(stop func()) { stop() }, b.stop)
	return b, nil
}

func (b *bootTime) now() time.Duration { return b.since(time.Now()) }

// since returns what has passed at a time that was just read.
func (b *bootTime) since(now time.Time) time.Duration {
	if bubble.IsTime(now) { // the clock was made outside
		return farOff
	}
	start := b.start.Load()
	passed := now.Sub(*start)
	if by := now.UnixNano() - start.UnixNano() - int64(passed); by > int64(step) || by < -int64(step) {
		return b.look()
	}
	return passed
}

// look sets the start anew. If the machine was suspended, it moves the queue's clock. It
// returns what has passed now. It takes no lock of a shard, and the caller may hold one.
//
// The error of the watch makes no difference: the clock is right without it, and late timers
// are found at the next reading.
func (b *bootTime) look() (passed time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	least, _, err := b.suspended()
	if more := least - b.before - b.slept; err == nil && more > 0 {
		b.slept += more
		b.forward(more)
	}
	now := time.Now()
	passed = now.Sub(b.made) + b.slept
	start := now.Add(-passed)
	b.start.Store(&start)
	return passed
}

// sleptSoFar returns for how long the machine was suspended since the clock was made.
func (b *bootTime) sleptSoFar() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.slept
}
