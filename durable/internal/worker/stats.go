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

// Stats are the figures of a worker: Stats of package durable says what they mean.
type Stats struct {
	Held, Claimed, Running, Ending int64

	Limited int64
	Limits  []LimitStats
	Paused  []driver.Pausable // not to be changed

	ClaimAhead                         time.Duration
	LastPoll, LastClaim, LastHeartbeat time.Time
}

// LimitStats is what waits in this process for a limit.
type LimitStats struct {
	Name    string    // "": for a pause to end
	Waiting int64     // jobs that are due
	Next    time.Time // when the next token comes that one waits for; zero: none does
}

// Stats returns the figures as they are now.
func (w *Worker) Stats() (st Stats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	st.Held = int64(len(w.tasks))
	st.Claimed = int64(w.counts[claimed] + w.counts[ready])
	st.Running, st.Ending = int64(w.counts[running]), int64(w.counts[ending])
	st.ClaimAhead = w.ahead
	st.LastPoll, st.LastClaim, st.LastHeartbeat = w.lastPoll(time.Now()), w.lastClaim, w.lease.renewed
	st.Limited, st.Limits = w.limitStats()
	st.Paused = w.rules.Pauses()
	return st
}
