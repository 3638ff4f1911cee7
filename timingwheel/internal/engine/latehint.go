package engine

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

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

// expect is told a time at which the driver has to run.
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
