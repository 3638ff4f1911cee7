package durable

import (
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/worker"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Stats are the figures of a Queue in this process: counts since Open, and its present
// jobs. [Queue.Backlog] describes the waiting jobs of the engine.
type Stats struct {
	// Now is the time of the call by the engine's clock. Times of jobs, leases and tokens are by that
	// clock, and may be compared with it.
	Now time.Time

	Added       int64 // Jobs accepted by Add, and first and next occurrences.
	Canceled    int64 // Calls of Cancel and CancelKey that returned true.
	Rescheduled int64 // Calls of Reschedule that returned true.
	Redriven    int64 // Calls of Redrive that returned nil.
	Deleted     int64 // Calls of Delete that removed a job.

	Attempts  int64 // Attempts claimed for a handler to begin.
	Done      int64 // Attempts that ended well.
	Failed    int64 // Attempts that failed and are followed by another.
	Snoozed   int64 // Attempts whose handler has returned Snooze or Cooldown.
	Expired   int64 // Jobs that expired before an attempt could begin.
	Dead      int64 // Jobs that died here.
	Stopped   int64 // Jobs that ended here because of CancelRunning.
	LeaseLost int64 // Attempts that could not be finished, since another worker has taken over.

	// Forgotten counts the claims of this worker that only the store had, since the store
	// went back: after a restore, or a failover to a standby that lags. They were handed
	// back, and their jobs run again, as after a crash.
	Forgotten int64

	Held    int64 // Jobs handed out by the engine and not finished; includes the next three.
	Claimed int64 // Jobs claimed and not begun.
	Running int64 // Running handlers.
	Ending  int64 // Attempts whose end is being stored.

	// Stuck counts the handlers of Running whose job has a Timeout that ended at least a
	// lease ago. Their contexts have ended, and they have not returned. Each keeps its
	// slot, and no other worker tries its job while this process lives.
	Stuck int64

	// Limited are the jobs of Held that are due, and wait for a limit or for the end of a
	// pause. Limits divides them: one element for each stored limit, by name, and a first
	// one without a name if jobs wait for a pause.
	Limited int64
	Limits  []LimitStats

	// Paused are the pauses that this process knows, within a second of a change. It is
	// empty while Run is not under way. The slice must not be changed.
	Paused []Pause

	ClaimAhead time.Duration // How long before their due time jobs are claimed at present.

	// ClockSteps is how often the engine's clock was found to have been set by a tenth of a
	// second or more, forward or back, or to be that of another server.
	ClockSteps int64

	// Unhandled are the kinds with a due job for which no worker of any process has a
	// handler, the longest due first; about a hundred at most. The Queue reads them once
	// a lease while Run is under way; otherwise it is empty. The slice must not be
	// changed.
	Unhandled []Unhandled

	// LastPoll, LastClaim and LastHeartbeat are the times of the last successful poll,
	// the last answered claim, and the last renewal of the lease, by the clock of this
	// process. They are zero while Run is not under way, and begin with the time of Run.
	// A full worker does not poll; LastPoll is then the present time. Without due jobs
	// nothing is claimed.
	LastPoll, LastClaim, LastHeartbeat time.Time

	// Backlog is the result of [Queue.Backlog] at the time BacklogAt. The Queue calls it
	// once a lease while Run is under way, less often if it takes long; otherwise it is
	// zero. Its slice must not be changed.
	Backlog   Backlog
	BacklogAt time.Time

	// Lateness is by how much handlers have begun after the due time of their attempt, by
	// the engine's clock.
	Lateness timingwheel.Histogram
}

// LimitStats counts the jobs of this process that wait for a limit.
type LimitStats struct {
	Name    string    // Empty for the end of a pause.
	Waiting int64     // Jobs that are due.
	Next    time.Time // The time of the next token that a job waits for; zero if none does.
}

// Stats returns the figures. It costs some microseconds, and may be called on a closed
// Queue.
func (q *Queue) Stats() Stats {
	c := &q.counters
	st := Stats{
		Now: q.clock.Time(), Added: c.Added.Load(), Canceled: c.Canceled.Load(), Rescheduled: c.Rescheduled.Load(),
		Redriven: c.Redriven.Load(), Deleted: c.Deleted.Load(), Attempts: c.Attempts.Load(), Done: c.Done.Load(),
		Failed: c.Failed.Load(), Dead: c.Dead.Load(), LeaseLost: c.LeaseLost.Load(),
		Forgotten: c.Forgotten.Load(), Snoozed: c.Snoozed.Load(), Expired: c.Expired.Load(), Stopped: c.Stopped.Load(),
		ClockSteps: q.clock.Step().Count,
	}
	if u := c.Unhandled.Load(); u != nil {
		st.Unhandled = *u
	}
	if b := c.Backlog.Load(); b != nil {
		st.Backlog, st.BacklogAt = b.Backlog, b.At
	}
	c.Mu.Lock()
	st.Lateness = c.Late
	c.Mu.Unlock()
	h := &st.Lateness
	h.P50, h.P90, h.P99, h.P999 = h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99), h.Quantile(0.999)
	if w := q.running.Load(); w != nil {
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
	st.Limited, st.Paused = w.Limited, w.Paused
	for _, l := range w.Limits {
		st.Limits = append(st.Limits, LimitStats(l))
	}
}
