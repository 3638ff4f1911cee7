package debug

import (
	"slices"
	"time"
)

// share limits what is done again and again for those who watch, to one part in share of
// a processor.
const share = 50

// costs are the durations of the last three runs of something. The shortest is taken for
// the cost: a run on a busy machine may last far longer than the work in it, and share
// times that would be a long time without an event.
type costs struct {
	last [3]time.Duration
	runs int
}

func (c *costs) add(d time.Duration) {
	if c.runs == 0 {
		c.last = [3]time.Duration{d, d, d}
	}
	c.last[c.runs%len(c.last)] = d
	c.runs++
}

// pause returns how long to wait before the next run, so that runs do not exceed the
// share.
func (c *costs) pause() time.Duration { return share * slices.Min(c.last[:]) }
