package subject

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Contexts makes contexts with a timeout. Its Around does so; its other Timers run
// functions, which is what waits beside the contexts.
type Contexts interface {
	Timers
	// WithTimeout is that of package context.
	WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

var contextWithTimeout = Subject{
	Name:  "context.WithTimeout",
	Setup: "package context as it is; in the workloads of requests and contexts only",
	Kind:  ContextMaker,
	New:   func(Options) Timers { return contexts{stdTimers(), context.WithTimeout} },
}

var wheelWithTimeout = Subject{
	Name:  "wheel.WithTimeout",
	Setup: "tickwheel's contexts, with the defaults; in the workloads of requests and contexts only",
	Kind:  ContextMaker,
	New: func(o Options) Timers {
		w := newWheel(o, timingwheel.Goroutines())
		return contexts{scheduleOn(w), w.WithTimeout}
	},
}

type contexts struct {
	Timers
	withTimeout func(context.Context, time.Duration) (context.Context, context.CancelFunc)
}

func (c contexts) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return c.withTimeout(parent, d)
}

func (c contexts) Around(d time.Duration, _, work func()) {
	_, cancel := c.withTimeout(context.Background(), d)
	work()
	cancel()
}
