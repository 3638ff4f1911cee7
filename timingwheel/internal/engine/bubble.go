package engine

import (
	"time"

	"github.com/tickwheel/tickwheel/internal/bubble"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

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
	if e.IsStopped() {
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
