package postgres

import "time"

// SetPoll changes how often the engine's Feeds look if nobody rings, before they do.
func (e *Engine) SetPoll(d time.Duration) { e.poll = d }
