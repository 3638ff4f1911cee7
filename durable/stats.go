package durable

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Stats are the figures of a Queue: what went through this process since Open, and what
// it holds now. They do not say what the engine keeps in all: [Queue.All] does.
type Stats struct {
	Added       int64 // accepted by Add, and first and next occurrences
	Canceled    int64 // calls of Cancel and CancelKey that returned true
	Rescheduled int64 // calls of Reschedule that returned true
	Redriven    int64
	Deleted     int64 // calls of Delete that removed a dead job

	Attempts  int64 // claimed for a handler to begin
	Done      int64 // attempts that ended well
	Failed    int64 // attempts that failed and are followed by another
	Snoozed   int64 // attempts whose handler has returned Snooze
	Expired   int64 // jobs that expired before an attempt could begin
	Dead      int64 // jobs that died here
	Stopped   int64 // jobs that ended here because of CancelRunning
	LeaseLost int64 // attempts that could not be finished, since another worker has taken over

	Held    int64 // handed out by the engine and not finished; the next three are part of it
	Claimed int64 // and not begun
	Running int64 // handlers
	Ending  int64 // attempts whose end is being written down

	// Limited are the jobs of Held that are due, and wait for a limit or for a pause to end.
	// Limits says for which: there is one for each limit that is stored, by name, and the first,
	// without a name, if any wait for a pause.
	Limited int64
	Limits  []LimitStats

	// Paused is what is paused, as far as this process knows: within a second of a change. It is
	// empty while Run is not under way. The slice must not be changed.
	Paused []Pausable

	ClaimAhead time.Duration // how long before they are due jobs are claimed at present

	// ClockSteps is how often the engine's clock was found to have been set by a tenth of a
	// second or more, forward or back, or to be that of another server.
	ClockSteps int64

	// Unhandled are the kinds of which a job is due and no worker has a handler, in whatever
	// process, the longest due first; at most some hundred of them. It is looked at once a
	// lease while Run is under way, and empty else. The slice must not be changed.
	Unhandled []Unhandled

	// LastLook, LastClaim and LastBeat are when Feed has looked for jobs, a claim was answered,
	// and the lease was renewed the last time, by the clock of this process. They are zero while
	// Run is not under way, and from its beginning that time. A worker that has as many jobs as
	// it can hold does not look; LastLook is now, then. Nothing is claimed where nothing is due.
	LastLook, LastClaim, LastBeat time.Time

	// Backlog is what [Queue.Backlog] has said at the time BacklogAt. It is looked at once a
	// lease while Run is under way, less often where that takes long, and zero else. Its slice
	// must not be changed.
	Backlog   Backlog
	BacklogAt time.Time

	// Lateness is by how much handlers have begun after the due time of their attempt, by
	// the engine's clock.
	Lateness timingwheel.Histogram
}

// counters are the parts of Stats that only grow.
type counters struct {
	added, canceled, rescheduled, redriven  atomic.Int64
	deleted                                 atomic.Int64
	attempts, done, failed, dead, leaseLost atomic.Int64
	snoozed, expired, stopped               atomic.Int64

	unhandled atomic.Pointer[[]Unhandled]
	backlog   atomic.Pointer[backlogAt]

	mu   sync.Mutex
	late timingwheel.Histogram
}

func (c *counters) lateBy(d time.Duration) {
	d = max(0, d)
	i := min(bits.Len64(uint64(d/time.Microsecond)), timingwheel.HistogramBuckets-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late.Counts[i]++
	c.late.Sum += d
	c.late.Max = max(c.late.Max, d)
}

// Stats returns the figures. It costs some microseconds, and may be called on a closed
// Queue.
func (q *Queue) Stats() Stats {
	c := &q.env.stats
	st := Stats{
		Added: c.added.Load(), Canceled: c.canceled.Load(), Rescheduled: c.rescheduled.Load(),
		Redriven: c.redriven.Load(), Deleted: c.deleted.Load(), Attempts: c.attempts.Load(), Done: c.done.Load(),
		Failed: c.failed.Load(), Dead: c.dead.Load(), LeaseLost: c.leaseLost.Load(),
		Snoozed: c.snoozed.Load(), Expired: c.expired.Load(), Stopped: c.stopped.Load(),
		ClockSteps: q.env.clock.Step().Count,
	}
	if u := c.unhandled.Load(); u != nil {
		st.Unhandled = *u
	}
	if b := c.backlog.Load(); b != nil {
		st.Backlog, st.BacklogAt = b.Backlog, b.at
	}
	c.mu.Lock()
	st.Lateness = c.late
	c.mu.Unlock()
	h := &st.Lateness
	h.P50, h.P90, h.P99, h.P999 = h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Quantile(0.999)
	if w := q.held.Load(); w != nil {
		w.count(&st)
	}
	return st
}
