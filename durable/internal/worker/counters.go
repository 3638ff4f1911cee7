package worker

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Counters are the figures that last beyond a worker.
type Counters struct {
	Added, Canceled, Rescheduled, Redriven  atomic.Int64
	Deleted                                 atomic.Int64
	Attempts, Done, Failed, Dead, LeaseLost atomic.Int64
	Snoozed, Expired, Stopped               atomic.Int64
	LeftOut                                 atomic.Int64 // occurrences among Expired, which leave no dead job
	Forgotten                               atomic.Int64

	Starting  atomic.Pointer[time.Time] // since when the engine is to make a worker; nil: it has, or Run is not under way
	Unhandled atomic.Pointer[[]driver.Unhandled]
	Backlog   atomic.Pointer[backlogAt]

	Mu   sync.Mutex
	Late timingwheel.Histogram
}

// backlogAt is what waited at a time.
type backlogAt struct {
	driver.Backlog
	At time.Time
}

func (c *Counters) lateBy(d time.Duration) {
	d = max(0, d)
	i := min(bits.Len64(uint64(d/time.Microsecond)), timingwheel.HistogramBuckets-1)
	c.Mu.Lock()
	defer c.Mu.Unlock()
	c.Late.Counts[i]++
	c.Late.Sum += d
	c.Late.Max = max(c.Late.Max, d)
}

// tally counts an end that was written down; early: because of CancelRunning.
func (c *Counters) tally(out *driver.Completion, early bool) {
	switch {
	case early:
		c.Stopped.Add(1)
	case out.Uncounted && out.End == driver.Retry:
		c.Snoozed.Add(1)
	case out.Uncounted:
		c.Expired.Add(1)
		if out.End == driver.Done {
			c.LeftOut.Add(1)
		}
	case out.End == driver.Done:
		c.Done.Add(1)
	case out.End == driver.Retry:
		c.Failed.Add(1)
	case out.End == driver.DeadLetter:
		c.Dead.Add(1)
	}
	if out.Next != nil {
		c.Added.Add(1)
	}
}
