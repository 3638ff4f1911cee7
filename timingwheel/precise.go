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
// those of the same millisecond share one. Below are lateness at the median and at the
// 99th percentile, in ms, and the share of one processor that firing takes
// (BenchmarkPrecise, five runs on a machine of two processors with other things to do:
// medians of the runs, and for the 99th percentile the least of them too, which is
// nearest to what an idle machine shows). Medians for time.AfterFunc: 0.53 ms, and 0.5,
// 1.3 and 7 to 11 % at the three rates.
//
//	                     default                       precise
//	timers/s   tick      p50    p99, least, CPU        p50    p99, least, CPU
//	      0    any         -      -     -    0.0 %       -      -     -    0.0 %
//	  1,000    10us     0.54   1.06  1.05    1.0 %   0.016   0.04  0.04    1.6 %
//	           100us    0.60   1.12  1.11    1.0 %   0.063   0.11  0.11    1.5 %
//	           1ms      1.05   1.93  1.88    1.0 %   0.52    1.00  1.00    1.0 %
//	 10,000    10us     0.54   1.06  1.05    1.7 %   0.016   0.92  0.03   10.8 %
//	           100us    0.58   1.13  1.12    1.7 %   0.061   0.12  0.11    7.1 %
//	           1ms      1.04   1.93  1.91    1.3 %   0.51    1.01  1.00    1.4 %
//	100,000    10us     0.56   1.16  1.12    8.4 %   0.017   0.12  0.10   75   %
//	           100us    0.61   1.83  1.15    6.8 %   0.066   1.20  0.13   14.7 %
//	           1ms      1.11   7.21  2.03    6.7 %   0.61    4.52  1.04    7.1 %
//
// Ticks of 100us suit most. Finer ones pay where few timers are due, and their 99th
// percentile has been unsteady at 10,000 a second.
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
