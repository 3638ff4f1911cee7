package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
	"github.com/tickwheel/tickwheel/durable/testservers/pgserver"
)

// consumer is a worker of another process, which writes down when it has begun what.
type consumer struct {
	*durable.Queue
	mu   sync.Mutex
	runs map[durable.Ref]time.Time
}

func consume(t *testing.T, e driver.Engine, opts ...durable.Option) *consumer {
	q, err := durable.Open(t.Context(), e, opts...)
	require.NoError(t, err)
	c := &consumer{Queue: q, runs: map[durable.Ref]time.Time{}}
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.runs[a.Ref].IsZero() {
			t.Errorf("%s runs twice", a.Ref)
		}
		c.runs[a.Ref] = time.Now()
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
	})
	return c
}

// began returns when a job has begun, and waits for that.
func (c *consumer) began(t *testing.T, ref durable.Ref) (at time.Time) {
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		at = c.runs[ref]
		return !at.IsZero()
	}, patience, time.Millisecond)
	return at
}

// A job is there if and only if its transaction is committed, together with the caller's
// row.
func TestAddTx(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	c := consume(t, s.open(t))
	_, err := pool.Exec(t.Context(), "create table "+s.schema+".orders (id int primary key)")
	require.NoError(t, err)
	errNo := errors.New("no")
	order := func(id int, fail error) (refs []durable.Ref) {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) (err error) {
			if _, err = tx.Exec(t.Context(), "insert into "+s.schema+".orders values ($1)", id); err != nil {
				return err
			}
			refs, err = e.AddTx(t.Context(), tx, durable.Job{Kind: "k", Payload: fmt.Append(nil, id)}, durable.Job{Kind: "k", After: time.Hour})
			require.NoError(t, err)
			_, err = c.Get(t.Context(), refs[0])
			require.ErrorIs(t, err, durable.ErrNotFound, "not committed yet")
			return fail
		})
		require.ErrorIs(t, err, fail)
		return refs
	}
	var committed, undone []durable.Ref
	for id := range 40 {
		if id%2 == 0 {
			committed = append(committed, order(id, nil)...)
		} else {
			undone = append(undone, order(id, errNo)...)
		}
	}
	for i, ref := range committed {
		if i%2 == 0 {
			c.began(t, ref)
			continue
		}
		ok, err := c.Cancel(t.Context(), ref)
		require.NoError(t, err)
		require.True(t, ok)
	}
	for _, ref := range undone {
		_, err := c.Get(t.Context(), ref)
		require.ErrorIs(t, err, durable.ErrNotFound)
	}
	require.Len(t, c.runs, 20)
}

// What cannot be is refused with nothing written; a key that is taken leaves the
// transaction as it was.
func TestAddTxErrors(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	begin := func() pgx.Tx {
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		t.Cleanup(func() { tx.Rollback(context.Background()) })
		return tx
	}
	tx := begin()
	refs, err := e.AddTx(t.Context(), tx)
	require.NoError(t, err)
	require.Empty(t, refs)
	for _, bad := range []durable.Job{{}, {Kind: "k", Key: "every/x"}, {Kind: "k", At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}} {
		refs, err := e.AddTx(t.Context(), tx, durable.Job{Kind: "k"}, bad)
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, "job 1")
		require.Equal(t, []durable.Ref{"", ""}, refs)
	}
	keyed := durable.Job{Kind: "k", Key: "key", After: time.Hour}
	refs, err = e.AddTx(t.Context(), tx, keyed, keyed, durable.Job{Kind: "k", After: time.Hour})
	require.ErrorIs(t, err, durable.ErrExists)
	require.Equal(t, []bool{false, true, false}, []bool{refs[0] == "", refs[1] == "", refs[2] == ""})

	// While the transaction is open its key is taken, also for those who cannot see it.
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	_, err = q.Add(t.Context(), keyed)
	require.ErrorIs(t, err, durable.ErrExists)
	_, err = q.Add(t.Context(), durable.Job{Kind: "k", Key: "other", After: time.Hour})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = q.Add(t.Context(), keyed)
	require.NoError(t, err)

	tx = begin()
	refs, err = e.AddTx(t.Context(), tx, keyed)
	require.ErrorIs(t, err, durable.ErrExists)
	require.Equal(t, []durable.Ref{""}, refs)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, e.Close())
	_, err = e.AddTx(t.Context(), begin(), keyed)
	require.ErrorIs(t, err, durable.ErrClosed)
}

// A transaction with jobs that are due at once can be prepared for a commit in two phases.
func TestAddTxPrepared(t *testing.T) {
	t.Parallel()
	s := newStore(pgserver.Test(t, "max_prepared_transactions=10"))
	e, pool := s.open(t), s.pool(t)
	c := consume(t, s.open(t))
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	refs, err := e.AddTx(t.Context(), tx, durable.Job{Kind: "k"})
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "prepare transaction 'first phase'")
	require.NoError(t, err)
	s.exec(t, pool, "commit prepared 'first phase'")
	c.began(t, refs[0])
}

// Callers that ask for the key of an open transaction cost those who add jobs without a key
// little.
func TestAddBesideOpenKey(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	_, err = e.AddTx(t.Context(), tx, durable.Job{Kind: "k", Key: "open", After: time.Hour})
	require.NoError(t, err)
	var asking atomic.Bool // whether callers ask for the key
	var added atomic.Int64 // jobs without a key
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := q.Add(ctx, durable.Job{Kind: "k", After: time.Hour}); err == nil {
					added.Add(1)
				}
			}
		})
		callers.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(rand.N(200 * time.Millisecond)) // so that one asks after another
				if !asking.Load() {
					continue
				}
				if _, err := q.Add(ctx, durable.Job{Kind: "k", Key: "open"}); err == nil {
					t.Error("two have the key")
				}
			}
		})
	}
	most := map[bool]int64{}
	for i := 0; i < 6 || i < 40 && 4*most[true] <= most[false]; i++ { // a busy machine may stop either for a while
		ask := i%2 == 1
		asking.Store(ask)
		before := added.Load()
		time.Sleep(2 * time.Second)
		most[ask] = max(most[ask], added.Load()-before)
	}
	stop()
	callers.Wait()
	t.Logf("in 2 s: %d, and %d beside callers for the key", most[false], most[true])
	require.Greater(t, 4*most[true], most[false])
}

// seen adds jobs in transactions, some of which take longer than a quick poll goes back,
// and returns how long after the commit each has begun, in order, and how long the slowest
// of the quick transactions took: a measure of the machine.
func seen(t *testing.T, e *postgres.Engine, c *consumer, s *store, n int) (took []time.Duration, slowest time.Duration) {
	pool := s.pool(t)
	for i := range n {
		var ref durable.Ref
		began := time.Now()
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			refs, err := e.AddTx(t.Context(), tx, durable.Job{Kind: "k"})
			require.NoError(t, err)
			ref = refs[0]
			if i%5 == 0 {
				time.Sleep(2 * recent)
			}
			return nil
		}))
		committed := time.Now()
		if i%5 != 0 {
			slowest = max(slowest, committed.Sub(began))
		}
		took = append(took, c.began(t, ref).Sub(committed))
		time.Sleep(37 * time.Millisecond) // at all times between two polls
	}
	slices.Sort(took)
	return took, slowest
}

const recent = time.Second // how far back a quick poll goes

// With polls an hour apart jobs are found by announcements alone, also those whose
// transaction takes longer than a quick poll goes back.
func TestAddTxIsAnnounced(t *testing.T) {
	s := sharedStore(t)
	e, listens := s.open(t), s.open(t)
	listens.SetPoll(time.Hour)
	took, slowest := seen(t, e, consume(t, listens), s, 30)
	t.Logf("announced: median %v, at most %v", took[15], took[29])
	require.Less(t, took[15], time.Second+10*slowest)
}

// Polling finds the same jobs behind a proxy that drops announcements.
func TestAddTxIsPolled(t *testing.T) {
	s := sharedStore(t)
	e := s.open(t)
	polls, _ := s.behindProxy(t)
	took, slowest := seen(t, e, consume(t, polls), s, 30)
	t.Logf("polled: median %v, at most %v", took[15], took[29])
	require.Less(t, took[15], 2*time.Second+10*slowest)
}

// Jobs that Queue.Add stores are announced, too, and retries within the process.
func TestAddIsAnnounced(t *testing.T) {
	s := sharedStore(t)
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	listens := s.open(t)
	listens.SetPoll(time.Minute)
	c := consume(t, listens)
	polled := 0 // an announcement that cannot be sent within a second is sent again later
	began := func(ref durable.Ref) {
		since := time.Now()
		if c.began(t, ref); time.Since(since) > 30*time.Second {
			polled++
		}
	}
	for range 20 {
		ref, err := q.Add(t.Context(), durable.Job{Kind: "k", After: 30 * time.Millisecond})
		require.NoError(t, err)
		began(ref)
	}
	// One announcement of jobs that are due at different times, one of them long ago.
	refs, err := q.AddMany(t.Context(), durable.Job{Kind: "k", At: time.Now().Add(-time.Hour)},
		durable.Job{Kind: "k"}, durable.Job{Kind: "k", After: 900 * time.Millisecond})
	require.NoError(t, err)
	for _, ref := range refs {
		began(ref)
	}
	require.LessOrEqual(t, polled, 3)
}

// A time that would be stored as the year 10000 is an error, and no panic of what writes it.
func TestAddTxOfTheLastTimes(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	for _, j := range []durable.Job{{Kind: "k", Expires: last.Add(900)}, {Kind: "k", At: last.Add(900)}, {Kind: "k", Key: "k", OnKey: durable.Replace, Expires: last.Add(1)}} {
		_, err := e.AddTx(t.Context(), tx, j)
		require.ErrorIs(t, err, durable.ErrInvalid)
	}
	refs, err := e.AddTx(t.Context(), tx, durable.Job{Kind: "k", Expires: last.Add(-1)})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	info, err := e.Get(t.Context(), refs[0])
	require.NoError(t, err)
	require.True(t, info.Job.Expires.Equal(last), info.Job.Expires)
}
