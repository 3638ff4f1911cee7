package postgres_test

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// AddTx, AddSQL and add_job do with what waits under a key what Add does, and a signal is a part of the
// caller's transaction.
func TestOnKeyInTransactions(t *testing.T) {
	t.Parallel()
	withEach(t, func(t *testing.T, s *store, e *postgres.Engine, begin func(context.Context) (transaction, error)) {
		ctx := t.Context()
		q, err := durable.Open(ctx, e)
		require.NoError(t, err)
		defer q.Close()
		in := func(end func(transaction) error, do func(tx transaction)) {
			t.Helper()
			tx, err := begin(ctx)
			require.NoError(t, err)
			defer tx.rollback() // in a test that has failed
			do(tx)
			require.NoError(t, end(tx))
		}
		commit := func(tx transaction) error { return tx.commit() }
		rollback := func(tx transaction) error { return tx.rollback() }
		waits := func(value string) durable.Info {
			t.Helper()
			i, err := q.Lookup(ctx, "k")
			require.NoError(t, err)
			require.Equal(t, value, string(i.Job.Payload))
			return i
		}
		first, err := q.Add(ctx, durable.Job{Kind: "k", Key: "k", Payload: []byte("1"), After: time.Hour, Signals: true})
		require.NoError(t, err)

		var found durable.Ref
		var refs []durable.Ref
		job := func(on durable.OnKey, value string) durable.Job {
			return durable.Job{Kind: "k", Key: "k", OnKey: on, Found: &found, Payload: []byte(value), After: time.Hour, Signals: true}
		}
		in(rollback, func(tx transaction) {
			refs, err = tx.add(ctx, job(durable.Replace, "2"), job(durable.Replace, "3"))
			require.NoError(t, err)
			require.Equal(t, refs[0], found)
			waits("1")
		})
		require.Equal(t, first, waits("1").Ref)
		in(commit, func(tx transaction) {
			refs, err = tx.add(ctx, job(durable.Replace, "2"))
			require.NoError(t, err)
			require.Equal(t, first, found)
			_, err = tx.add(ctx, job(durable.Refuse, "3"), job(durable.Keep, "4"))
			require.ErrorIs(t, err, durable.ErrExists)
			require.Equal(t, refs[0], found)
		})
		require.Equal(t, refs[0], waits("2").Ref)
		in(commit, func(tx transaction) {
			later := job(durable.Later, "3")
			later.After, later.MaxWait = 3*time.Hour, 2*time.Hour
			_, err = tx.add(ctx, later)
			require.NoError(t, err)
			require.Equal(t, refs[0], found)
		})
		require.Less(t, time.Until(waits("3").Due), 150*time.Minute)

		signal := func(end func(transaction) error, payload string, want bool) {
			t.Helper()
			in(end, func(tx transaction) {
				ok, err := tx.signal(ctx, "k", []byte(payload))
				require.NoError(t, err)
				require.Equal(t, want, ok)
			})
		}
		signal(rollback, "rolled back", true)
		require.Greater(t, time.Until(waits("3").Due), time.Minute)
		signal(commit, "\x00 a signal", true)
		signal(commit, "second", false)
		require.LessOrEqual(t, time.Until(waits("3").Due), time.Duration(0))
		signals := make(chan string, 1)
		q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
			signals <- string(a.Signal)
			return nil
		})
		running, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- q.Run(running) }()
		require.Equal(t, "\x00 a signal", <-signals)
		stop()
		require.NoError(t, <-ended)
		in(rollback, func(tx transaction) {
			_, err = tx.signal(ctx, "k", make([]byte, durable.MaxPayload+1))
			require.ErrorIs(t, err, durable.ErrInvalid)
		})
	})
	require.PanicsWithValue(t, "postgres: SignalTx: nil tx", func() { (&postgres.Engine{}).SignalTx(t.Context(), nil, "k", nil) })
	require.PanicsWithValue(t, "postgres: SignalSQL: nil tx", func() { (&postgres.Engine{}).SignalSQL(t.Context(), nil, "k", nil) })
}

// add_job has OnKey, too.
func TestAddJobOnKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStore(server(t))
	pool := s.pool(t)
	q, err := durable.Open(ctx, s.open(t))
	require.NoError(t, err)
	defer q.Close()
	addJob := func(args string) (ref *durable.Ref) {
		t.Helper()
		require.NoError(t, pool.QueryRow(ctx, "select "+s.schema+".add_job('k', key => 'k', due => now() + interval '1 hour', "+args+")").Scan(&ref))
		return ref
	}
	waits := func(ref *durable.Ref, value string) durable.Job {
		t.Helper()
		i, err := q.Lookup(ctx, "k")
		require.NoError(t, err)
		require.Equal(t, *ref, i.Ref)
		require.Equal(t, value, string(i.Job.Payload))
		return i.Job
	}
	first := addJob("payload => '1', on_key => 'keep'")
	require.Equal(t, first, addJob("payload => '2', on_key => 'keep'"))
	require.Nil(t, addJob("payload => '3'"))
	require.False(t, waits(first, "1").Signals)
	second := addJob("payload => '4', on_key => 'replace', signals => true, free_when_begun => true")
	job := waits(second, "4")
	require.True(t, job.Signals && job.FreeWhenBegun)
	require.Greater(t, time.Until(job.At), 50*time.Minute)
	require.Less(t, time.Until(waits(addJob("payload => '5', on_key => 'later', max_wait => interval '1 minute'"), "5").At), 5*time.Minute)
	_, err = pool.Exec(ctx, "select "+s.schema+".add_job('k', on_key => 'keep')")
	require.ErrorContains(t, err, "need a Key")
	_, err = pool.Exec(ctx, "select "+s.schema+".add_job('k', key => 'k', max_wait => interval '1 minute')")
	require.ErrorContains(t, err, "max_wait")
}

// Two transactions that add jobs with the same keys, each with another OnKey, wait for one another
// rather than deadlock.
func TestCrossedKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newStore(server(t))
	e, pool := s.open(t), s.pool(t)
	add := func(name string, tx pgx.Tx, refused, replaced string) error {
		_, err := e.AddTx(ctx, tx, durable.Job{Kind: "k", Key: name + refused, After: time.Hour},
			durable.Job{Kind: "k", Key: name + replaced, After: time.Hour, OnKey: durable.Replace})
		return err
	}
	for n := range 20 {
		name := strconv.Itoa(n)
		var wg sync.WaitGroup
		for _, keys := range [][2]string{{"a", "b"}, {"b", "a"}} {
			wg.Go(func() {
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "set local deadlock_timeout = '100ms'")
					return cmp.Or(err, add(name, tx, keys[0], keys[1]))
				})
				if err != nil && !errors.Is(err, durable.ErrExists) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
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
