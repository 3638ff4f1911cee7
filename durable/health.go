package durable

import (
	"context"
	"fmt"
	"time"
)

// Health returns nil if the engine answers before ctx ends and, while Run is under way,
// the engine has made a worker within five seconds, and that worker holds its lease and polls with
// success. Use it as a readiness probe.
// Handlers that fail, a backlog and a pause are not errors; Stats.Paused has the pauses.
// Health reads the engine's time, which costs a round trip, or two on PostgreSQL. A store that is stuck gives
// no answer and closes no connection: give ctx a deadline, or Health may wait for as
// long. Errors wrap the cause: [ErrClosed], [ErrLeaseLost], [ErrFull] if the disk of the
// embedded engine is full, [ErrReadOnly] if PostgreSQL takes no writes, [ErrWentBack] while
// the worker and a store that went back do not agree on the claims of the worker, or an error
// of the engine, which wraps that of ctx if ctx has ended.
func (q *Queue) Health(ctx context.Context) error {
	if q.closed.Err() != nil {
		return ErrClosed
	}
	if e, ok := q.engine.(interface{ Health(context.Context) error }); ok {
		if err := e.Health(ctx); err != nil {
			return err
		}
	}
	if _, _, err := q.engine.Now(ctx); err != nil {
		return fmt.Errorf("durable: the engine does not answer: %w", err)
	}
	if w := q.running.Load(); w != nil {
		return w.Health(time.Now())
	}
	if since := q.counters.Starting.Load(); since != nil && time.Since(*since) > slowStart {
		return fmt.Errorf("durable: the engine has made no worker for %v", time.Since(*since).Round(time.Millisecond))
	}
	return nil
}

// slowStart is how long the engine may take to make a worker before Health says so.
const slowStart = 5 * time.Second
