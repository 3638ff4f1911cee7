package engine

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/internal/bubble"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// DefaultTick is the tick of a wheel that is not told otherwise.
const DefaultTick = time.Millisecond

// clock counts time in whole ticks since the wheel was made. It reads only the monotonic
// clock, with time.Since, at half the price of time.Now. A manual clock reads nothing: it
// stands still until Advance sets it. And one that counts suspends reads two clocks.
type clock struct {
	base   time.Time // Start as bubble.Base has it: Now and Since count from it
	Start  time.Time // what At and Time count from
	tick   time.Duration
	last   int64        // the last tick within the longest time.Duration
	manual *manualClock // nil: real time
	boot   *bootTime    // counts the time of suspends too; nil: the clock does not
	plain  bool         // neither manual nor boot: Now is time.Since(base)
}

// manualClock is what a manual clock has besides.
type manualClock struct {
	now  atomic.Int64 // time since the start, in ns, that Advance has set
	made time.Time    // in real time
}

// endOfClock is where a manual clock ends. A timer that is armed there for later has a
// deadline that saturates, a nanosecond after. So it never comes, and nothing is armed again and
// again at a time that stands still.
const endOfClock time.Duration = math.MaxInt64 - 1

// newClock returns a clock that counts from start, a reading of time.Now; or a manual clock,
// which stands there.
func newClock(tick time.Duration, start time.Time, manual bool) clock {
	c := clock{base: start, Start: start, tick: tick, last: int64(math.MaxInt64 / tick), plain: !manual}
	if manual {
		c.manual = &manualClock{made: time.Now()}
	} else {
		c.base = bubble.Base(start)
	}
	return c
}

// Now returns the time since the start. A caller who is not where the clock was made gets a time
// that is negative or farOff.
func (c *clock) Now() time.Duration {
	switch {
	case c.plain:
		return time.Since(c.base)
	case c.boot != nil:
		return c.boot.now()
	default:
		return time.Duration(c.manual.now.Load())
	}
}

// Read returns the time: time.Now(), or that of the manual clock.
func (c *clock) Read() time.Time {
	if c.manual != nil {
		return c.Start.Add(c.Now())
	}
	return time.Now()
}

// Since returns the time from the start to t, which Read has just returned. It is as that of Now.
func (c *clock) Since(t time.Time) time.Duration {
	if c.boot != nil {
		return c.boot.since(t)
	}
	return t.Sub(c.base)
}

// IsManual reports whether the clock moves only when Advance sets it.
func (c *clock) IsManual() bool { return c.manual != nil }

// Virtual returns the clock if it is manual, and nil for real time. Times of two clocks can be
// compared if it is the same for both.
func (c *clock) Virtual() any {
	if c.IsManual() {
		return c
	}
	return nil
}

// IsBubbled reports whether the clock was made in a bubble of testing/synctest. Times there
// have no monotonic reading.
func (c *clock) IsBubbled() bool { return bubble.IsTime(c.made()) }

// advance moves a manual clock, and never back: a bucket that was opened after an idle stretch
// may have expired before that. One goroutine at a time does so.
func (c *clock) advance(to time.Duration) {
	if c.manual != nil && to > c.Now() {
		c.manual.now.Store(int64(to))
	}
}

// real returns the real time since the clock was made, for what must not stand still with
// a manual clock.
func (c *clock) real() time.Duration { return time.Since(c.made()) }

// made returns when the clock was made, in real time.
func (c *clock) made() time.Time {
	if c.manual != nil {
		return c.manual.made
	}
	return c.Start
}

// deadline returns the first tick that is not before now+d. It never rounds down. It
// saturates at the tick that ends the longest time.Duration. A d that is not positive
// counts as zero.
func (c *clock) deadline(now, d time.Duration) int64 {
	at := Later(now, max(0, d))
	if c.tick == DefaultTick {
		return int64(divideUp(at, DefaultTick)) // by a constant, which saves 5 ns
	}
	return int64(divideUp(at, c.tick))
}

// divideUp returns t/tick, rounded up. It does not overflow.
func divideUp(t, tick time.Duration) time.Duration {
	ticks := t / tick
	if t > ticks*tick {
		ticks++
	}
	return ticks
}

// Delay says when a task is due: d after now.
type Delay struct {
	Now time.Duration // since the start
	D   time.Duration
}

// Later returns t+d, or the longest time.Duration if t+d overflows. Neither may be
// negative.
func Later(t, d time.Duration) time.Duration {
	if t+d < t {
		return math.MaxInt64
	}
	return t + d
}

// RoundUp returns d rounded up to a tick, saturating. d must not be negative.
func (c *clock) RoundUp(d time.Duration) time.Duration {
	if rest := d % c.tick; rest > 0 {
		return Later(d, c.tick-rest)
	}
	return d
}

// duration returns the length of this many ticks, saturating.
func (c *clock) duration(ticks int64) time.Duration {
	if ticks > c.last {
		return math.MaxInt64
	}
	return time.Duration(ticks) * c.tick
}

// Time returns the time of a tick, saturating at start+math.MaxInt64.
func (c *clock) Time(tick int64) time.Time { return c.At(c.duration(tick)) }

// At returns the time d after the start. If the clock counts suspends, the time is right for
// those until now.
func (c *clock) At(d time.Duration) time.Time {
	if c.boot != nil {
		return c.boot.start.Load().Add(d)
	}
	return c.Start.Add(d)
}

// A bubble of testing/synctest has a clock of its own. Package bubble makes the two clocks differ
// by ages, whatever date the bubble has: for a caller who is not where the wheel was made, the
// time since its start is far off. It costs one comparison to see that.

// farOff is a time that no wheel reaches in its life, or seldom.
const farOff = bubble.Off

// Here returns the engine that is right for the caller, and the time of its clock. In a
// bubble, for an engine that was made outside, that is a small one of its own: it is made
// for the call, so that all that comes of the call is the bubble's. Bubbles cannot be told
// apart, so it is not kept.
//
// If the driver is late, Here may let it run first. So the caller, who is about to add, must
// hold no lock.
func (e *Engine) Here() (*Engine, time.Duration) {
	var now time.Duration
	if e.clock.plain { // Now, which the compiler does not inline
		now = time.Since(e.clock.base)
	} else {
		now = e.clock.Now()
	}
	if e.driver.lateHint.isLate(now) {
		return e.HereAt(now)
	}
	return e, now
}

// HereAt is Here for a caller who has read the clock.
func (e *Engine) HereAt(now time.Duration) (*Engine, time.Duration) {
	if uint64(now) >= uint64(farOff) {
		return e.here(now)
	}
	e.driver.lateHint.yield(now)
	return e, now
}

func (e *Engine) here(now time.Duration) (*Engine, time.Duration) {
	if e.clock.fits() {
		return e, now
	}
	e.clock.panicIfBubbled()
	if e.driver.manual {
		panic("timingwheel: the wheel with WithManualDrive was made outside of this testing/synctest bubble: make it in the bubble")
	}
	c := &Config{
		Tick: e.clock.tick, Slots: 64, Shards: 1, Executor: run.NewQueue(nil),
		PanicHandler: e.runner.PanicHandler, Tracer: e.runner.Tracer, Log: e.runner.Log,
	}
	local := New(c, e.attached)
	if e.IsClosed() {
		local.stopShards()
	}
	return local, local.clock.Now()
}

// Check panics if the caller, who has read the clock, is not where the clock belongs.
func (c *clock) Check(now time.Duration) {
	if uint64(now) >= uint64(farOff) { // apart from the rest, so that the compiler inlines it
		c.check()
	}
}

func (c *clock) check() {
	c.MustFit("timingwheel: what was made outside of this testing/synctest bubble is set in it: make it in the bubble")
}

// MustFit panics if the caller is not where the clock belongs: with the given sentence in a
// bubble, for a clock that was made outside.
func (c *clock) MustFit(sentence string) {
	if !c.fits() {
		c.panicIfBubbled()
		panic(sentence)
	}
}

// mustEndHere is for who ends the engine or drives it. In a bubble, for an engine that was
// made outside, that cannot work. Tasks that move to package time would wait for the bubble's
// clock, and the notice for which Shutdown waits would come from outside.
func (e *Engine) mustEndHere() {
	e.clock.MustFit("timingwheel: a wheel that was made outside of this testing/synctest bubble is driven or stopped in it: do that outside, or make the wheel in the bubble")
}

// fits reports whether the caller is where the clock was made, as far as can be told.
func (c *clock) fits() bool { return c.IsManual() || bubble.Inside() == c.IsBubbled() }

func (c *clock) panicIfBubbled() {
	if c.IsBubbled() {
		panic("timingwheel: the wheel was made in a testing/synctest bubble and is used outside of it: make another one outside")
	}
}

// CheckOutside panics if the clock was made in a bubble, and the caller is outside. It is for
// what uses a channel or a timer of package time, which end the process there.
func (c *clock) CheckOutside() {
	if c.IsBubbled() && !c.fits() {
		c.panicIfBubbled()
	}
}
