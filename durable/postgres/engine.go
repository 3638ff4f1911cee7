package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
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

type engine struct {
	config
	statements
	name      string // in the announcements that it sends
	pool      *pgxpool.Pool
	clock     *clock.Clock
	fetches   *notifier // wakes each Fetch of this engine
	outgoing  *notifier // wakes sendAnnouncements
	pollEvery time.Duration

	heldKeys heldKeys
	notices  *notices
	read     atomic.Pointer[driver.FlowControl] // as they were read last

	tables   atomic.Bool           // the schema has had its tables
	outdated atomic.Pointer[error] // an ErrVersion, once a newer version has migrated

	closing context.Context // ends when Close begins: then what waits to be sent is sent
	stop    context.CancelFunc
	sending sync.WaitGroup
	closed  context.Context // ends with Close
	close   context.CancelFunc
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
	e := &engine{config: c, statements: newStatements(c.schema), name: rand.Text(), pool: pool,
		fetches: newNotifier(), outgoing: newNotifier(), pollEvery: everyPoll, notices: newNotices(), heldKeys: heldKeys{keys: map[string]*heldKey{}},
	}
	e.closed, e.close = context.WithCancel(context.Background())
	e.closing, e.stop = context.WithCancel(e.closed)
	if err := e.connect(ctx); err != nil {
		e.close()
		return nil, fmt.Errorf("postgres: Connect: %w", err)
	}
	l, _ := e.outgoing.listen()
	e.sending.Go(func() { e.sendAnnouncements(l) })
	e.sending.Go(e.sendNotices)
	e.wg.Go(e.watchVersion)
	return &Engine{e, e}, nil
}

func (e *engine) connect(ctx context.Context) (err error) {
	if e.clock, err = clock.New(ctx, e.serverTime); err != nil {
		return err
	}
	var encoding string
	if err := e.pool.QueryRow(ctx, "show server_encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s: use a database with UTF8", encoding)
	}
	_, err = e.version(ctx, e.pool)
	return err
}

// serverTime reads the server's clock.
func (e *engine) serverTime(ctx context.Context) (t time.Time, _ time.Duration, err error) {
	err = e.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&t)
	return t, 0, err
}

// Now is the server's time.
func (e *engine) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if err := e.usable(); err != nil {
		return time.Time{}, 0, err
	}
	if err := e.clock.Sync(ctx); err != nil {
		return time.Time{}, 0, err
	}
	t, off := e.clock.Now()
	return t, off, nil
}

// now returns the server's time as well as it is known.
func (e *engine) now() time.Time {
	t, _ := e.clock.Now()
	return t
}

// Health returns an error if the server answers, and takes no writes: durable.ErrReadOnly. Queue.Health calls it.
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

// hot are the settings of statements that find a handful of rows among millions. The
// planner must not decide by the table's size whether to read all of it: a plan that was
// made while the table was small is kept when it has grown. Without jit = off it would
// take the cost of what is forbidden, where there is no other way, for a reason to
// compile, for seconds. Of a plan for the lengths of the arrays it would make a new one
// for each call: 0.5 ms a claim.
const hot = "select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)," +
	" set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"

// relaxed is for what a crash may take back: it does not wait for the disk.
const relaxed = "select set_config('synchronous_commit', 'off', true)"

// brief is for statements that may have to wait for a key which another's transaction holds. They
// wait for a commit that is under way, and no longer: they are called again, and hold up no other
// meanwhile. It does not bound the wait for a lock of the table: a statement that is prepared anew
// waits for that before the setting is made.
const brief = "select set_config('lock_timeout', '5', true)"

// hotBrief is hot and brief, for changes of single jobs. A job may be locked by a transaction of a
// caller's, and each call that waits for it takes a connection: some of them would take the whole
// pool. So they wait without a connection, between two tries.
const hotBrief = hot + ", set_config('lock_timeout', '5', true)"

// patient is the same for statements that wait for a busy key.
const patient = "select set_config('lock_timeout', '250', true)"

// ask runs a statement in one round trip and one transaction, and returns its rows. The
// settings are statements that go before it. Rows come before the commit, so on an error
// ask returns none: what a transaction has said that was rolled back never was.
func ask[T any](ctx context.Context, e *engine, row pgx.RowToFunc[T], statement string, args []any, settings ...string) (all []T, err error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	b := &pgx.Batch{}
	for _, s := range settings {
		b.Queue(s)
	}
	b.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, row)
		return err
	})
	c, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, &notSentError{err}
	}
	defer c.Release()
	if err := c.SendBatch(ctx, b).Close(); err != nil {
		closeReadOnly(c.Conn(), err)
		return nil, err
	}
	return all, nil
}

// do is ask of a statement whose rows, if any, say nothing.
func (e *engine) do(ctx context.Context, statement string, args []any, settings ...string) error {
	_, err := ask(ctx, e, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil }, statement, args, settings...)
	return err
}

// micros is how durations are passed on.
func micros(d time.Duration) int64 { return d.Microseconds() }
