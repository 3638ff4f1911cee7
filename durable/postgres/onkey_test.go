package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// AddTx, AddSQL and add_job do with what waits under a key what Add does, and a signal is a part of the
// caller's transaction.
func TestOnKeyInTransactions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	q, err := durable.Open(ctx, e)
	require.NoError(t, err)
	defer q.Close()
	waits := func(value string) durable.Info {
		t.Helper()
		i, err := q.Lookup(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, value, string(i.Job.Payload))
		return i
	}
	first, err := q.Add(ctx, durable.Job{Kind: "k", Key: "k", Payload: []byte("1"), After: time.Hour, Signals: true})
	require.NoError(t, err)

	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	var found durable.Ref
	job := durable.Job{Kind: "k", Key: "k", OnKey: durable.Replace, Found: &found, Payload: []byte("2"), After: time.Hour, Signals: true}
	last := job
	last.Payload = []byte("3")
	refs, err := e.AddTx(ctx, tx, job, last)
	require.NoError(t, err)
	require.Equal(t, refs[0], found)
	waits("1")
	require.NoError(t, tx.Rollback(ctx))
	require.Equal(t, first, waits("1").Ref)

	tx, err = pool.Begin(ctx)
	require.NoError(t, err)
	refs, err = e.AddTx(ctx, tx, job)
	require.NoError(t, err)
	require.Equal(t, first, found)
	require.NoError(t, tx.Commit(ctx))
	require.Equal(t, refs[0], waits("2").Ref)

	addJob := func(args string) (ref *durable.Ref) {
		t.Helper()
		require.NoError(t, pool.QueryRow(ctx, "select "+s.schema+".add_job('k', key => 'k', due => now() + interval '1 hour', "+args+")").Scan(&ref))
		return ref
	}
	require.Equal(t, refs[0], *addJob("payload => '3', on_key => 'keep'"))
	require.Nil(t, addJob("payload => '3'"))
	waits("2")
	ref := addJob("payload => '4', on_key => 'later', max_wait => interval '1 minute', signals => true, free_when_begun => true")
	i := waits("4")
	require.Equal(t, *ref, i.Ref)
	require.True(t, i.Job.Signals && i.Job.FreeWhenBegun)
	require.Less(t, time.Until(i.Due), 5*time.Minute)
	_, err = pool.Exec(ctx, "select "+s.schema+".add_job('k', on_key => 'keep')")
	require.ErrorContains(t, err, "need a Key")

	tx, err = pool.Begin(ctx)
	require.NoError(t, err)
	ok, err := e.SignalTx(ctx, tx, "k", []byte("rolled back"))
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, tx.Rollback(ctx))
	ok, err = q.Signal(ctx, "k", nil)
	require.NoError(t, err)
	require.True(t, ok)
	tx, err = pool.Begin(ctx)
	require.NoError(t, err)
	ok, err = e.SignalTx(ctx, tx, "k", []byte("second"))
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, tx.Commit(ctx))
}

// A signal that waits for the commit of a job that replaces another is that job's.
func TestSignalOfReplaced(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	q, err := durable.Open(ctx, e)
	require.NoError(t, err)
	defer q.Close()
	inTx := func(ctx context.Context, key string, payload []byte) (ok bool, err error) {
		tx, err := pool.Begin(ctx)
		if err == nil {
			ok, err = e.SignalTx(ctx, tx, key, payload)
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		return ok, err
	}
	for key, signal := range map[string]func(context.Context, string, []byte) (bool, error){"by itself": q.Signal, "in a transaction": inTx} {
		job := durable.Job{Kind: "k", Key: key, OnKey: durable.Replace, After: time.Hour, Signals: true}
		_, err := q.Add(ctx, job)
		require.NoError(t, err)
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		_, err = e.AddTx(ctx, tx, job)
		require.NoError(t, err)
		signaled := make(chan bool)
		go func() {
			ok, err := signal(ctx, key, []byte("s"))
			if err != nil {
				t.Error(err)
			}
			signaled <- ok
		}()
		require.Eventually(t, func() bool {
			var waiting int
			err := pool.QueryRow(ctx, "select count(*) from pg_locks where not granted").Scan(&waiting)
			return err == nil && waiting > 0
		}, patience, 5*time.Millisecond)
		require.NoError(t, tx.Commit(ctx))
		require.True(t, <-signaled, key)
	}
}
