package worker

import (
	"context"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// claimLoop claims what is due soon until ctx ends.
func (w *Worker) claimLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.claimNow:
		}
		// Not by ctx: a claim that is given up may be stored after its job was handed back. Then nobody
		// else gets the job while this worker lives, which may be as long as its longest handler.
		for ctx.Err() == nil && w.claim(w.link.requests) {
		}
	}
}

// claim claims the jobs that are to be claimed now, and returns false if there are none.
func (w *Worker) claim(ctx context.Context) bool {
	now := w.lock()
	jobs := w.dispatcher.Claims(now)
	w.unlockAndAct(now)
	if len(jobs) == 0 {
		return false
	}
	held := make([]*driver.Delivery, len(jobs))
	for i, j := range jobs {
		held[i] = j.Delivery
	}
	results := w.link.engine.Claim(ctx, held)
	now = w.lock()
	defer w.unlockAndAct(now)
	w.stands(now.Local) // under a lease that is lost the answer comes too late
	w.dispatcher.Answered(jobs, results, now)
	for i := range results {
		if results[i].Status != driver.RetryLater {
			w.lastClaim = now.Local
			break
		}
	}
	return true
}
