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
	if w := q.held.Load(); w != nil {
		return w.Health(time.Now())
	}
	return nil
}
