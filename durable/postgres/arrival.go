package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// An engine finds out whether notifications arrive: a proxy that shares connections takes LISTEN
// without an error, and then drops them. So a listening connection also listens on a channel of this engine alone,
// and a connection of the pool sends an echo there again and again. While echoes arrive, all kinds are polled
// less often.
//
// Rejected: an echo that the listening connection sends to itself. Such a proxy passes it on with the answer.

const (
	// everyQuietPoll is the pause between two polls of all kinds while notifications arrive. It is shorter than
	// window, so that a job which is due too late to be announced is found before it is due.
	everyQuietPoll = 800 * time.Millisecond

	// leaseFactor bounds that pause to this part of a lease. Nobody announces that a worker is
	// dead, so its jobs are found by a poll.
	leaseFactor = 30

	// echoEvery is how often an echo is sent, and echoLate how late it may be. Together they bound the
	// time for which a worker does not know that notifications no longer arrive.
	echoEvery = 10 * time.Second
	echoLate  = 2 * time.Second
)

// arrival is what a listener knows of whether notifications arrive. The zero value: they do not.
type arrival struct {
	mu    sync.Mutex // guards all
	until time.Time  // they do until then
	all   bool       // those of transactions that others commit, too
	said  bool       // the Queue knows that they do not arrive
}

// echoed notes an echo, and reports whether the Queue had been informed that notifications do not arrive.
func (a *arrival) echoed(all bool) (again bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	again, a.said = a.said, false
	a.until, a.all = time.Now().Add(echoEvery+echoLate), all
	return again
}

// ended notes that the connection has ended.
func (a *arrival) ended() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Time{}
}

// holds reports whether all that is announced arrives.
func (a *arrival) holds() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all && time.Now().Before(a.until)
}

// missed notes that an echo was sent long ago. It reports whether none has arrived and the Queue does not know it.
func (a *arrival) missed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	first := !a.said && !time.Now().Before(a.until)
	a.said = a.said || first
	return first
}

// echoChannel is the channel of this engine alone.
func (an *announcer) echoChannel() string { return "tickwheel_echo_" + an.name }

// sendEchoes sends an echo every echoEvery, until ctx ends, and informs the Queue when the first one
// does not arrive.
func (an *announcer) sendEchoes(ctx context.Context, l *listener) {
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, echoEvery)
		err := an.do(try, an.echo, []any{an.echoChannel()}, relaxed)
		cancel()
		if err != nil {
			sleep(ctx, time.Second)
			continue
		}
		sleep(ctx, echoLate)
		if ctx.Err() == nil && l.arrival.missed() {
			l.tell(driver.Notice{Deaf: true})
		}
		sleep(ctx, echoEvery-echoLate)
	}
}

// echoed notes an echo that has arrived. Its text is the server's max_prepared_transactions: if that is
// above zero, jobs that are added in a caller's transaction are not announced.
func (an *announcer) echoed(l *listener, text string) {
	if l.arrival.echoed(text == "0") {
		l.tell(driver.Notice{Hears: true})
	}
}

// listenOn makes a connection listen for the announcements and notices of the schema, and for echoes.
func (an *announcer) listenOn(ctx context.Context, c *pgx.Conn) error {
	for _, channel := range []string{an.schema, an.echoChannel()} {
		if _, err := c.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}

// pollAfter returns the pause until the next poll of all kinds. After a release for a while, or an error, it is the short
// one: nobody announces that the job is free again.
func (f *fetcher) pollAfter() time.Duration {
	if f.listener.arrival.holds() && !f.frequent.holds() {
		return max(f.pollEvery, min(everyQuietPoll, f.c.Lease/leaseFactor))
	}
	return f.pollEvery
}

// moment is a time that only moves on. The zero value is long ago.
type moment struct {
	mu sync.Mutex
	at time.Time
}

// extend moves the moment to the end of d from now, if it is earlier.
func (m *moment) extend(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := time.Now().Add(d); at.After(m.at) {
		m.at = at
	}
}

// holds reports whether the moment has not come yet.
func (m *moment) holds() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Now().Before(m.at)
}
