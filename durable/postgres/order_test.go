package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// While the end of an older job was being stored, which takes the key again, a newer one was stored and has begun.
// If that fails, too, the older one ends.
func TestNewerMeetsOlderRetry(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	q, err := durable.Open(t.Context(), s.Open(t), durable.WithBackoff(func(int) time.Duration { return time.Hour }))
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	ends := map[string]chan error{"1": make(chan error), "2": make(chan error)}
	began := make(chan bool, 2)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { began <- true; return <-ends[string(a.Job.Payload)] })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	var refs []durable.Ref
	for _, value := range []string{"1", "2"} {
		ref, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", FreeWhenBegun: true, Payload: []byte(value)})
		require.NoError(t, err)
		refs = append(refs, ref)
		<-began
	}
	_, err = s.pool(t).Exec(t.Context(), `update `+s.schema+`.job set state = 0, key = given_key, holder = null, due = now() + interval '1 hour', version = version + 1
		where id = (select min(id) from `+s.schema+`.job)`)
	require.NoError(t, err)
	i, err := q.Lookup(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, refs[0], i.Ref)
	ends["2"] <- errors.New("x")
	require.Eventually(t, func() bool {
		i, err := q.Lookup(t.Context(), "k")
		return err == nil && i.Ref == refs[1]
	}, patience, 10*time.Millisecond)
	_, err = q.Get(t.Context(), refs[0])
	require.ErrorIs(t, err, durable.ErrNotFound)
	ends["1"] <- nil // its lease is lost
	stop()
	require.NoError(t, <-done)
}

// A job that has ended is remembered for as long as an older one of its key has not ended, and is removed then.
func TestLastOfAKeyIsKept(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e := s.open(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	ends := map[string]chan error{"1": make(chan error), "2": make(chan error)}
	began := make(chan bool, 2)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { began <- true; return <-ends[string(a.Job.Payload)] })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	for _, value := range []string{"1", "2"} {
		_, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", FreeWhenBegun: true, Payload: []byte(value)})
		require.NoError(t, err)
		<-began
	}
	pool := s.pool(t)
	rows := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from "+s.schema+".job").Scan(&n))
		return n
	}
	_, err = pool.Exec(t.Context(), `update `+s.schema+`.job set born = born - interval '1 hour'`)
	require.NoError(t, err)
	ends["2"] <- nil
	require.Eventually(t, func() bool {
		infos := 0
		for range q.All(t.Context(), durable.Filter{}) {
			infos++
		}
		return infos == 1
	}, patience, 10*time.Millisecond)
	require.Equal(t, 2, rows())
	ends["1"] <- errors.New("x")
	require.Eventually(t, func() bool { return rows() == 1 }, patience, 10*time.Millisecond)
	stop()
	require.NoError(t, <-done)
}
