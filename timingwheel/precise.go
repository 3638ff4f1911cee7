package timingwheel

import "github.com/tickwheel/tickwheel/delayqueue"

// WithPreciseWakeups makes the driver wake up on time, on Linux, for one file
// descriptor, a timerfd.
//
// An idle Go process waits for its timers in whole milliseconds, so that what waits
// on one, time.AfterFunc included, is late by up to a millisecond, and after a long
// sleep by up to 0.1 % of it. With this option the driver is late by some
// microseconds, and what is left is the wheel's own rounding up to a tick: choose a
// finer one with [WithTick], or there is little to gain.
//
// # TABLE
//
// Stop gives the descriptor back, and so does the garbage collector once a wheel is
// forgotten. On other systems, and where the descriptor cannot be had, the wheel is
// as it would be without the option, and its Stats say so. Children of the process do
// not inherit it. In a bubble of testing/synctest the option changes nothing: time is
// exact there anyway.
func WithPreciseWakeups() Option {
	return func(c *config) { c.precise = true }
}

func (c *config) newQueue() *delayqueue.DelayQueue[*slot] {
	if !c.precise {
		return delayqueue.New[*slot]()
	}
	queue := delayqueue.NewPrecise[*slot]()
	if c.log != nil && !queue.Precise() {
		c.log.Warn("timingwheel: precise wake-ups are not available")
	}
	return queue
}
