package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// A claim that is under way while a Pause is stored, and waits for a permit that a handler's
// transaction has locked, is over when Pause returns: nothing begins after that. So it is for a
// second Pause, which finds it stored.
func TestPauseWaitsForClaims(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	locked, commit := make(chan bool), make(chan bool)
	q, _ := runQueue(t, e, func(ctx context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) != "locks" {
			return nil
		}
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if err := e.CompleteTx(ctx, tx, a); err != nil {
			return err
		}
		locked <- true
		<-commit
		return tx.Commit(ctx)
	})
	require.NoError(t, q.SetLimit(t.Context(), "two", durable.Limit{Kind: "k", Running: 2}))
	_, err := q.Add(t.Context(), durable.Job{Kind: "k", Payload: []byte("locks")})
	require.NoError(t, err)
	await(t, locked)
	ref, err := q.Add(t.Context(), durable.Job{Kind: "k"})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from pg_locks where not granted and locktype <> 'advisory'").Scan(&n))
		return n > 0
	}, patience, time.Millisecond, "a claim waits")
	paused := make(chan error, 2)
	pause := func() { paused <- q.Pause(t.Context(), durable.Pausable{Kind: "k"}) }
	go pause()
	require.Eventually(t, func() bool {
		all, err := q.Paused(t.Context())
		require.NoError(t, err)
		return len(all) > 0
	}, patience, time.Millisecond, "it is stored")
	go pause()
	commits := sync.OnceFunc(func() { close(commit) })
	time.AfterFunc(time.Second, commits)
	require.NoError(t, await(t, paused))
	info, err := q.Get(t.Context(), ref)
	waits := err == nil && info.State == durable.Waiting
	begun := q.Stats().Attempts
	commits()
	time.Sleep(time.Second)
	if waits {
		require.Equal(t, begun, q.Stats().Attempts, "it was not claimed when Pause returned, and has begun since")
	}
	require.NoError(t, q.Resume(t.Context(), durable.Pausable{Kind: "k"}))
	settles(t, q, ref)
}
