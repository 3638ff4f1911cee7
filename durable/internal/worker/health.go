package worker

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// mostPoll is for how long Fetch may find nothing out, beyond a lease.
const mostPoll = 15 * time.Second

// Health returns an error if the lease is lost, no poll has succeeded for long, or the store went back and
// does not agree with the worker yet.
func (w *Worker) Health(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	looked := w.polledAt(now)
	switch age := now.Sub(looked); {
	case w.silent || w.lease.at(now) == over:
		return fmt.Errorf("%w: no heartbeat was answered for %v", driver.ErrLeaseLost, now.Sub(w.lease.renewed).Round(time.Millisecond))
	case age > w.c.Lease+mostPoll:
		return fmt.Errorf("durable: last successful poll %v ago", age.Round(time.Millisecond))
	case !w.apart.since.IsZero():
		return fmt.Errorf("%w: noticed %v ago; this worker's claims are being compared", driver.ErrWentBack, now.Sub(w.apart.since).Round(time.Millisecond))
	}
	return nil
}

// polled is called by Fetch.
func (w *Worker) polled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastPoll = time.Now()
}

// troubled is called by Fetch.
func (w *Worker) troubled(err error) {
	w.mu.Lock()
	say := w.trouble.Now()
	w.mu.Unlock()
	if say {
		w.c.Log.Error("durable: a fault of the store may keep jobs from running, or lose them", "error", err)
	}
}

// polledAt is when Fetch has looked, or now if it waits here, since the worker is full. w.mu is held.
func (w *Worker) polledAt(now time.Time) time.Time {
	if w.blocked > 0 {
		return now
	}
	return w.lastPoll
}
