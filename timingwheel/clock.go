package timingwheel

import (
	"math"
	"time"
)

// clock counts time in whole ticks since the wheel was made. It reads the
// monotonic clock only: time.Since, which is half the price of time.Now.
type clock struct {
	start time.Time
	tick  time.Duration
}

// now returns the time since the start.
func (c *clock) now() time.Duration { return time.Since(c.start) }

// deadline returns the first tick that is not before now+d. It never rounds
// down, and saturates at the tick that ends the longest time.Duration. A d that
// is not positive counts as zero.
func (c *clock) deadline(now, d time.Duration) int64 {
	at := now + max(0, d)
	if at < now {
		at = math.MaxInt64
	}
	ticks := at / c.tick
	if at > ticks*c.tick {
		ticks++
	}
	return int64(ticks)
}

// time returns the time of a tick, saturating at start+math.MaxInt64.
func (c *clock) time(tick int64) time.Time {
	if tick > int64(math.MaxInt64/c.tick) {
		return c.start.Add(math.MaxInt64)
	}
	return c.start.Add(time.Duration(tick) * c.tick)
}
