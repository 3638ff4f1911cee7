package durable

import (
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/worker"
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

	// Stuck are the handlers of Running whose job has a Timeout that was over a lease ago or
	// earlier. Their contexts have ended, and they have not returned: each keeps its place, and its
	// job is tried by no other worker while this process lives.
	Stuck int64

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

	// LastPoll, LastClaim and LastHeartbeat are when Fetch has looked for jobs, a claim was answered,
	// and the lease was renewed the last time, by the clock of this process. They are zero while
	// Run is not under way, and from its beginning that time. A worker that has as many jobs as
	// it can hold does not look; LastPoll is now, then. Nothing is claimed where nothing is due.
	LastPoll, LastClaim, LastHeartbeat time.Time

	// Backlog is what [Queue.Backlog] has said at the time BacklogAt. It is looked at once a
	// lease while Run is under way, less often where that takes long, and zero else. Its slice
	// must not be changed.
	Backlog   Backlog
	BacklogAt time.Time

	// Lateness is by how much handlers have begun after the due time of their attempt, by
	// the engine's clock.
	Lateness timingwheel.Histogram
}

// LimitStats is what waits in this process for a limit.
type LimitStats struct {
	Name    string    // "": for a pause to end
	Waiting int64     // jobs that are due
	Next    time.Time // when the next token comes that one waits for; zero: none does
}

// Stats returns the figures. It costs some microseconds, and may be called on a closed
// Queue.
func (q *Queue) Stats() Stats {
	c := &q.counters
	st := Stats{
		Added: c.Added.Load(), Canceled: c.Canceled.Load(), Rescheduled: c.Rescheduled.Load(),
		Redriven: c.Redriven.Load(), Deleted: c.Deleted.Load(), Attempts: c.Attempts.Load(), Done: c.Done.Load(),
		Failed: c.Failed.Load(), Dead: c.Dead.Load(), LeaseLost: c.LeaseLost.Load(),
		Snoozed: c.Snoozed.Load(), Expired: c.Expired.Load(), Stopped: c.Stopped.Load(),
		ClockSteps: q.clock.Step().Count,
	}
	if u := c.Unhandled.Load(); u != nil {
		st.Unhandled = unhandledOf(*u)
	}
	if b := c.Backlog.Load(); b != nil {
		st.Backlog, st.BacklogAt = backlogOf(b.Backlog), b.At
	}
	c.Mu.Lock()
	st.Lateness = c.Late
	c.Mu.Unlock()
	h := &st.Lateness
	h.P50, h.P90, h.P99, h.P999 = h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Quantile(0.999)
	if w := q.held.Load(); w != nil {
		addWorker(&st, w.Stats())
	}
	return st
}

// addWorker adds what the worker has.
func addWorker(st *Stats, w worker.Stats) {
	st.Held, st.Claimed, st.Running, st.Ending = w.Held, w.Claimed, w.Running, w.Ending
	st.Stuck = w.Stuck
	st.ClaimAhead = w.ClaimAhead
	st.LastPoll, st.LastClaim, st.LastHeartbeat = w.LastPoll, w.LastClaim, w.LastHeartbeat
	st.Limited, st.Paused = w.Limited, pausables(w.Paused)
	for _, l := range w.Limits {
		st.Limits = append(st.Limits, LimitStats(l))
	}
}
