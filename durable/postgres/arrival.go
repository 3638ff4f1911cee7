package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Whether notifications arrive is found out, not assumed: a proxy that shares connections takes LISTEN
// without an error, and then drops them. So a listening connection also listens on a channel that is its own,
// and a notification is sent there again and again, by a connection of the pool. While these arrive, all kinds are polled less
// often.
//
// Rejected: an echo that the listening connection sends to itself. Such a proxy passes it on with the answer.

const (
	// everyQuietPoll is the pause between two polls of all kinds while notifications arrive. It is half of
	// window, so that a job which is due too late to be announced is found half a second before it is due.
	everyQuietPoll = 500 * time.Millisecond

	// echoEvery is how often an echo is sent, and echoLate how late it may be. Together they bound the
	// time for which a worker does not know that notifications no longer arrive.
	echoEvery = 5 * time.Second
	echoLate  = time.Second
)

// arrival is what a listener knows of whether notifications arrive. The zero value: they do not.
type arrival struct {
	until atomic.Int64 // nanoseconds since the start of epoch: they do until then
}

// epoch is the start of a monotonic clock.
var epoch = time.Now()

func (a *arrival) echoed() { a.until.Store(int64(time.Since(epoch) + echoEvery + echoLate)) }

func (a *arrival) ended() { a.until.Store(0) }

func (a *arrival) holds() bool { return int64(time.Since(epoch)) < a.until.Load() }

// echoChannel is the channel of this engine alone.
func (e *engine) echoChannel() string { return "tickwheel_echo_" + e.name }

// sendEchoes sends an echo every echoEvery, until ctx ends. It sends none where transactions can be prepared: jobs that
// are added in a transaction of the caller's are not announced there.
func (e *engine) sendEchoes(ctx context.Context) {
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, echoEvery)
		_ = e.do(try, e.notifyTx, []any{e.echoChannel(), ""}, relaxed)
		cancel()
		sleep(ctx, echoEvery)
	}
}

// listenOn makes a connection listen for the announcements and notices of the schema, and for echoes.
func (e *engine) listenOn(ctx context.Context, c *pgx.Conn) error {
	for _, channel := range []string{e.schema, e.echoChannel()} {
		if _, err := c.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

// pollAfter returns the pause until the next poll of all kinds.
func (f *fetcher) pollAfter() time.Duration {
	if f.listener.arrival.holds() {
		return max(f.e.pollEvery, everyQuietPoll)
	}
	return f.e.pollEvery
}
