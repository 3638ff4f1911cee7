package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/upgradetest"
)

// ofVersion makes a store's tables as they were in a version, and returns what runs a
// statement there.
func ofVersion(t *testing.T, s *store, version int) (exec func(sql string)) {
	conn, err := s.pool(t).Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(conn.Release)
	exec = func(sql string) {
		t.Helper()
		_, err := conn.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		require.NoError(t, err)
	}
	exec("create schema " + s.schema)
	for v := 1; v <= version; v++ {
		text, err := os.ReadFile(fmt.Sprintf("sql/%d.sql", v))
		require.NoError(t, err)
		exec(strings.ReplaceAll(string(text), "tickwheel.", s.schema+"."))
	}
	return exec
}

// Recurring jobs of version 2, which had neither plans nor schedules, go on.
func TestSeriesOfVersion2(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	exec := ofVersion(t, s, 2)
	names := []string{upgradetest.Due, upgradetest.Claimed, upgradetest.Far, upgradetest.Stored}
	for i, name := range names {
		due := "now()"
		if name == upgradetest.Far {
			due = "now() + interval '1 hour'"
		}
		exec(fmt.Sprintf("insert into %s.job (id, key, name, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series)"+
			" values ('0hoejqjfju%d.PAZ33SAJJBKI5AH3FNCIWS4XOZ', 'every/%s', 'every/%s', '%s', '', %s, %s, now(), 25, 0, 0, '', '%s')",
			s.schema, i, name, name, upgradetest.Kind, due, due, name))
	}
	exec("update " + s.schema + ".job set state = 1, attempt = 1, claim = 1, holder = 4711 where series = '" + upgradetest.Claimed + "'")
	open := func() driver.Engine { return s.open(t) }
	stored, e := map[string]durable.Ref{}, open()
	for _, name := range names {
		ref, err := e.Lookup(t.Context(), "every/"+name)
		require.NoError(t, err)
		stored[name] = ref
	}
	upgradetest.Series(t, open, stored)
}

// Jobs of version 1 run after the migration: those that wait, and those that a worker of
// it had claimed, of which nobody knows whether it had begun.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	exec := ofVersion(t, s, 1)
	const insert = "insert into %s.job (id, name, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series" +
		") values ('%s', null, '%s', 'p', now(), now(), now(), 25, 0, 0, '', '')"
	for i, kind := range []string{"k", "claimed"} {
		exec(fmt.Sprintf(insert, s.schema, "0hoejqjfju"+strconv.Itoa(i)+".PAZ33SAJJBKI5AH3FNCIWS4XOZ", kind))
	}
	exec("update " + s.schema + ".job set state = 1, attempt = 1, claim = 1, holder = 4711 where kind = 'claimed'")
	e, err := postgres.Connect(t.Context(), s.pool(t), postgres.Schema(s.schema))
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

// The error of a job that died in version 3 stays, and is the first of its errors once it has
// failed again.
func TestErrorOfVersion3(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	exec := ofVersion(t, s, 3)
	exec(fmt.Sprintf("insert into %s.job (id, name, kind, payload, at, due, born, max_attempts, version, attempt, last_error, series, state, tried)"+
		" values ('0hoejqjfju0.PAZ33SAJJBKI5AH3FNCIWS4XOZ', null, 'k', '', now(), now() + interval '1 day', now(), 1, 0, 1, E'old\n\nstack', '', 2, now())", s.schema))
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	var dead durable.Info
	for i, err := range q.All(t.Context(), durable.Filter{State: durable.Dead}) {
		require.NoError(t, err)
		dead = i
	}
	require.Equal(t, "old\n\nstack", dead.LastError)
	require.Empty(t, dead.Errors)

	q.Handle("k", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("new")) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	require.NoError(t, q.Redrive(t.Context(), dead.Ref))
	require.Eventually(t, func() bool {
		dead, err = q.Get(t.Context(), dead.Ref)
		require.NoError(t, err)
		return dead.State == durable.Dead
	}, patience, 10*time.Millisecond)
	require.Len(t, dead.Errors, 2)
	require.Equal(t, []durable.Failure{{Error: "old"}, {At: dead.Errors[1].At, Attempt: 1, Error: "new"}}, dead.Errors)
	require.False(t, dead.Errors[1].At.IsZero())
	stop()
	require.NoError(t, <-done)
}
