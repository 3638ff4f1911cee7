package durable

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/durable/internal/worker"
)

// Option sets up a Queue that [Open] returns.
type Option func(*config)

type config struct {
	worker.Config
	middleware []Middleware
}

func newConfig(opts []Option) *config {
	c := &config{Config: worker.Defaults()}
	for _, opt := range opts {
		if opt == nil {
			panic("durable: Open: nil Option")
		}
		opt(c)
	}
	if c.Log == nil {
		c.Log = slog.Default() // silence would hide what is lost
	}
	// A job that is handed out has to begin, or be handed back, before the lease is over: half
	// of it is left for what holds a worker up.
	c.Ahead = min(c.Ahead, c.Lease/4)
	return c
}

// WithAhead sets how long before their due time jobs are fetched from the engine. The
// default is 5s, at most a quarter of the lease. More smooths bursts and takes more
// memory. Open panics if d is not positive.
func WithAhead(d time.Duration) Option {
	return func(c *config) { c.Ahead = positive("WithAhead", d) }
}

// WithLease sets how long a worker may be silent until others take over its jobs. It is
// renewed three times in that time, for all jobs at once. The default is 30s, which is
// longer than any election of NATS. More than a year is a year. Open panics on less than
// 100ms.
func WithLease(d time.Duration) Option {
	return func(c *config) {
		if d < 100*time.Millisecond {
			panic(fmt.Sprintf("durable: WithLease(%v): less than 100ms", d))
		}
		c.Lease = min(d, year) // sums of some leases must not overflow
	}
}

// WithGrace bounds how long [Queue.Run] waits for handlers after its context has ended:
// after d their contexts end with a cause that is [ErrClosed] by errors.Is. If a handler
// returns an error after that, the attempt does not fail and does not count: the job is
// handed back, and another worker begins it at once. If it returns nil, the job is done.
// Run still waits for a handler that does not return, and then for the engine, which may
// delay it as [Queue.Run] says. Without WithGrace Run waits without
// a bound, and no context ends. Open panics if d is not positive.
func WithGrace(d time.Duration) Option {
	return func(c *config) { c.Grace = positive("WithGrace", d) }
}

// WithConcurrency sets how many handlers run at once in this process. It also bounds the
// jobs that have begun and whose end is not stored: to n, or to 64 if that is more. As
// many may run again when the process is killed. Since one of them may have killed it, at
// first n/16 of them, or one, run at a time; see the package comment. The default is 256.
// Open panics on less than 1.
//
// Due jobs are claimed before a handler is free, up to n of each [Priority], so that the next
// handler begins at once. If handlers take long, such a job waits for one of them, although
// another process may be idle. A job that a limit covers ([Queue.SetLimit]) is not claimed
// before it begins: an idle process gets it after some leases.
func WithConcurrency(n int) Option {
	return func(c *config) {
		if n < 1 {
			panic(fmt.Sprintf("durable: WithConcurrency(%d): less than 1", n))
		}
		c.Concurrency = n
	}
}

// WithKindConcurrency sets how many handlers of a kind run at once in this process. By
// default a kind has no limit of its own. Open panics on less than 1, and on a kind that no job
// can have.
func WithKindConcurrency(kind string, n int) Option {
	return func(c *config) {
		checkKind("WithKindConcurrency", kind)
		if n < 1 {
			panic(fmt.Sprintf("durable: WithKindConcurrency(%q, %d): less than 1", kind, n))
		}
		c.Limits[kind] = n
	}
}

// WithWorkerName names the worker of this process in listings ([WorkerInfo].Label),
// beside its host and its process: by its deployment, say. Several workers may have one
// name. It is stored with each claim, so a short name costs less. Open panics if it is
// longer than 63 bytes, or is not of letters, digits, - and _. The default is no name.
func WithWorkerName(name string) Option {
	return func(c *config) {
		if len(name) > 63 || strings.ContainsFunc(name, func(r rune) bool { return !worker.IsPlain(r) && r != '_' }) {
			panic(fmt.Sprintf("durable: WithWorkerName(%q): not letters, digits, - and _, of at most 63 bytes", name))
		}
		c.Label = name
	}
}

const year = 365 * 24 * time.Hour

// WithRetention sets for how long a job that is dead is kept. The default is 30 days.
// JetStream keeps it for at most a hundred years.
// Open panics on less than a second.
func WithRetention(d time.Duration) Option {
	return func(c *config) {
		if d < time.Second {
			panic(fmt.Sprintf("durable: WithRetention(%v): less than 1s", d))
		}
		c.Retention = d
	}
}

// WithBackoff sets how long after a failed attempt, numbered from 1, the next one is due.
// The default doubles from a second up to an hour, and subtracts up to a half at random,
// so that jobs that failed together do not retry together. Open panics on nil.
func WithBackoff(f func(attempt int) time.Duration) Option {
	return func(c *config) {
		if f == nil {
			panic("durable: WithBackoff(nil)")
		}
		c.Backoff = f
	}
}

// WithMiddleware puts middleware around Add, AddMany and handlers, the first outermost.
// If the option is given more than once, the middleware of the first option is outermost.
// Open panics if both functions of a middleware are nil, or if its Add returns nil;
// Queue.Handle panics if its Handle returns nil.
func WithMiddleware(m ...Middleware) Option {
	return func(c *config) {
		for i := range m {
			if m[i].Add == nil && m[i].Handle == nil {
				panic(fmt.Sprintf("durable: WithMiddleware: Middleware %d has neither Add nor Handle", i))
			}
		}
		c.middleware = append(c.middleware, m...)
	}
}

// WithLogger sets the logger for events that no method reports. The default is what
// slog.Default returns when Open is called; for silence pass a logger with
// slog.DiscardHandler. The Queue logs these messages, each after "durable: ", with these
// attributes. While the engine fails, each message about that comes at most once in ten
// seconds.
//
// At level Warn, problems that the Queue handles itself:
//
//   - an attempt failed: kind, ref, attempt, of (how many the job may have), dead (whether it was
//     the last), error (up to the first blank line: Info.LastError has the stack of a panic), next (when
//     the next attempt is due; not of a dead job)
//   - a job is dead; its last attempt did not end: kind, ref, error
//   - a job has expired: kind, ref, dropped (an occurrence that was missed; other jobs are
//     listed as dead)
//   - another worker has the job; the end of the attempt is not stored: ref
//   - an attempt was completed in its handler's transaction, or another worker has the job:
//     ref, error (of the handler, which has failed)
//   - cannot store the end of an attempt; trying again: ref, error, pause
//   - a handler has asked for a cooldown: of (the kind, or its lane), until, error (once for
//     all that share a pause; not if the store has a pause of the same jobs that ends later)
//   - cannot store a cooldown; only its job waits: of, for, error
//   - cannot read whether an awaited job has ended; trying again: ref, error
//   - a handler has not returned after its Timeout: kind, ref, running (for
//     how long; once for each attempt, a lease after the Timeout)
//   - handlers did not return within WithGrace; their contexts end: handlers
//   - due jobs wait, since no worker handles their kind: kind, ref (of the oldest),
//     overdue (once, until a worker has one or no such job is due)
//   - cannot read the spec of a schedule; other workers run its jobs: name (once
//     for each name and Run; a newer release has stored it)
//   - cannot read a schedule; trying again: name, error
//   - cannot fetch jobs; trying again: error, pause (also while the engine makes no worker for Run)
//   - cannot renew the lease: error, silent (since the last renewal)
//   - cannot hand back jobs; others get them after the lease: error
//   - cannot close the worker; others wait for the end of its lease: error
//   - Run ended before the engine made a worker: error
//   - cannot read the engine's clock: error, silent (for how long)
//   - the engine's clock can be read again: silent (for how long it could not)
//   - the store has not the claims that this worker has; the jobs run again: forgotten (claims
//     that only the store had), lost (claims that only the worker had)
//   - announcements of other processes do not arrive; polls find their jobs
//   - announcements of other processes arrive again
//   - the engine's clock was set, or another server answers, or this process stood still: by
//     (forward, or back if negative; once for each step that [Stats] counts)
//
// At level Error, losses and problems that need attention:
//
//   - the lease was not renewed in time: silent, handlers (whose contexts end), dropped
//     (jobs that have not begun, and are handed back)
//   - cannot store the ends of attempts; the jobs will run again: attempts
//   - a schedule ends; no occurrence can follow: name, error
//   - a fault of the store may keep jobs from running, or lose them: error
//   - the store went back and lacks what it had stored last; follow BACKUP.md, After a
//     failover: seen (how the engine knows)
//
// Payloads and keys are not logged, but error has the text of a handler's error. The
// logger is called with a lock of the Queue held now and then: it must not call the
// Queue. Open panics on nil.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) {
		if l == nil {
			panic("durable: WithLogger(nil)")
		}
		c.Log = l
	}
}

func positive(name string, d time.Duration) time.Duration {
	if d <= 0 {
		panic(fmt.Sprintf("durable: %s(%v): not positive", name, d))
	}
	return d
}
