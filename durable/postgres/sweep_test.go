package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// What has ended is removed when nobody can insert it once more, and no earlier; what
// waits or is dead is left. What ended so late that the sweep had passed is removed in
// the end, and dead jobs after their retention.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	now := time.Now()
	add := func(id string) driver.Ref {
		refs, errs := e.Insert(t.Context(), []driver.Record{record(id, now.Add(time.Hour))})
		require.NoError(t, errors.Join(errs...))
		return refs[0]
	}
	cancel := func(id string) {
		oks, errs := e.Cancel(t.Context(), []driver.Ref{add(id)})
		require.NoError(t, errs[0])
		require.True(t, oks[0])
	}
	exec := func(sql string, args ...any) {
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err)
	}
	// older has jobs be born an hour before.
	older := func(ids ...string) {
		exec("update "+s.schema+".job set id = '00000000000.' || split_part(id, '.', 2), born = born - interval '1 hour' where split_part(id, '.', 2) = any($1)", ids)
	}
	left := func() (ids []string) {
		rows, err := pool.Query(t.Context(), "select split_part(id, '.', 2) from "+s.schema+".job order by 1")
		require.NoError(t, err)
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return ids
	}
	add("waits")
	cancel("canceled")
	cancel("young")
	add("dead")
	add("long-dead")
	exec("update " + s.schema + ".job set state = 2 where id like '%dead'")
	exec("update " + s.schema + ".job set due = now() where id like '%long-dead'")
	older("waits", "canceled", "dead", "long-dead")
	e.Sweep(t.Context())
	require.Equal(t, []string{"dead", "long-dead", "waits", "young"}, left())

	cancel("late")
	older("late")
	exec("update " + s.schema + ".job set due = now() where id like '%late'")
	e.Sweep(t.Context())
	require.Equal(t, []string{"dead", "late", "long-dead", "waits", "young"}, left())
	e.Expire(t.Context())
	require.Equal(t, []string{"dead", "waits", "young"}, left())

	// A job that ends when it is old goes at once.
	add("old")
	older("old")
	for info, err := range e.Scan(t.Context(), driver.Filter{State: driver.Waiting}) {
		require.NoError(t, err)
		oks, errs := e.Cancel(t.Context(), []driver.Ref{info.Ref})
		require.NoError(t, errs[0])
		require.True(t, oks[0])
	}
	require.Equal(t, []string{"dead", "young"}, left())
}

// A pass removes all retained jobs whose time is over, however many have ended in the time between two passes.
func TestExpireMany(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	_, err := pool.Exec(t.Context(), "insert into "+s.schema+`.job (due, born, at, version, attempt, max_attempts, state, retain, id, kind, schedule, last_error, payload)
		select now() - interval '1 second', now(), now(), 0, 1, 1, 4, 1, '00000000000.' || n, 'k' || n % 2, '', '', '' from generate_series(1, 20001) as n`)
	require.NoError(t, err)
	e.Expire(t.Context())
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from "+s.schema+".job").Scan(&left))
	require.Zero(t, left)
}
