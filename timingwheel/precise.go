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
// A wake-up takes the processor time that it takes without the option, 10 to 18 us, but
// there are more of them: one for each tick in which something is due, where otherwise
// those of the same millisecond share one. Lateness at the median and at the 99th
// percentile, and the share of one processor that firing takes, on a machine with two
// that did little else (BenchmarkPrecise). For time.AfterFunc that is 0.53 and 1.05
// ms, and 0.0, 0.5, 1.3 and 7 %.
//
//	timers a second   tick     default                 precise
//	        0         any       -     -      0.0 %      -     -      0.0 %
//	    1,000         10us    0.54  1.06 ms  1.0 %    0.016 0.04 ms  1.6 %
//	                  100us   0.60  1.12 ms  1.0 %    0.06  0.11 ms  1.4 %
//	                  1ms     1.05  1.93 ms  1.0 %    0.52  1.00 ms  1.0 %
//	   10,000         10us    0.54  1.06 ms  1.7 %    0.016 0.04 ms   11 %
//	                  100us   0.58  1.13 ms  1.7 %    0.06  0.11 ms    7 %
//	                  1ms     1.03  1.93 ms  1.3 %    0.51  1.00 ms  1.4 %
//	  100,000         10us    0.55  1.16 ms    8 %    0.017 0.12 ms   75 %
//	                  100us   0.58  1.15 ms    5 %    0.06  0.13 ms   14 %
//	                  1ms     1.06  2.03 ms    4 %    0.53  1.04 ms    5 %
//
// Ticks of 100us suit most: finer ones pay where few timers are due.
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
