package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// versionsOf returns the statements that make each version of the format (FORMAT.md) from the one
// before: version 1 is sql/1.sql. There is no gap. An engine works with the last of its versions.
func versionsOf(files fs.FS) (texts []string) {
	for {
		text, err := fs.ReadFile(files, fmt.Sprintf("sql/%d.sql", len(texts)+1))
		if err != nil {
			return texts
		}
		texts = append(texts, string(text))
	}
}

// latest is the version of the format that the engine works with.
func (e *engine) latest() int { return len(e.versions) }

// migrations returns the statements that bring a schema from a version to the latest.
func (e *engine) migrations(from int) (texts []string) {
	for _, text := range e.versions[min(from, e.latest()):] {
		texts = append(texts, inSchema(text, e.schema))
	}
	return texts
}

// ErrVersion is returned when a newer version of this package has migrated the schema, and this one
// cannot work with it. It wraps durable.ErrVersion.
var ErrVersion = fmt.Errorf("postgres: the schema is of a newer version: %w", driver.ErrVersion)

// Migrate makes the schema and its tables, or brings them to this package's version. If
// they are of that version, or of a newer one that this one can work with, it changes
// nothing. It is one transaction, and any number of processes may call it at one time: one
// migrates, the others wait for it. The role needs the right to create a schema in the
// database, unless it is there; then to create tables in it. It returns [ErrVersion] for a
// schema of a newer version that this one cannot work with.
//
// Processes of several versions may run side by side if the newest allows it in the
// schema. Otherwise the calls of an older process fail with ErrVersion after the migration, and
// change nothing, and its worker ends within seconds. A process that is newer than the schema can do
// nothing before it has migrated.
func (e *Engine) Migrate(ctx context.Context) error {
	_, err := retry(ctx, e.engine, true, func() (struct{}, error) { return struct{}{}, e.engine.migrate(ctx) })
	if err != nil {
		return fmt.Errorf("postgres: Migrate: %w", err)
	}
	return nil
}

func (e *engine) migrate(ctx context.Context) error {
	// A program that has waited for the lock must see what was done meanwhile, whatever the default is.
	return pgx.BeginTxFunc(ctx, e.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", e.lockKey()); err != nil {
			return err
		}
		from, err := e.version(ctx, tx)
		if err != nil {
			return err
		}
		if from == 0 {
			if err := e.createSchema(ctx, tx); err != nil {
				return err
			}
		}
		for i, text := range e.migrations(from) {
			// Without arguments it may be several statements.
			if _, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll(); err != nil {
				return fmt.Errorf("version %d: %w", from+1+i, err)
			}
		}
		return nil
	})
}

// createSchema makes the schema if it is not there. To say "if not exists" needs the
// right to create schemas in any case.
func (e *engine) createSchema(ctx context.Context, tx pgx.Tx) error {
	var there bool
	err := tx.QueryRow(ctx, "select exists (select from pg_catalog.pg_namespace where nspname = $1)", e.schema).Scan(&there)
	if err == nil && !there {
		_, err = tx.Exec(ctx, "create schema "+pgx.Identifier{e.schema}.Sanitize())
	}
	return err
}

// lockKey is that of the advisory lock under which a schema is migrated.
func (e *engine) lockKey() int64 { return advisoryKey("migrates", e.schema) }

func advisoryKey(what, schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte("tickwheel " + what + " " + schema))
	return int64(h.Sum64())
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version returns the schema's version, 0 if it has no tables, or ErrVersion. It reads the
// catalog's tables: to_regclass would answer from a cache, which in a transaction that has
// waited for another's migration is that of before.
func (e *engine) version(ctx context.Context, q querier) (v int, err error) {
	var there bool
	err = q.QueryRow(ctx, `select exists (select from pg_catalog.pg_class c
		join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'format')`, e.schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	e.tables.Store(true)
	return e.storedVersion(ctx, q)
}

// storedVersion is version of a schema that has its tables. It is an error if it has none.
func (e *engine) storedVersion(ctx context.Context, q querier) (v int, err error) {
	var oldest int
	if err := q.QueryRow(ctx, e.statements.version).Scan(&v, &oldest); err != nil {
		return 0, err
	}
	if oldest > e.latest() {
		return v, fmt.Errorf("%w: the schema %q has version %d and needs a program that knows %d; this one knows %d: deploy a newer program", ErrVersion, e.schema, v, oldest, e.latest())
	}
	return v, nil
}

// migrated returns an error if the schema is older than this package needs.
func (e *engine) migrated(ctx context.Context) error {
	v, err := retry(ctx, e, true, func() (int, error) { return e.version(ctx, e.pool) })
	if err == nil && v < e.latest() {
		err = fmt.Errorf("postgres: the schema %q has version %d, and this program needs %d: call Migrate", e.schema, v, e.latest())
	}
	return err
}

// watchEvery is the pause between two checks of the schema's version.
const watchEvery = 2 * time.Second

// watchVersion checks the version until Close. Statements that fail because a migration has renamed
// something check it, too.
func (e *engine) watchVersion() {
	for e.outdated.Load() == nil && e.closed.Err() == nil {
		ctx, cancel := context.WithTimeout(e.closed, watchEvery)
		_ = e.checkVersion(ctx)
		cancel()
		sleep(e.closed, watchEvery)
	}
}

// checkVersion returns ErrVersion if the schema is of a version that this engine cannot work with.
// Then all calls fail.
func (e *engine) checkVersion(ctx context.Context) error {
	read := e.version
	if e.tables.Load() { // the catalog has nothing new, and to ask it is another transaction
		read = e.storedVersion
	}
	_, err := read(ctx, e.pool)
	if !errors.Is(err, ErrVersion) {
		return nil
	}
	if e.outdated.CompareAndSwap(nil, &err) {
		e.announce(announcement{}) // each Fetch finds out at once
	}
	return err
}

// usable returns why the engine cannot be used any more.
func (e *engine) usable() error {
	if e.closed.Err() != nil {
		return driver.ErrClosed
	}
	if err := e.outdated.Load(); err != nil {
		return *err
	}
	return nil
}

// Migration returns the version of the schema, 0 without one, and the statements that
// Migrate would run, so that a database administrator can run them: in one transaction,
// under the lock that Migrate takes. They are empty if the schema is up to date. It
// changes nothing.
func (e *Engine) Migration(ctx context.Context) (version int, script string, err error) {
	version, err = retry(ctx, e.engine, true, func() (int, error) { return e.engine.version(ctx, e.engine.pool) })
	if err != nil || version >= e.engine.latest() {
		return version, "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "begin;\nselect pg_advisory_xact_lock(%d);\n", e.engine.lockKey())
	if version == 0 {
		fmt.Fprintf(&b, "create schema if not exists %s;\n", pgx.Identifier{e.engine.schema}.Sanitize())
	}
	for _, text := range e.engine.migrations(version) {
		b.WriteString(text)
		b.WriteString(";\n")
	}
	b.WriteString("commit;\n")
	return version, b.String(), nil
}
