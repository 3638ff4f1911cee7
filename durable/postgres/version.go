package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// ErrVersion is returned when a newer version of this package has migrated the schema, and this one
// cannot work with it. It wraps durable.ErrVersion.
var ErrVersion = fmt.Errorf("postgres: the schema is of a newer version: %w", driver.ErrVersion)

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// version returns the schema's version, 0 if it has no tables, or ErrVersion. It reads the
// catalog's tables: to_regclass would answer from a cache, which in a transaction that has
// waited for another's migration is that of before.
func (d *db) version(ctx context.Context, q querier) (v int, err error) {
	var there bool
	err = q.QueryRow(ctx, `select exists (select from pg_catalog.pg_class c
		join pg_catalog.pg_namespace n on n.oid = c.relnamespace where n.nspname = $1 and c.relname = 'format')`, d.schema).Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	var oldest int
	if err := q.QueryRow(ctx, d.statements.version).Scan(&v, &oldest); err != nil {
		return 0, err
	}
	return v, d.newer(v, oldest)
}

// newer returns ErrVersion if the schema has a version that this engine cannot work with.
func (d *db) newer(v, oldest int) error {
	if oldest > d.knows {
		return fmt.Errorf("%w: the schema %q has version %d and needs a program that knows %d; this one knows %d: deploy a newer program", ErrVersion, d.schema, v, oldest, d.knows)
	}
	return nil
}

// migrated returns an error if the schema is older than this package needs.
func (d *db) migrated(ctx context.Context) error {
	v, err := retry(ctx, d, true, func() (int, error) { return d.version(ctx, d.pool) })
	if err == nil && v < d.knows {
		err = fmt.Errorf("postgres: the schema %q has version %d, and this program needs %d: call Migrate", d.schema, v, d.knows)
	}
	return err
}

// watchEvery is the pause between two checks of the schema's version.
const watchEvery = 2 * time.Second

// watchVersion checks the version until Close, unless polls do. Statements that fail because a migration has renamed
// something check it, too.
func (d *db) watchVersion() {
	for d.ended.Err() == nil {
		if !d.versionFresh.holds() {
			ctx, cancel := context.WithTimeout(d.ended, watchEvery)
			_ = d.checkVersion(ctx)
			cancel()
		}
		sleep(d.ended, watchEvery)
	}
}

// checkVersion returns ErrVersion if the schema is of a version that this engine cannot work with.
// Then all calls fail, and each Fetch ends.
func (d *db) checkVersion(ctx context.Context) error {
	_, err := d.version(ctx, d.pool)
	if !errors.Is(err, ErrVersion) {
		return nil
	}
	d.outdate(err)
	return err
}
