package postgres

import (
	"context"
	"time"
)

// SetPoll changes how often the engine's Feeds look if nobody rings, before they do.
func (e *Engine) SetPoll(d time.Duration) { e.poll = d }

// Sweep makes one pass of what workers do all the time.
func (e *Engine) Sweep(ctx context.Context) { e.sweepPass(ctx, e.sweep) }

// Expire makes one pass of what workers do now and then.
func (e *Engine) Expire(ctx context.Context) { e.sweepPass(ctx, e.expire) }
