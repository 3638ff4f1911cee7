package worker

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
	"github.com/tickwheel/tickwheel/durable/internal/recur"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
	"github.com/tickwheel/tickwheel/durable/internal/worker/dispatch"
)

// Config is what a worker is made of. It does not change while Run is under way.
type Config struct {
	// The options of a Queue.
	Ahead       time.Duration
	Lease       time.Duration
	Grace       time.Duration // 0: for ever
	Concurrency int
	Limits      map[string]int // of kinds
	Label       string
	Retention   time.Duration
	Backoff     func(attempt int) time.Duration
	Log         *slog.Logger

	// What a Queue has, too.
	Engine   driver.Engine
	Clock    *clock.Clock // that of the engine
	Manual   bool         // it is set by hand
	Times    *recur.Calendar
	Counters *Counters
	Handlers map[string]attempt.Handler
	Closed   context.Context // ends with Close
	Requests context.Context // ends some time after Closed: of requests that are to be answered by then

	// PauseUntil stores pauses with an end by one change, except those of jobs that have a pause which ends later. It
	// returns the pauses that it has stored.
	PauseUntil func(ctx context.Context, all []driver.Pause) ([]driver.Pause, error)

	// Ended is called with a lock after the end of a job was stored: it does not block.
	Ended func(driver.Ref)
}

// Defaults are the options of a Queue that is given none.
func Defaults() Config {
	return Config{
		Ahead:       5 * time.Second,
		Lease:       30 * time.Second,
		Concurrency: 256,
		Limits:      map[string]int{},
		Retention:   30 * 24 * time.Hour,
		Backoff:     attempt.Backoff,
		Ended:       func(driver.Ref) {},
	}
}

// moment returns the time by the clocks that a Dispatcher goes by.
func (c *Config) moment() dispatch.Moment {
	t, off := c.Clock.Now()
	return dispatch.Moment{Local: time.Now(), Engine: t, Off: off}
}

// kindSet returns what this process can run.
func (c *Config) kindSet() *driver.KindSet {
	var limited []string
	for kind := range c.Limits {
		if c.Handlers[kind] != nil {
			limited = append(limited, kind)
		}
	}
	return driver.NewKindSet(slices.Collect(maps.Keys(c.Handlers)), limited...)
}
