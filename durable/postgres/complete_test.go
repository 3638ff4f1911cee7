package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// effects makes the table in which a test's handlers leave their effects, and returns how
// many there are.
func (s *store) effects(t testing.TB, pool *pgxpool.Pool) func() int {
	s.exec(t, pool, "create table SCHEMA.effect (of text not null)")
	return func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from "+s.schema+".effect").Scan(&n))
		return n
	}
}

// runQueue runs a Queue on an engine with a handler for kind "k", until the test ends, or what
// it returns is called.
func runQueue(t *testing.T, e driver.Engine, h func(context.Context, *durable.Attempt) error, opts ...durable.Option) (*durable.Queue, func()) {
	backoff := durable.WithBackoff(func(int) time.Duration { return 10 * time.Millisecond })
	q, err := durable.Open(t.Context(), e, append(opts, backoff)...)
	require.NoError(t, err)
	q.Handle("k", h)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
	})
	t.Cleanup(stop)
	return q, stop
}

// await receives what must come, unless the test ends.
func await[T any](t testing.TB, c <-chan T) (v T) {
	select {
	case v = <-c:
	case <-t.Context().Done():
	case <-time.After(patience):
		t.Error("it does not come")
	}
	return v
}

// settles waits until the job is kept no more.
func settles(t *testing.T, q *durable.Queue, ref durable.Ref) {
	require.Eventually(t, func() bool {
		_, err := q.Get(t.Context(), ref)
		return errors.Is(err, durable.ErrNotFound)
	}, patience, time.Millisecond)
}

// The effect of a job is there once, and the job is done, as soon as its transaction is
// committed: after attempts whose transactions were rolled back, with an error or without,
// and though the one that was committed has returned an error. Settings of the transaction
// are left as they were.
func TestCompleteTx(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, s *store, e *postgres.Engine, begin func(context.Context) (transaction, error)) {
		pool := s.pool(t)
		count := s.effects(t, pool)
		errNo := errors.New("no")
		tries := make(chan int, 10)
		q, stop := runQueue(t, e, func(ctx context.Context, a *durable.Attempt) error {
			tries <- a.Number
			tx, err := begin(ctx)
			require.NoError(t, err)
			require.NoError(t, tx.exec(ctx, "set local jit = on"))
			require.NoError(t, tx.exec(ctx, "insert into "+s.schema+".effect values ($1)", string(a.Ref)))
			require.NoError(t, tx.complete(ctx, a))
			require.NoError(t, tx.exec(ctx, "do $$ begin assert (select current_setting('jit') = 'on' and"+
				" current_setting('enable_seqscan') = 'on' and current_setting('plan_cache_mode') = 'auto'); end $$"))
			switch a.Number {
			case 1:
				require.NoError(t, tx.rollback())
				return nil
			case 2:
				require.NoError(t, tx.rollback())
				return errNo
			}
			_, err = tx.add(ctx, durable.Job{Kind: "next", After: time.Hour})
			require.NoError(t, err)
			require.NoError(t, tx.commit())
			require.Equal(t, 1, count())
			_, err = e.Get(ctx, a.Ref)
			require.ErrorIs(t, err, durable.ErrNotFound, "it is done with the commit")
			return errNo
		})
		ref := s.add(t, e, pool, durable.Job{Kind: "k", MaxAttempts: 4})
		for n := range 3 {
			require.Equal(t, n+1, await(t, tries))
		}
		settles(t, q, ref)
		stop()
		require.Equal(t, 1, count())
		require.Empty(t, tries)
		st := q.Stats()
		require.Equal(t, []int64{0, 2, 1}, []int64{st.Done, st.Failed, st.LeaseLost})
	})
}

// add stores a job in a transaction.
func (s *store) add(t testing.TB, e *postgres.Engine, pool *pgxpool.Pool, j durable.Job) durable.Ref {
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	refs, err := e.AddTx(t.Context(), tx, j)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	return refs[0]
}

// expire ends the leases of all workers that there are, as if they had been silent for long.
func (s *store) expire(t testing.TB, pool *pgxpool.Pool) {
	s.exec(t, pool, "update SCHEMA.worker set until = now() - interval '1 hour'")
}

// A worker whose lease is over cannot complete what another has taken over: its effect is
// rolled back. What it has completed, and not committed yet, nobody takes over.
func TestCompleteTxWithoutLease(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{false, true} { // whether it completes before its lease is over
		s := sharedStore(t)
		e, other, pool := s.open(t), s.open(t), s.pool(t)
		count := s.effects(t, pool)
		began, result := make(chan bool, 2), make(chan error, 2)
		goOn := map[bool]chan bool{true: make(chan bool, 1), false: make(chan bool, 1)} // the first one, and the other
		handler := func(e *postgres.Engine, first bool) func(context.Context, *durable.Attempt) error {
			return func(_ context.Context, a *durable.Attempt) error {
				ctx := context.Background() // as if it were frozen
				tx, err := pool.Begin(ctx)
				require.NoError(t, err)
				defer tx.Rollback(ctx)
				_, err = tx.Exec(ctx, "insert into "+s.schema+".effect values ($1)", a.Ref)
				require.NoError(t, err)
				if early {
					require.NoError(t, e.CompleteTx(ctx, tx, a))
				}
				began <- true
				await(t, goOn[first])
				if !early {
					err = e.CompleteTx(ctx, tx, a)
				}
				if first {
					result <- err
				}
				if err == nil {
					err = tx.Commit(ctx)
				}
				return err
			}
		}
		q1, _ := runQueue(t, e, handler(e, true))
		ref := s.add(t, e, pool, durable.Job{Kind: "k"})
		await(t, began)
		s.expire(t, pool)
		q2, _ := runQueue(t, other, handler(other, false))
		if early {
			time.Sleep(time.Second) // some looks of the other one
			require.Zero(t, q2.Stats().Attempts)
			goOn[true] <- true
			require.NoError(t, await(t, result))
			settles(t, q1, ref)
		} else {
			await(t, began) // it runs twice
			goOn[true] <- true
			require.ErrorIs(t, await(t, result), durable.ErrLeaseLost)
			goOn[false] <- true
			settles(t, q2, ref)
		}
		require.Eventually(t, func() bool {
			st1, st2 := q1.Stats(), q2.Stats()
			return st1.Running+st1.Ending+st2.Running+st2.Ending == 0
		}, patience, time.Millisecond)
		require.Equal(t, 1, count())
		require.Equal(t, int64(1), q1.Stats().Done+q2.Stats().Done)
		require.Equal(t, early, q1.Stats().Done == 1)
	}
}

// A transaction that completes a job, and in which jobs were added that are due at once, can
// be prepared for a commit in two phases, which may come when the worker has died. Rolled
// back, the job runs again.
func TestCompleteTxPrepared(t *testing.T) {
	t.Parallel()
	srv := pgserver.Test(t, "max_prepared_transactions=10")
	for _, phase2 := range []string{"commit", "rollback"} {
		s := newStore(srv)
		e, other, pool := s.open(t), s.open(t), s.pool(t)
		count := s.effects(t, pool)
		prepared := make(chan bool)
		_, stop := runQueue(t, e, func(ctx context.Context, a *durable.Attempt) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err // the lease was lost, and the next attempt does it
			}
			defer tx.Rollback(ctx)
			_, err = tx.Exec(ctx, "insert into "+s.schema+".effect values ($1)", a.Ref)
			if err == nil {
				_, err = tx.Exec(ctx, "select "+s.schema+".add_job('added')")
			}
			if err == nil {
				err = e.CompleteTx(ctx, tx, a)
			}
			if err == nil {
				_, err = tx.Exec(ctx, "prepare transaction '"+s.schema+"'")
			}
			if err == nil {
				close(prepared)
			}
			return err
		}, durable.WithLease(2*time.Second))
		ref := s.add(t, e, pool, durable.Job{Kind: "k"})
		await(t, prepared)
		stop() // it gives up after a lease
		again := make(chan bool, 1)
		q, _ := runQueue(t, other, func(context.Context, *durable.Attempt) error { again <- true; return nil })
		time.Sleep(time.Second)
		require.Empty(t, again)
		s.exec(t, pool, phase2+" prepared '"+s.schema+"'")
		if phase2 == "rollback" {
			<-again
		}
		settles(t, q, ref)
		require.Equal(t, phase2 == "commit", count() == 1)
		require.Empty(t, again)
	}
}

// An Attempt of another engine, and no transaction, are mistakes of the program.
func TestCompleteTxWrongUse(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, other, pool := s.open(t), s.open(t), s.pool(t)
	says := make(chan any, 1)
	_, _ = runQueue(t, e, func(ctx context.Context, a *durable.Attempt) error {
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		defer tx.Rollback(ctx)
		defer func() { says <- recover() }()
		return other.CompleteTx(ctx, tx, a)
	})
	s.add(t, e, pool, durable.Job{Kind: "k", MaxAttempts: 1})
	require.Equal(t, "postgres: Complete: the Attempt is of another engine", <-says)
	require.PanicsWithValue(t, "postgres: CompleteTx: nil tx", func() { e.CompleteTx(t.Context(), nil, nil) })
	require.PanicsWithValue(t, "postgres: CompleteSQL: nil tx", func() { e.CompleteSQL(t.Context(), (*sql.Tx)(nil), nil) })
}

// A transaction that has completed a job under a limit holds up the jobs of that limit alone: others begin and end meanwhile,
// also those of another limit.
func TestCompleteTxUnderLimit(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	held, completed, commit := make(chan bool, 3), make(chan bool), make(chan bool)
	q.Handle("limited", func(ctx context.Context, a *durable.Attempt) error {
		switch string(a.Job.Payload) {
		case "held":
			held <- true
			await(t, completed)
		case "completes":
			tx, err := pool.Begin(ctx)
			require.NoError(t, err)
			defer tx.Rollback(ctx)
			require.NoError(t, e.CompleteTx(ctx, tx, a))
			close(completed)
			await(t, commit)
			return tx.Commit(ctx)
		}
		return nil
	})
	for _, kind := range []string{"free", "other"} {
		q.Handle(kind, func(context.Context, *durable.Attempt) error { return nil })
	}
	for _, kind := range []string{"limited", "other"} {
		require.NoError(t, q.SetLimit(t.Context(), kind, durable.Limit{Kind: kind, Running: 10}))
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	add := func(kind, payload string) durable.Ref {
		ref, err := q.Add(t.Context(), durable.Job{Kind: kind, Payload: []byte(payload)})
		require.NoError(t, err)
		return ref
	}
	var refs []durable.Ref
	for range 3 {
		refs = append(refs, add("limited", "held"))
		await(t, held)
	}
	refs = append(refs, add("limited", "completes"))
	await(t, completed)
	began := time.Now()
	for range 10 {
		refs = append(refs, add("limited", ""))
		for _, kind := range []string{"free", "other"} {
			settles(t, q, add(kind, ""))
		}
	}
	require.Less(t, time.Since(began), time.Minute) // a claim or an end that waits does so for seconds each time
	close(commit)
	for _, ref := range refs {
		settles(t, q, ref)
	}
	stop()
	require.NoError(t, <-done)
	var taken int
	require.NoError(t, pool.QueryRow(t.Context(), "select sum(taken) from "+s.schema+".counter").Scan(&taken))
	require.Zero(t, taken)
}
