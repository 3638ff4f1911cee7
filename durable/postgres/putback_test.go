package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// tables are those of a schema.
var tables = []string{"format", "job", "worker", "schedule", "flow_control", "counter", "cancel_request"}

// Save makes the store one that can be put back: by a copy of its tables. So nothing but their content says
// that they went back.
func (s *store) Save(t testing.TB) func() {
	pool := s.pool(t)
	all := func(f func(tx pgx.Tx, table string)) {
		require.Eventually(t, func() bool {
			return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				// Workers have the tables locked for moments, in another order: there may be a deadlock.
				locked := s.schema + "." + strings.Join(tables, ", "+s.schema+".")
				if _, err := tx.Exec(t.Context(), "lock table "+locked+" in access exclusive mode"); err != nil {
					return err
				}
				for _, table := range tables {
					f(tx, table)
				}
				return nil
			}) == nil
		}, patience, time.Millisecond)
	}
	run := func(tx pgx.Tx, statement string) {
		_, err := tx.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	all(func(tx pgx.Tx, table string) {
		run(tx, "create table "+s.schema+".saved_"+table+" as table "+s.schema+"."+table)
	})
	return func() {
		all(func(tx pgx.Tx, table string) {
			run(tx, "delete from "+s.schema+"."+table)
			run(tx, "insert into "+s.schema+"."+table+" table "+s.schema+".saved_"+table)
		})
	}
}

// A worker expects that its id is another's: it takes another one.
func TestWorkerIDTaken(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	s.exec(t, pool, "create sequence SCHEMA.tries")
	s.exec(t, pool, `create function SCHEMA.taken() returns trigger language plpgsql as $$ begin
		if nextval('SCHEMA.tries') <= 3 then raise unique_violation; end if; return new; end $$`)
	s.exec(t, pool, "create trigger taken before insert on SCHEMA.worker for each row execute function SCHEMA.taken()")
	w, err := e.Work(t.Context(), workConfig("w", time.Minute))
	require.NoError(t, err)
	require.NoError(t, w.Heartbeat(t.Context()))
}

// A heartbeat renews no lease of another worker that has the same id, and its own worker ends: both cannot
// go on.
func TestWorkerIDOfAnother(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	w, err := e.Work(t.Context(), workConfig("w", time.Minute))
	require.NoError(t, err)
	s.exec(t, pool, "update SCHEMA.worker set name = 'another', until = until - interval '1 hour'")
	require.ErrorIs(t, w.Heartbeat(t.Context()), driver.ErrClosed)
	var dead bool
	require.NoError(t, pool.QueryRow(context.Background(), "select until < now() from "+s.schema+".worker where name = 'another'").Scan(&dead))
	require.True(t, dead, "another's lease was renewed")
}
