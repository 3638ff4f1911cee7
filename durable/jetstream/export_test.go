package jetstream

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// StaleAge makes handles stale sooner than after an hour.
func StaleAge(d time.Duration) Option { return func(c *config) { c.staleAge = d } }

// Shift has the server's clock show what f returns: for the time that it really shows, on
// the server of this name, or for a message's time, without a name.
func Shift(f func(server string, t time.Time) time.Time) Option {
	return func(c *config) { c.shift = f }
}

// ClosedUntil returns the time up to which near buckets were closed.
func ClosedUntil(e driver.Engine) time.Time {
	p := e.(*engine).parts[0]
	if p.lowest() == bottom {
		return time.Time{}
	}
	return p.end(p.lowest().near)
}

// HasBeat reports whether the last beat of a worker is there.
func HasBeat(ctx context.Context, e driver.Engine, worker string) bool {
	p := e.(*engine).parts[0]
	m, err := p.last(ctx, p.workerSubject(worker))
	return err == nil && m.Seq > 0
}
