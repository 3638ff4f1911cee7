package worker

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Counters are the figures that last beyond a worker.
type Counters struct {
	Added, Canceled, Rescheduled, Redriven  atomic.Int64
	Deleted                                 atomic.Int64
	Attempts, Done, Failed, Dead, LeaseLost atomic.Int64
	Snoozed, Expired, Stopped               atomic.Int64

	Unhandled atomic.Pointer[[]driver.Unhandled]
	Backlog   atomic.Pointer[backlogAt]

	Mu   sync.Mutex
	Late timingwheel.Histogram
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

// Stats are the figures of a worker: Stats of package durable says what they mean.
type Stats struct {
	Held, Claimed, Running, Ending, Stuck int64

	Limited int64
	Limits  []dispatch.LimitStats
	Paused  []driver.Pausable // not to be changed

	ClaimAhead                         time.Duration
	LastPoll, LastClaim, LastHeartbeat time.Time
}

// Stats returns the figures as they are now.
func (w *Worker) Stats() (st Stats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.jobs.Counts()
	st.Held, st.Claimed, st.Running, st.Ending = int64(n.Held), int64(n.Claimed), int64(n.Running), int64(n.Ending)
	st.Stuck = w.stuck(time.Now())
	st.ClaimAhead = w.jobs.Lead()
	st.LastPoll, st.LastClaim, st.LastHeartbeat = w.polledAt(time.Now()), w.lastClaim, w.lease.renewed
	st.Limited, st.Limits = w.jobs.LimitStats()
	st.Paused = w.jobs.Pauses()
	return st
}
