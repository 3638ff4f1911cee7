package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Option sets up an engine that [Connect] returns.
type Option func(*config)

type config struct {
	schema   string
	versions []string // see migrate.go
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// WithSchema sets the name of the schema that has the queue's tables: small letters, digits
// and _, at most 63 of them, without a digit or "pg_" in front. The default is "tickwheel". Queues in several
// schemas have nothing in common. Connect panics on another name.
func WithSchema(name string) Option {
	return func(c *config) {
		if !schemaName.MatchString(name) {
			panic(fmt.Sprintf("postgres: WithSchema(%q): use lower-case letters, digits and _", name))
		}
		if strings.HasPrefix(name, "pg_") {
			panic(fmt.Sprintf("postgres: WithSchema(%q): the server keeps names with pg_ in front for itself", name))
		}
		c.schema = name
	}
}

// Engine is an engine on a schema of a PostgreSQL database, for one Queue. All methods may be
// called by several goroutines at once.
type Engine struct {
	driver.Engine // For durable.Open.
	engine        *engine
}

// engine is the parts that a Queue calls, and what they need: each part is a type of its own, which holds
// types below it and never the engine. Only Connect makes them, and only Close ends them.
//
// It has no lock: its fields do not change after Connect.
type engine struct {
	*db
	migrator  migrator
	announcer *announcer

	reader
	*inserter
	txWriter
	changer
	*limiter
	scheduler

	closing context.Context // ends when Close begins: then what waits to be sent is sent
	stop    context.CancelFunc
	sending sync.WaitGroup
	wg      sync.WaitGroup // what Close waits for
}

// Connect returns an engine on the database of a pool. Call [Engine.Migrate] first,
// unless the schema was migrated before: without its tables all other methods fail. The
// pool stays the caller's: Close of the engine leaves it open. It must not be closed
// before.
//
// An engine with a worker uses up to eight of the pool's connections at a time, and two
// of its own outside the pool: one listens, and one renews the lease, so that a pool
// which is exhausted costs no lease. Connect returns [ErrVersion] for a schema that a newer
// version of this package has migrated in a way that this one cannot work with, see
// [Engine.Migrate], and an error for a database whose encoding
// is not UTF8. It panics on nil.
func Connect(ctx context.Context, pool *pgxpool.Pool, opts ...Option) (*Engine, error) {
	if pool == nil {
		panic("postgres: Connect: nil pool")
	}
	c := config{schema: "tickwheel", versions: versionsOf(files)}
	for _, opt := range opts {
		if opt == nil {
			panic("postgres: Connect: nil Option")
		}
		opt(&c)
	}
	d, err := openDB(ctx, pool, c)
	if err != nil {
		return nil, fmt.Errorf("postgres: Connect: %w", err)
	}
	a := &announcer{d, dialer{pool}, newNotices(d), rand.Text(), newNotifier(), newNotifier(), everyPoll}
	e := &engine{
		db: d, migrator: migrator{d, c.versions}, announcer: a,
		reader: reader{d}, inserter: &inserter{a, heldKeys{keys: map[string]*heldKey{}}}, txWriter: txWriter{a},
		changer: changer{a}, limiter: &limiter{announcer: a}, scheduler: scheduler{a},
	}
	e.closing, e.stop = context.WithCancel(e.closed)
	l, _ := a.outgoing.listen()
	e.sending.Go(func() { a.sendAnnouncements(e.closing, l) })
	e.sending.Go(func() { a.notices.sendAll(e.closing) })
	e.wg.Go(e.watchVersion)
	return &Engine{e, e}, nil
}

// Health returns durable.ErrReadOnly if the server takes no writes, and another error if it does not answer.
// Queue.Health calls it.
func (e *Engine) Health(ctx context.Context) error {
	var is bool
	if err := e.engine.usable(); err != nil {
		return err
	}
	err := e.engine.pool.QueryRow(ctx, "select current_setting('transaction_read_only')::bool").Scan(&is)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: the server does not answer: %w", err)
	case is:
		return fmt.Errorf("postgres: %w: it is a standby, or default_transaction_read_only is on", driver.ErrReadOnly)
	}
	return nil
}

// Close ends the engine, and its workers as if their process had died. The pool stays
// open. Close first sends the announcements and notices that wait, for at most a second.
func (e *engine) Close() error {
	e.stop()
	timeout := time.AfterFunc(time.Second, e.close)
	e.sending.Wait()
	timeout.Stop()
	e.close()
	e.wg.Wait()
	return nil
}
