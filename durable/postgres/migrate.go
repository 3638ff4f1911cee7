package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
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

// migrator makes the schema and its tables, and brings them to the last of its versions: versions has the
// statements of each. A transaction that holds the advisory lock of lockKey makes all of it or
// nothing, and starts from the version that is stored then, so any number of processes may
// migrate at one time.
//
// It does not change, so it has no lock of its own. It never takes a version back, and no other part
// changes a table's columns.
type migrator struct {
	*db
	versions []string
}

// migrations returns the statements that bring a schema from a version to the latest.
func (m *migrator) migrations(from int) (texts []string) {
	for _, text := range m.versions[min(from, m.knows):] {
		texts = append(texts, inSchema(text, m.schema))
	}
	return texts
}

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
	m := &e.engine.migrator
	_, err := retry(ctx, m.db, true, func() (struct{}, error) { return struct{}{}, m.migrate(ctx) })
	if err != nil {
		return fmt.Errorf("postgres: Migrate: %w", err)
	}
	return nil
}

func (m *migrator) migrate(ctx context.Context) error {
	// A program that has waited for the lock must see what was done meanwhile, whatever the default is.
	return pgx.BeginTxFunc(ctx, m.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", m.lockKey()); err != nil {
			return err
		}
		from, err := m.version(ctx, tx)
		if err != nil {
			return err
		}
		if from == 0 {
			if err := m.createSchema(ctx, tx); err != nil {
				return err
			}
		}
		for i, text := range m.migrations(from) {
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
func (m *migrator) createSchema(ctx context.Context, tx pgx.Tx) error {
	var there bool
	err := tx.QueryRow(ctx, "select exists (select from pg_catalog.pg_namespace where nspname = $1)", m.schema).Scan(&there)
	if err == nil && !there {
		_, err = tx.Exec(ctx, "create schema "+pgx.Identifier{m.schema}.Sanitize())
	}
	return err
}

// lockKey is that of the advisory lock under which a schema is migrated.
func (m *migrator) lockKey() int64 { return advisoryKey("migrates", m.schema) }

func advisoryKey(what, schema string) int64 {
	h := fnv.New64a()
	h.Write([]byte("tickwheel " + what + " " + schema))
	return int64(h.Sum64())
}

// Migration returns the version of the schema, 0 without one, and the statements that
// Migrate would run, so that a database administrator can run them: in one transaction,
// under the lock that Migrate takes. They are empty if the schema is up to date. It
// changes nothing.
func (e *Engine) Migration(ctx context.Context) (version int, script string, err error) {
	m := &e.engine.migrator
	version, err = retry(ctx, m.db, true, func() (int, error) { return m.version(ctx, m.pool) })
	if err != nil || version >= m.knows {
		return version, "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "begin;\nselect pg_advisory_xact_lock(%d);\n", m.lockKey())
	if version == 0 {
		fmt.Fprintf(&b, "create schema if not exists %s;\n", pgx.Identifier{m.schema}.Sanitize())
	}
	for _, text := range m.migrations(version) {
		b.WriteString(text)
		b.WriteString(";\n")
	}
	b.WriteString("commit;\n")
	return version, b.String(), nil
}
