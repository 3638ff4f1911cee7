package jetstream

import (
	"context"
	"time"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/options"
)

// StaleAge makes handles stale sooner than after an hour.
func StaleAge(d time.Duration) Option { return func(o *options.Options) { o.StaleAge = d } }

// Version makes an engine that of a version of the stored data.
func Version(v int) Option { return func(o *options.Options) { o.Version = v } }

// Own declares that the server is the engine's own.
func Own() Option { return func(o *options.Options) { o.Own = &options.OwnServer{} } }

// Shift changes the time that the server's clock shows to the one that f returns. The name is
// that of the server, or empty for the time of a message.
func Shift(f func(server string, t time.Time) time.Time) Option {
	return func(o *options.Options) { o.Shift = f }
}

// ClosedUntil returns the time up to which near buckets were closed.
func ClosedUntil(e driver.Engine) time.Time {
	p := e.(*engine).parts[0]
	if p.lowest() == bottom {
		return time.Time{}
	}
	return p.end(p.lowest().near)
}

// HasHeartbeat reports whether the last heartbeat of a worker is there.
func HasHeartbeat(ctx context.Context, e driver.Engine, worker string) bool {
	p := e.(*engine).parts[0]
	m, err := p.Last(ctx, p.workerSubject(worker))
	return err == nil && m.Seq > 0
}

// Backs returns how often the stream of the first partition was found to have gone back.
func Backs(e driver.Engine) int64 { return e.(*engine).parts[0].Backs() }
