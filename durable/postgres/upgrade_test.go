package postgres_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// Jobs of version 1 run after the migration: those that wait, and those that a worker of
// it had claimed, of which nobody knows whether it had begun.
func TestUpgrade(t *testing.T) {
	s := newStore(server(t))
	pool := s.pool(t)
	exec := func(sql string) {
		_, err := pool.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	text, err := os.ReadFile("sql/1.sql")
	require.NoError(t, err)
	exec("create schema " + s.schema)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	_, err = conn.Conn().PgConn().Exec(t.Context(), strings.ReplaceAll(string(text), "tickwheel.", s.schema+".")).ReadAll()
	require.NoError(t, err)
	conn.Release()

	e, err := postgres.Connect(t.Context(), pool, postgres.Schema(s.schema))
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	_, err = q.Add(t.Context(), durable.Job{Kind: "k"}, durable.Job{Kind: "claimed"})
	require.NoError(t, err)
	exec("update " + s.schema + ".job set state = 1, attempt = 1, claim = 1, holder = 4711 where kind = 'claimed'")
	require.NoError(t, e.Migrate(t.Context()))

	ran := make(chan *durable.Attempt, 10)
	handler := func(_ context.Context, a *durable.Attempt) error { ran <- a; return nil }
	q.Handle("k", handler)
	q.Handle("claimed", handler)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	for range 2 {
		a := <-ran
		require.Equal(t, 1, a.Number, a.Job.Kind)
	}
	stop()
	require.NoError(t, <-done)
	require.Empty(t, ran)
}
