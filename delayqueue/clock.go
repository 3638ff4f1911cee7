package delayqueue

import (
	"time"

	"github.com/tickwheel/tickwheel/internal/bubble"
)

// clock counts the time since the start of a queue. It is not generic, so that a program with
// queues of several types has its code once.
type clock struct {
	base  time.Time // the start, see bubble.Base
	inner bool      // the clock is that of a bubble
}

func newClock(start time.Time) clock {
	wall := bubble.IsTime(start) // in a bubble, or not from time.Now at all
	c := clock{base: start, inner: wall && bubble.Inside()}
	if c.inner || !wall {
		c.base = bubble.Base(start)
	}
	return c
}

// now returns the time since the start. It panics if the caller is not where the clock belongs: a
// timer or a channel of a bubble ends the process if it is used outside.
func (c *clock) now() time.Duration {
	now := time.Since(c.base)
	if uint64(now) >= uint64(bubble.Off) {
		c.check()
	}
	return now
}

func (c *clock) check() {
	switch inside := bubble.Inside(); {
	case inside && !c.inner:
		panic("delayqueue: the queue was made outside of this testing/synctest bubble: make it in the bubble")
	case !inside && c.inner:
		panic("delayqueue: the queue was made in a testing/synctest bubble and is used outside of it: make another one outside")
	}
}
