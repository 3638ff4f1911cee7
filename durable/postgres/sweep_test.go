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

// A job that another one replaces, or that Cancel leaves behind, is removed soon, whenever it was due: its row may be older
// than the last pass of the sweep.
func TestSweepReplaced(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	due := time.Now().Add(30 * 24 * time.Hour)
	add := func(id string) driver.Ref {
		r := record(id, due)
		r.Key, r.OnKey = "k", driver.KeyReplace
		refs, errs := e.Insert(t.Context(), []driver.Record{r})
		require.NoError(t, errors.Join(errs...))
		return refs[0]
	}
	left := func() (n int) {
		s.exec(t, pool, "update SCHEMA.job set id = '00000000000.' || split_part(id, '.', 2), born = born - interval '1 hour'")
		e.Sweep(t.Context())
		e.Expire(t.Context())
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from "+s.schema+".job").Scan(&n))
		return n
	}
	add("first")
	require.Equal(t, 1, left())
	add("second")
	require.Equal(t, 1, left())
	s.exec(t, pool, "select SCHEMA.add_job('k', key => 'k', on_key => 'replace', due => now() + interval '30 days')")
	require.Equal(t, 1, left())

	ref := add("fourth")
	s.exec(t, pool, "update SCHEMA.job set claim = 1, ord = 2 where id like '%fourth'") // its first attempt has failed
	s.exec(t, pool, `insert into SCHEMA.job (due, born, at, version, attempt, max_attempts, state, given_key, ord, id, kind, schedule, last_error, payload)
		select due, born, at, 0, 1, 1, 1, given_key, 1, 'older', kind, '', '', '' from SCHEMA.job where id like '%fourth'`)
	oks, errs := e.Cancel(t.Context(), []driver.Ref{ref})
	require.NoError(t, errs[0])
	require.True(t, oks[0])
	s.exec(t, pool, "delete from SCHEMA.job where id = 'older'")
	require.Zero(t, left())
}
