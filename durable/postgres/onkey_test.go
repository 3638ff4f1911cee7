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

// keyed is a Queue with a job that waits under the key k, has the payload 1 and takes a signal, and a way
// to begin transactions.
type keyed struct {
	*testing.T
	*durable.Queue
	begin func(context.Context) (transaction, error)
	first durable.Ref
	found durable.Ref // Found of all jobs that job returns
}

func withKeyed(t *testing.T, f func(k *keyed)) {
	withEach(t, func(t *testing.T, _ *store, e *postgres.Engine, begin func(context.Context) (transaction, error)) {
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		defer q.Close()
		k := &keyed{T: t, Queue: q, begin: begin}
		k.first, err = q.Add(t.Context(), durable.Job{Kind: "k", Key: "k", Payload: []byte("1"), After: time.Hour, Signals: true})
		require.NoError(t, err)
		f(k)
	})
}

func (k *keyed) job(on durable.OnKey, value string) durable.Job {
	return durable.Job{Kind: "k", Key: "k", OnKey: on, Found: &k.found, Payload: []byte(value), After: time.Hour, Signals: true}
}

// in calls do in a transaction, and ends that.
func (k *keyed) in(end func(transaction) error, do func(tx transaction)) {
	k.Helper()
	tx, err := k.begin(k.Context())
	require.NoError(k, err)
	defer tx.rollback() // in a test that has failed
	do(tx)
	require.NoError(k, end(tx))
}

// waits returns the job that waits, whose payload must be value.
func (k *keyed) waits(value string) durable.Info {
	k.Helper()
	i, err := k.Lookup(k.Context(), "k")
	require.NoError(k, err)
	require.Equal(k, value, string(i.Job.Payload))
	return i
}

func (k *keyed) signal(end func(transaction) error, payload string, want bool) {
	k.Helper()
	k.in(end, func(tx transaction) {
		ok, err := tx.signal(k.Context(), "k", []byte(payload))
		require.NoError(k, err)
		require.Equal(k, want, ok)
	})
}

func commit(tx transaction) error   { return tx.commit() }
func rollback(tx transaction) error { return tx.rollback() }

// AddTx and AddSQL treat a job that waits under a key as Add does.
func TestOnKeyInTransactions(t *testing.T) {
	t.Parallel()
	withKeyed(t, func(k *keyed) {
		ctx := k.Context()
		var refs []durable.Ref
		var err error
		k.in(rollback, func(tx transaction) {
			refs, err = tx.add(ctx, k.job(durable.Replace, "2"), k.job(durable.Replace, "3"))
			require.NoError(k, err)
			require.Equal(k, refs[0], k.found)
			k.waits("1")
		})
		require.Equal(k, k.first, k.waits("1").Ref)
		k.in(commit, func(tx transaction) {
			refs, err = tx.add(ctx, k.job(durable.Replace, "2"))
			require.NoError(k, err)
			require.Equal(k, k.first, k.found)
			_, err = tx.add(ctx, k.job(durable.Refuse, "3"), k.job(durable.Keep, "4"))
			require.ErrorIs(k, err, durable.ErrExists)
			require.Equal(k, refs[0], k.found)
		})
		require.Equal(k, refs[0], k.waits("2").Ref)
		k.in(commit, func(tx transaction) {
			later := k.job(durable.Later, "3")
			later.After, later.MaxWait = 3*time.Hour, 2*time.Hour
			_, err = tx.add(ctx, later)
			require.NoError(k, err)
			require.Equal(k, refs[0], k.found)
		})
		require.Less(k, time.Until(k.waits("3").Due), 150*time.Minute)
	})
}

// A job that is due is filled within transactions, and by add_job, as by Add: it keeps its Ref, its time and
// its signal, and is announced.
func TestDueInTransactions(t *testing.T) {
	t.Parallel()
	withKeyed(t, func(k *keyed) {
		ctx := k.Context()
		_, err := k.Signal(ctx, "k", []byte("signal"))
		require.NoError(k, err)
		due := k.waits("1").Due
		for range 2 { // the second waits for a while, in case the job begins
			k.in(commit, func(tx transaction) {
				refs, err := tx.add(ctx, k.job(durable.Replace, "2"), k.job(durable.Later, "3"))
				require.NoError(k, err)
				require.Equal(k, []durable.Ref{k.first, k.first}, refs)
				require.Equal(k, k.first, k.found)
			})
		}
		i := k.waits("3")
		require.Equal(k, k.first, i.Ref)
		require.Equal(k, due, i.Due)
		k.in(rollback, func(tx transaction) {
			_, err := tx.add(ctx, k.job(durable.Replace, "4"))
			require.NoError(k, err)
		})
		k.waits("3")
	})

	s := sharedStore(t)
	pool := s.pool(t)
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	announced := s.listen(t)
	ref, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "k"})
	require.NoError(t, err)
	announced()
	for _, value := range []string{"1", "2"} {
		var got durable.Ref
		require.NoError(t, pool.QueryRow(t.Context(), "select "+s.schema+".add_job('l', key => 'k', due => now() + interval '1 hour', on_key => 'later', lane => 'lane', payload => $1, meta => '{\"a\": \"b\"}')", []byte(value)).Scan(&got))
		require.Equal(t, ref, got)
		announced()
		i, err := q.Lookup(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, ref, i.Ref)
		require.Equal(t, i.Job.At, i.Due)
		require.LessOrEqual(t, time.Until(i.Due), time.Duration(0))
		require.Equal(t, []string{value, "l", "lane", "b"}, []string{string(i.Job.Payload), i.Job.Kind, i.Job.Lane, i.Job.Meta["a"]})
	}
}

// A signal is a part of the caller's transaction.
func TestSignalInTransactions(t *testing.T) {
	t.Parallel()
	withKeyed(t, func(k *keyed) {
		ctx := k.Context()
		k.signal(rollback, "rolled back", true)
		require.Greater(k, time.Until(k.waits("1").Due), time.Minute)
		k.signal(commit, "\x00 a signal", true)
		k.signal(commit, "second", false)
		require.LessOrEqual(k, time.Until(k.waits("1").Due), time.Duration(0))
		signals := make(chan string, 1)
		k.Handle("k", func(_ context.Context, a *durable.Attempt) error {
			signals <- string(a.Signal)
			return nil
		})
		running, stop := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- k.Queue.Run(running) }()
		require.Equal(k, "\x00 a signal", <-signals)
		stop()
		require.NoError(k, <-ended)
		k.in(rollback, func(tx transaction) {
			_, err := tx.signal(ctx, "k", make([]byte, durable.MaxPayload+1))
			require.ErrorIs(k, err, durable.ErrInvalid)
		})
	})
	require.PanicsWithValue(t, "postgres: SignalTx: nil tx", func() { (&postgres.Engine{}).SignalTx(t.Context(), nil, "k", nil) })
	require.PanicsWithValue(t, "postgres: SignalSQL: nil tx", func() { (&postgres.Engine{}).SignalSQL(t.Context(), nil, "k", nil) })
}

// add_job has OnKey, too.
func TestAddJobOnKey(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := sharedStore(t)
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
	require.Greater(t, time.Until(waits(addJob("payload => '6', on_key => 'later', max_wait => interval '300000 years'"), "6").At), 50*time.Minute)
	_, err = pool.Exec(ctx, "select "+s.schema+".add_job('k', on_key => 'keep')")
	require.ErrorContains(t, err, "go with a key")
	_, err = pool.Exec(ctx, "select "+s.schema+".add_job('k', key => 'k', max_wait => interval '1 minute')")
	require.ErrorContains(t, err, "max_wait")
}

// Two transactions that add jobs with the same keys, each with another OnKey, wait for one another
// rather than deadlock.
func TestCrossedKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := sharedStore(t)
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
			var blocked int
			err := pool.QueryRow(ctx, "select count(*) from pg_locks where not granted").Scan(&blocked)
			return err == nil && blocked > 0
		}, patience, 5*time.Millisecond)
		require.NoError(t, tx.Commit(ctx))
		require.True(t, <-signaled, key)
	}
}
