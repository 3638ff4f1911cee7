package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// A pause that waits for the end of an occurrence takes away the one that follows it, which
// was not there when the pause began.
func TestPauseScheduleWaitsForAnEnd(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	for name, change := range map[string]func() error{
		"pause":  func() error { return q.PauseSchedule(t.Context(), "pause") },
		"delete": func() error { return q.DeleteSchedule(t.Context(), "delete") },
	} {
		require.NoError(t, q.SetSchedule(t.Context(), name, "@yearly", durable.Job{Kind: "k"}))
		pool := s.pool(t)
		tx, err := pool.Begin(t.Context()) // what finish.sql does
		require.NoError(t, err)
		table, key := pgx.Identifier{s.schema, "job"}.Sanitize(), "every/"+name
		_, err = tx.Exec(t.Context(), fmt.Sprintf("create temporary table ends on commit drop as select * from %s where key = '%s' for update", table, key))
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- change() }()
		require.Eventually(t, func() bool {
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from pg_locks where not granted and locktype <> 'advisory'").Scan(&n))
			return n > 0
		}, patience, time.Millisecond, "the change waits")
		_, err = tx.Exec(t.Context(), fmt.Sprintf(`update ends set id = id || '2'; update %s set state = 3, key = null where key = '%s'; insert into %[1]s select * from ends`, table, key))
		require.NoError(t, err)
		require.NoError(t, tx.Commit(t.Context()))
		require.NoError(t, await(t, done))
		for info, err := range q.Schedules(t.Context()) {
			require.NoError(t, err)
			require.True(t, info.Next.IsZero(), "%s: %v", info.Name, info.Next)
		}
		for info, err := range q.All(t.Context(), durable.Filter{}) {
			require.NoError(t, err)
			t.Errorf("%s: %v waits", name, info.Ref)
		}
	}
}
