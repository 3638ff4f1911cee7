package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// transaction is one of a user's, by some driver.
type transaction struct {
	exec     func(ctx context.Context, sql string, args ...any) error
	add      func(ctx context.Context, jobs ...driver.Job) ([]durable.Ref, error)
	signal   func(ctx context.Context, key string, payload []byte) (bool, error)
	complete func(ctx context.Context, a *durable.Attempt) error
	commit   func() error
	rollback func() error
}

// drivers are ways to begin transactions for an engine: pgx's own, and two of database/sql.
var drivers = map[string]func(t testing.TB, s *store, e *postgres.Engine) func(context.Context) (transaction, error){
	"pgx": func(t testing.TB, s *store, e *postgres.Engine) func(context.Context) (transaction, error) {
		pool := s.pool(t)
		return func(ctx context.Context) (transaction, error) {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return transaction{}, err
			}
			return transaction{
				exec: func(ctx context.Context, sql string, args ...any) error {
					_, err := tx.Exec(ctx, sql, args...)
					return err
				},
				add: func(ctx context.Context, jobs ...driver.Job) ([]durable.Ref, error) {
					return e.AddTx(ctx, tx, jobs...)
				},
				signal: func(ctx context.Context, key string, payload []byte) (bool, error) {
					return e.SignalTx(ctx, tx, key, payload)
				},
				complete: func(ctx context.Context, a *durable.Attempt) error { return e.CompleteTx(ctx, tx, a) },
				commit:   func() error { return tx.Commit(context.Background()) },
				rollback: func() error { return tx.Rollback(context.Background()) },
			}, nil
		}
	},
	"stdlib": overSQL("pgx"),
	"pq":     overSQL("postgres"),
}

func overSQL(name string) func(t testing.TB, s *store, e *postgres.Engine) func(context.Context) (transaction, error) {
	return func(t testing.TB, s *store, e *postgres.Engine) func(context.Context) (transaction, error) {
		db, err := sql.Open(name, s.srv.DSN())
		require.NoError(t, err)
		t.Cleanup(func() { db.Close() })
		return func(ctx context.Context) (transaction, error) {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return transaction{}, err
			}
			return transaction{
				exec: func(ctx context.Context, sql string, args ...any) error {
					_, err := tx.ExecContext(ctx, sql, args...)
					return err
				},
				add: func(ctx context.Context, jobs ...driver.Job) ([]durable.Ref, error) {
					return e.AddSQL(ctx, tx, jobs...)
				},
				signal: func(ctx context.Context, key string, payload []byte) (bool, error) {
					return e.SignalSQL(ctx, tx, key, payload)
				},
				complete: func(ctx context.Context, a *durable.Attempt) error { return e.CompleteSQL(ctx, tx, a) },
				commit:   tx.Commit,
				rollback: tx.Rollback,
			}, nil
		}
	}
}

// withEach runs a test with each driver, on a schema of its own.
func withEach(t *testing.T, test func(t *testing.T, s *store, e *postgres.Engine, begin func(context.Context) (transaction, error))) {
	srv := shared.Test(t)
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			s := newStore(srv)
			e := s.open(t)
			test(t, s, e, driver(t, s, e))
		})
	}
}
