package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// What is not announced is found by polling, however often other kinds are.
func TestPolledBesideRings(t *testing.T) {
	s := newStore(server(t))
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	ran := make(chan time.Duration, 1)
	q.Handle("rings", func(context.Context, *durable.Attempt) error { return nil })
	q.Handle("polled", func(_ context.Context, a *durable.Attempt) error { ran <- time.Since(a.Due); return nil })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	_, err = q.Add(t.Context(), durable.Job{Kind: "polled", After: 2 * time.Second}) // too far ahead
	require.NoError(t, err)
	for end, found := time.Now().Add(patience), false; !found; {
		require.True(t, time.Now().Before(end), "not found")
		_, err := q.Add(t.Context(), durable.Job{Kind: "rings"})
		require.NoError(t, err)
		select {
		case <-ran:
			found = true
		default:
		}
	}
	stop()
	require.NoError(t, <-done)
}

// Announcements say of which kinds they are, up to what the server takes.
func TestNews(t *testing.T) {
	require.Equal(t, `{"kinds":["a","b"]}`, postgres.News(false, "b", "a", "b"))
	require.Equal(t, `{"old":true}`, postgres.News(true))
	long := make([]string, 200)
	for i := range long {
		long[i] = fmt.Sprintf("kind %d, of a name that is rather long for one", i)
	}
	require.Equal(t, `{}`, postgres.News(false, long...))
	for _, text := range []string{"some", "all", "", "{}", `{"old":true}`} {
		require.True(t, postgres.Announces(text, "any"), text)
	}
	require.True(t, postgres.Announces(`{"kinds":["a"]}`, "a"))
	require.False(t, postgres.Announces(`{"kinds":["a"]}`, "b"))
}

// A look passes no rows of kinds that it does not ask for, and reads each of its own from
// the index, in the order of their time.
func TestLookReadsItsKinds(t *testing.T) {
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	s.exec(t, pool, `insert into SCHEMA.job (id, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series)
		select lpad(n::text, 11, '0') || '.x', case when n % 1000 = 0 then 'k' else 'other' end, '', now(), now() - interval '1 hour', now(), 1, 0, 0, '', ''
		from generate_series(1, 50000) n`)
	w, err := e.Work(t.Context(), workConfig("w", time.Minute))
	require.NoError(t, err)
	var before, after int64
	read := func() (n int64) {
		time.Sleep(1500 * time.Millisecond) // the server's own figures come with a delay
		s.exec(t, pool, "select pg_stat_clear_snapshot()")
		require.NoError(t, pool.QueryRow(t.Context(), `select coalesce(sum(idx_tup_fetch), 0) + coalesce(sum(seq_tup_read), 0)
			from pg_stat_user_tables where schemaname = $1 and relname = 'job'`, s.schema).Scan(&n))
		return n
	}
	before = read()
	held := look(t, w)
	after = read()
	require.Len(t, held, 50)
	t.Logf("%d rows were read for 50", after-before)
	require.Less(t, after-before, int64(1000))
}
