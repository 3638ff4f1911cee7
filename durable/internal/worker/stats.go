package worker

import (
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
)

// Stats are the figures of a worker: Stats of package durable says what they mean.
type Stats struct {
	Held, Claimed, Running, Ending, Stuck int64

	Limited int64
	Limits  []dispatch.LimitStats
	Paused  []driver.Pause // not to be changed

	ClaimAhead                         time.Duration
	LastPoll, LastClaim, LastHeartbeat time.Time
}

// Stats returns the figures as they are now.
func (w *Worker) Stats() (st Stats) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.dispatcher.Counts()
	st.Held, st.Claimed, st.Running, st.Ending = int64(n.Held), int64(n.Claimed), int64(n.Running), int64(n.Ending)
	st.Stuck = w.runs.stuck(time.Now())
	st.ClaimAhead = w.dispatcher.Lead()
	st.LastPoll, st.LastClaim, st.LastHeartbeat = w.polls.lastEnd(time.Now(), w.blocked > 0), w.lastClaim, w.lease.renewed
	st.Limited, st.Limits = w.dispatcher.LimitStats()
	st.Paused = w.dispatcher.Pauses()
	return st
}
