package subject

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// ContextBaseline is the context to which those of a wheel are compared, in the
// request workload.
const ContextBaseline = "context.WithTimeout"

var contextWithTimeout = Subject{
	Name:    ContextBaseline,
	Setup:   "package context as it is, the parent context.Background(); in the request workload only",
	Context: true,
	New:     func(Options) Timers { return contexts(context.WithTimeout, func() {}) },
}

var wheelWithTimeout = Subject{
	Name:    "wheel.WithTimeout",
	Setup:   "tickwheel's contexts, with the defaults, the parent context.Background(); in the request workload only",
	Context: true,
	New: func(o Options) Timers {
		w := newWheel(o, timingwheel.Goroutines())
		return contexts(w.WithTimeout, func() { w.Stop() })
	},
}

// contexts makes Timers of a WithTimeout. What they are to run is dropped: nobody
// waits for these contexts.
func contexts(withTimeout func(context.Context, time.Duration) (context.Context, context.CancelFunc), stop func()) Timers {
	return timers(functions[context.CancelFunc]{
		add: func(d time.Duration, _ func()) context.CancelFunc {
			_, cancel := withTimeout(context.Background(), d)
			return cancel
		},
		cancel: func(cancel context.CancelFunc) { cancel() },
		stop:   stop,
	})
}
