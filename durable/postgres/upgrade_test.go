package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// Jobs of version 1 run after the migration: those that wait, and those that a worker of
// it had claimed, of which nobody knows whether it had begun.
func TestUpgrade(t *testing.T) {
	t.Parallel()
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

	const insert = "insert into %s.job (id, name, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series" +
		") values ('%s', null, '%s', 'p', now(), now(), now(), 25, 0, 0, '', '')"
	for i, kind := range []string{"k", "claimed"} {
		exec(fmt.Sprintf(insert, s.schema, "0hoejqjfju"+strconv.Itoa(i)+".PAZ33SAJJBKI5AH3FNCIWS4XOZ", kind))
	}
	exec("update " + s.schema + ".job set state = 1, attempt = 1, claim = 1, holder = 4711 where kind = 'claimed'")
	e, err := postgres.Connect(t.Context(), pool, postgres.Schema(s.schema))
	require.NoError(t, err)
	require.NoError(t, e.Migrate(t.Context()))
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()

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
		require.Equal(t, durable.Job{Kind: a.Job.Kind, Payload: []byte("p"), At: a.Job.At, MaxAttempts: 25}, a.Job)
	}
	stop()
	require.NoError(t, <-done)
	require.Empty(t, ran)
}
