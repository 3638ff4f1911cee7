package durable

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// env is what a Queue and its worker share. It does not change after Open, except for what its
// fields guard themselves. So the worker does not know its Queue.
type env struct {
	settings
	engine   Engine
	clock    *clock.Clock
	manual   bool // the clock is set by hand
	times    *calendar
	stats    counters
	handlers map[string]Handler // guarded by the Queue; a worker reads it while Run is under way

	closed context.Context // ends with Close
	asking context.Context // of requests by the Queue itself; ends closeTimeout after closed
}

// now returns the engine's time as well as it is known.
func (e *env) now() time.Time {
	t, _ := e.clock.Now()
	return t
}

// surely is the time that the engine's clock has surely reached.
func (e *env) surely() time.Time {
	t, off := e.clock.Now()
	return t.Add(-off)
}
