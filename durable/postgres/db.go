package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/clock"
)

// db is the one way to the server: the statements of one schema, the pool on which they run, and the
// server's time. Each part of an engine holds it, and it holds no part.
//
// Its fields do not change once an engine exists, so they need no lock; a moment has its own. No statement begins after ended
// is done: by Close, or since a newer version has migrated the schema. It knows no job, keeps no
// row, and notifies nobody.
type db struct {
	refs
	statements
	pool  *pgxpool.Pool
	clock *clock.Clock
	knows int // the version of the format that the engine works with

	closed       context.Context // ends with Close
	close        context.CancelFunc
	versionFresh moment // until then the version need not be read, since a poll has

	ended   context.Context // ends with closed, or with an ErrVersion as its cause
	outdate context.CancelCauseFunc
}

// openDB returns a db that its close ends.
func openDB(ctx context.Context, pool *pgxpool.Pool, c config) (*db, error) {
	d := &db{refs: refs{c.schema}, statements: newStatements(c.schema), pool: pool, knows: len(c.versions)}
	d.closed, d.close = context.WithCancel(context.Background())
	d.ended, d.outdate = context.WithCancelCause(d.closed)
	err := d.connect(ctx)
	if err != nil {
		d.close()
	}
	return d, err
}

func (d *db) connect(ctx context.Context) (err error) {
	if d.clock, err = clock.New(ctx, d.serverTime); err != nil {
		return err
	}
	var encoding string
	if err := d.pool.QueryRow(ctx, "show server_encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("the database's encoding is %s: use a database with UTF8", encoding)
	}
	_, err = d.version(ctx, d.pool)
	return err
}

// serverTime reads the server's clock.
func (d *db) serverTime(ctx context.Context) (t time.Time, _ time.Duration, err error) {
	err = d.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&t)
	return t, 0, err
}

// Now is the server's time.
func (d *db) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if err := d.usable(); err != nil {
		return time.Time{}, 0, err
	}
	if err := d.clock.Sync(ctx); err != nil {
		return time.Time{}, 0, err
	}
	t, off := d.clock.Now()
	return t, off, nil
}

// now returns the server's time as well as it is known.
func (d *db) now() time.Time {
	t, _ := d.clock.Now()
	return t
}

// usable returns why the engine cannot be used any more.
func (d *db) usable() error {
	switch {
	case d.ended.Err() == nil:
		return nil
	case d.closed.Err() != nil:
		return driver.ErrClosed
	}
	return context.Cause(d.ended)
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

// forCounters is for statements that change counters: longer than those of other workers lock a counter, and as short as
// jobs that no limit covers may wait.
const forCounters = "select set_config('lock_timeout', '50', true)"

// patient is the same for statements that wait for a busy key.
const patient = "select set_config('lock_timeout', '250', true)"

// ask runs a statement in one round trip and one transaction, and returns its rows. The
// settings are statements that go before it. Rows come before the commit, so on an error
// ask returns none: what a transaction has said that was rolled back never was.
func ask[T any](ctx context.Context, d *db, row pgx.RowToFunc[T], statement string, args []any, settings ...string) (all []T, err error) {
	if err := d.send(ctx, batch(&all, row, statement, args, settings)); err != nil {
		return nil, err
	}
	return all, nil
}

// batch returns the settings and a statement, whose rows are stored in all.
func batch[T any](all *[]T, row pgx.RowToFunc[T], statement string, args []any, settings []string) *pgx.Batch {
	b := &pgx.Batch{}
	for _, s := range settings {
		b.Queue(s)
	}
	b.Queue(statement, args...).Query(func(rows pgx.Rows) (err error) {
		*all, err = pgx.CollectRows(rows, row)
		return err
	})
	return b
}

// send runs a batch in one round trip and one transaction.
func (d *db) send(ctx context.Context, b *pgx.Batch) error {
	if err := d.usable(); err != nil {
		return err
	}
	c, err := d.pool.Acquire(ctx)
	if err != nil {
		return &notSentError{err}
	}
	defer c.Release()
	if err := c.SendBatch(ctx, b).Close(); err != nil {
		closeReadOnly(c.Conn(), err)
		return err
	}
	return nil
}

// query is ask of a statement that may be repeated: it is, until it has an answer.
func query[T any](ctx context.Context, d *db, row pgx.RowToFunc[T], statement string, args []any, settings ...string) ([]T, error) {
	return retry(ctx, d, true, func() ([]T, error) { return ask(ctx, d, row, statement, args, settings...) })
}

// do is ask of a statement whose rows, if any, say nothing.
func (d *db) do(ctx context.Context, statement string, args []any, settings ...string) error {
	_, err := ask(ctx, d, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil }, statement, args, settings...)
	return err
}

// affect runs a statement that returns no rows in one round trip and one transaction, and returns how many rows it
// has written.
func (d *db) affect(ctx context.Context, statement string, args []any) (n int64, err error) {
	b := &pgx.Batch{}
	b.Queue(statement, args...).Exec(func(tag pgconn.CommandTag) error {
		n = tag.RowsAffected()
		return nil
	})
	if err := d.send(ctx, b); err != nil {
		return 0, err
	}
	return n, nil
}

// micros is how durations are passed on.
func micros(d time.Duration) int64 { return d.Microseconds() }
