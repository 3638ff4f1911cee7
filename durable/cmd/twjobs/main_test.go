package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
	"github.com/tickwheel/tickwheel/durable/jetstream/embedded"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// patience is how long a test waits for what must come. It is a bound, not a measure.
const patience = 2 * time.Minute

// within returns a context that ends with patience: an engine tries for as long as it may.
// Without a deadline it asks once.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// twjobs runs the program on a directory, and returns what it prints and its status.
func twjobs(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	status := run(within(t), append([]string{"-dir", dir}, args...), &out, &out)
	return out.String(), status
}

// fill leaves a waiting job, one with a key, and a dead one in a new directory.
func fill(t *testing.T) (dir string, waiting, dead string) {
	dir = t.TempDir()
	e, err := embedded.Open(within(t), dir)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer q.Close()
	refs, err := q.Add(within(t), durable.Job{Kind: "wait", After: time.Hour, Payload: []byte("hello")},
		durable.Job{Kind: "key", Key: "k", After: time.Hour}, durable.Job{Kind: "fail"})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	q.Handle("fail", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no\nuse")) })
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	require.Eventually(t, func() bool { return q.Stats().Dead == 1 }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
	return dir, string(refs[0]), string(refs[2])
}

func TestCommands(t *testing.T) {
	dir, waiting, dead := fill(t)
	out, status := twjobs(t, dir, "list")
	require.Zero(t, status, out)
	require.Contains(t, out, waiting)
	require.Contains(t, out, dead)
	out, status = twjobs(t, dir, "list", "-state", "dead", "-kind", "fail")
	require.Zero(t, status, out)
	require.NotContains(t, out, waiting)
	require.Contains(t, out, dead)
	out, status = twjobs(t, dir, "show", waiting)
	require.Zero(t, status, out)
	require.Contains(t, out, "payload  hello")
	out, status = twjobs(t, dir, "show", dead)
	require.Zero(t, status, out)
	require.Contains(t, out, "error    no\n         use")
	out, status = twjobs(t, dir, "stats")
	require.Zero(t, status, out)
	require.Regexp(t, `fail +dead +1`, out)
	require.Contains(t, out, "0 overdue")
	out, status = twjobs(t, dir, "redrive", "-all")
	require.Zero(t, status, out)
	out, status = twjobs(t, dir, "redrive", dead)
	require.Equal(t, 1, status, out)
	out, status = twjobs(t, dir, "cancel", waiting, dead)
	require.Zero(t, status, out)
	out, status = twjobs(t, dir, "cancel", waiting)
	require.Equal(t, 1, status, out)
	out, status = twjobs(t, dir, "cancel", "-key", "k")
	require.Zero(t, status, out)
	out, status = twjobs(t, dir, "list", "-n", "1")
	require.Zero(t, status, out)
	require.NotContains(t, out, "waiting")
}

func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{}, {"nothing"}, {"list", "x"}, {"list", "-state", "x"}, {"show"}, {"cancel"}, {"redrive"},
		{"redrive", "-all", "x"}, {"stats", "x"}, {"-nats", "x", "list"},
	} {
		out, status := twjobs(t, dir, args...)
		require.Equal(t, 2, status, "%v: %s", args, out)
		require.Contains(t, out, "usage: twjobs")
	}
	out, status := twjobs(t, dir+"/none", "list")
	require.Equal(t, 1, status, out)
	out, status = twjobs(t, dir, "show", "x")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "not found")
	require.Zero(t, run(within(t), []string{"-h"}, &bytes.Buffer{}, &bytes.Buffer{}))
}

// The same commands work on a schema of PostgreSQL, which is not made by a look at it.
func TestPostgres(t *testing.T) {
	srv := pgserver.Test(t)
	twjobs := func(args ...string) (string, int) {
		var out bytes.Buffer
		status := run(within(t), append([]string{"-postgres", srv.DSN(), "-queue", "mails"}, args...), &out, &out)
		return out.String(), status
	}
	out, status := twjobs("list")
	require.Equal(t, 1, status, out)
	require.Contains(t, out, "call Migrate")
	pool, err := pgxpool.New(within(t), srv.DSN())
	require.NoError(t, err)
	defer pool.Close()
	e, err := postgres.Connect(within(t), pool, postgres.Schema("mails"))
	require.NoError(t, err)
	require.NoError(t, e.Migrate(within(t)))
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer q.Close()
	refs, err := q.Add(within(t), durable.Job{Kind: "mail", After: time.Hour, Payload: []byte("hello")})
	require.NoError(t, err)
	out, status = twjobs("show", string(refs[0]))
	require.Zero(t, status, out)
	require.Contains(t, out, "payload  hello")
	out, status = twjobs("cancel", string(refs[0]))
	require.Zero(t, status, out)
	out, status = twjobs("list")
	require.Zero(t, status, out)
	require.NotContains(t, out, "mail")
}
