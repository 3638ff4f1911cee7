package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Settings are what a worker has to know of the options.
type Settings struct {
	Ahead       time.Duration
	Lease       time.Duration
	Concurrency int
	Kinds       map[string]int
	WorkerName  string
	Retention   time.Duration
	Backoff     func(attempt int) time.Duration
	Wheel       *timingwheel.TimingWheel
	Log         *slog.Logger
}

// DefaultSettings are those of a Queue without options.
func DefaultSettings() Settings {
	return Settings{
		Ahead:       5 * time.Second,
		Lease:       30 * time.Second,
		Concurrency: 256,
		Kinds:       map[string]int{},
		Retention:   30 * 24 * time.Hour,
		Backoff:     exponential,
	}
}

// Env is what a Queue and its worker share. It does not change after Open, except for what its
// fields guard themselves. So the worker does not know its Queue.
type Env struct {
	Settings
	Engine   driver.Engine
	Clock    *clock.Clock
	Manual   bool // the clock is set by hand
	Times    *recur.Calendar
	Stats    Counters
	Handlers map[string]Handler // guarded by the Queue; a worker reads it while Run is under way

	Closed context.Context // ends with Close
	Asking context.Context // of requests by the Queue itself; ends closeTimeout after closed
}

// Now returns the engine's time as well as it is known.
func (e *Env) Now() time.Time {
	t, _ := e.Clock.Now()
	return t
}

// surely is the time that the engine's clock has surely reached.
func (e *Env) surely() time.Time {
	t, off := e.Clock.Now()
	return t.Add(-off)
}
