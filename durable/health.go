package durable

import (
	"context"
	"fmt"
	"time"
)

// Health returns nil if the engine answers before ctx ends and, while Run is under way, the
// worker holds its lease and is handed jobs: for a probe that takes a process out of service
// which can neither add jobs nor run them. A handler that fails is no reason, and a backlog is
// none: another process would not help. Nor is a pause, also of the whole queue: that is what was
// asked for, and Stats.Paused names it. It asks the engine for its time, and costs a round
// trip. A store that is stuck gives no answer and closes no connection: give ctx a deadline, or
// Health may wait for as long. Errors wrap what is wrong: [ErrClosed], [ErrLeaseLost], [ErrFull]
// if the disk of the embedded engine is full, or that of the engine, which wraps that of ctx if
// this has ended.
func (q *Queue) Health(ctx context.Context) error {
	if q.env.closed.Err() != nil {
		return ErrClosed
	}
	if e, ok := q.env.engine.(interface{ Health(context.Context) error }); ok {
		if err := e.Health(ctx); err != nil {
			return err
		}
	}
	if _, _, err := q.env.engine.Now(ctx); err != nil {
		return fmt.Errorf("durable: the engine does not answer: %w", err)
	}
	if w := q.held.Load(); w != nil {
		return w.health(time.Now())
	}
	return nil
}

// mostLook is for how long Feed may find nothing out, beyond a lease.
const mostLook = 15 * time.Second

func (w *worker) health(now time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	looked := w.lastLook(now)
	switch age := now.Sub(looked); {
	case w.silent || w.lease.at(now) == over:
		return fmt.Errorf("%w: no beat was answered for %v", ErrLeaseLost, now.Sub(w.lease.renewed).Round(time.Millisecond))
	case age > w.env.lease+mostLook:
		return fmt.Errorf("durable: no look for jobs has succeeded for %v", age.Round(time.Millisecond))
	}
	return nil
}

// looked is called by Feed.
func (w *worker) looked() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look = time.Now()
}

// lastLook is when Feed has looked, or now if it waits for room here. w.mu is held.
func (w *worker) lastLook(now time.Time) time.Time {
	if w.full > 0 {
		return now
	}
	return w.look
}

// backlogShare is how much of the time the look at the backlog may take: one part in so many.
const backlogShare = 50

// watchBacklog asks the engine for what waits until ctx ends: once a lease, and less often
// where that takes long.
func (w *worker) watchBacklog(ctx context.Context) {
	defer w.env.stats.backlog.Store(nil)
	for ctx.Err() == nil {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, max(w.env.lease, time.Minute))
		b, err := w.env.engine.Backlog(try)
		cancel()
		if err == nil {
			w.env.stats.backlog.Store(&backlogAt{b, time.Now()})
		}
		sleep(ctx, max(w.env.lease, backlogShare*time.Since(began)))
	}
}

// backlogAt is what waited at a time.
type backlogAt struct {
	Backlog
	at time.Time
}
