package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// insertAll stores records, which there must not be yet.
func insertAll(t testing.TB, e *postgres.Engine, recs ...driver.Record) []driver.Ref {
	refs, errs := e.Insert(t.Context(), recs)
	require.NoError(t, errors.Join(errs...))
	return refs
}

// lockRow has an idle transaction lock a job, until unlock.
func (s *store) lockRow(t testing.TB, id string) (unlock func()) {
	tx, err := s.pool(t).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback(context.Background()) }) // before the pool is closed
	tag, err := tx.Exec(t.Context(), "select from "+pgx.Identifier{s.schema, "job"}.Sanitize()+" where split_part(id, '.', 2) = $1 for update", id)
	require.NoError(t, err)
	require.EqualValues(t, 1, tag.RowsAffected())
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// byID returns what was handed out of the record.
func byID(t testing.TB, held []*driver.Delivery, id string) *driver.Delivery {
	for _, h := range held {
		if h.Record.ID == id {
			return h
		}
	}
	t.Fatalf("%s was not handed out", id)
	return nil
}

// A row that somebody has locked, and leaves so, makes none late but itself: the others
// are claimed, ended and given back beside it. It is not taken for gone or lost
// meanwhile, and goes on when it is free.
func TestLockedRow(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := s.open(t)
	w, err := e.Work(ctx, driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Hour, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	insertAll(t, e, record("locked", time.Now()), record("free", time.Now()), record("gone", time.Now()))
	all := poll(t, w)
	require.Len(t, all, 3)
	locked, free, gone := byID(t, all, "locked"), byID(t, all, "free"), byID(t, all, "gone")
	s.exec(t, s.pool(t), "delete from SCHEMA.job where id like '%.gone'")
	both := []*driver.Delivery{locked, free}

	unlock := s.lockRow(t, "locked")
	results := w.Claim(ctx, all)
	for i, h := range all {
		want := map[*driver.Delivery]driver.ClaimStatus{locked: driver.RetryLater, free: driver.Granted, gone: driver.Gone}[h]
		require.Equal(t, want, results[i].Status, h.Record.ID)
	}
	unlock()
	for i, v := range w.Claim(ctx, both) {
		require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, v, both[i].Record.ID)
	}

	unlock = s.lockRow(t, "locked")
	errs := w.Finish(ctx, []driver.Completion{
		{Delivery: locked, End: driver.Done}, {Delivery: free, End: driver.Retry, At: time.Now()}, {Delivery: gone, End: driver.Done},
	})
	require.ErrorContains(t, errs[0], "locked")
	require.NotErrorIs(t, errs[0], driver.ErrLeaseLost)
	require.NoError(t, errs[1])
	require.ErrorIs(t, errs[2], driver.ErrLeaseLost)
	again := poll(t, w)
	require.Len(t, again, 1)
	require.Equal(t, driver.Granted, w.Claim(ctx, again)[0].Status)

	released := make(chan error)
	go func() { released <- w.Release(ctx, []*driver.Delivery{locked, again[0]}, 0) }()
	require.Equal(t, "free", poll(t, w)[0].Record.ID, "given back while the other is locked")
	unlock()
	require.NoError(t, <-released)
	require.Equal(t, "locked", poll(t, w)[0].Record.ID)
}

// claimBoth returns a worker's claims of a job that has a permit and of one, "free", that no limit covers.
func claimBoth(t *testing.T, e *postgres.Engine) (driver.Worker, []*driver.Delivery) {
	flow := driver.NewFlowControl(1, []*driver.StoredLimit{{Name: "l", ID: 7, Limit: driver.Limit{Kind: "limited", Running: 2}}}, nil)
	require.NoError(t, e.SetFlowControl(t.Context(), 0, flow))
	w := worksOnBoth(t, e, "w")
	limited := record("limited", time.Now())
	limited.Kind = "limited"
	insertAll(t, e, limited, record("free", time.Now()))
	both := poll(t, w)
	require.Len(t, both, 2)
	for _, h := range both {
		h.Exact = true
	}
	for _, r := range w.Claim(t.Context(), both) {
		require.Equal(t, driver.Granted, r.Status)
	}
	return w, both
}

func worksOnBoth(t *testing.T, e *postgres.Engine, name string) driver.Worker {
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: name, Kinds: driver.NewKindSet([]string{"k", "limited"}), Lease: time.Hour, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	return w
}

// lockCounters locks all counters, as CompleteTx does, until unlock.
func (s *store) lockCounters(t testing.TB) (unlock func()) {
	tx, err := s.pool(t).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "select from "+s.schema+".counter for update")
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// A dead worker's job that no limit covers is taken over though a transaction has locked the counter of another of its
// jobs: the sweep that is to free that one's permit does not wait with the worker's row locked.
func TestTakeoverBesideLockedCounter(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	claimBoth(t, e)
	other := worksOnBoth(t, s.open(t), "other")
	s.exec(t, s.pool(t), "update SCHEMA.worker set until = now() - interval '1 second' where name = 'w'")
	unlock := s.lockCounters(t)
	swept := make(chan bool)
	go func() {
		defer close(swept)
		postgres.SweepPermits(t.Context(), other)
	}()
	time.Sleep(time.Second)
	free := byID(t, poll(t, other), "free")
	free.Exact = true
	require.Equal(t, driver.Granted, other.Claim(t.Context(), []*driver.Delivery{free})[0].Status)
	unlock()
	<-swept
	postgres.SweepPermits(t.Context(), other)
	var taken int
	require.NoError(t, s.pool(t).QueryRow(t.Context(), "select sum(taken) from "+s.schema+".counter").Scan(&taken))
	require.Zero(t, taken)
}

// A counter that a caller's transaction has locked keeps no job from being given back that has no permit.
func TestReleaseBesideLockedCounter(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	w, both := claimBoth(t, e)
	unlock := s.lockCounters(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.Error(t, w.Release(ctx, both, 0))
	require.Equal(t, "free", poll(t, w)[0].Record.ID)
	unlock()
	require.NoError(t, w.Release(ctx, both, 0))
	require.Equal(t, "limited", byID(t, poll(t, w), "limited").Record.ID)
}

// A lock of the table is no key: an insert waits for it, as long as it may, and is not told
// that its key exists; neither on a connection that has the statement prepared nor on one
// that has not.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	srv := shared.Test(t)
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/warm=%v", mode, warm), func(t *testing.T) {
				t.Parallel()
				s := newStore(srv)
				s.params = "&pool_max_conns=2&default_query_exec_mode=" + mode
				s.insertLocked(t, s.open(t), warm)
			})
		}
	}
}

func (s *store) insertLocked(t *testing.T, e *postgres.Engine, warm bool) {
	keyed := func(id string) driver.Record {
		r := record(id, time.Now())
		r.Key = id
		return r
	}
	if warm { // both connections
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { e.Insert(t.Context(), []driver.Record{record(fmt.Sprint("warm", i), time.Now())}) })
		}
		wg.Wait()
	}
	tx, err := s.pool(t).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "lock table "+s.schema+".job in share mode")
	require.NoError(t, err)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, errs := e.Insert(short, []driver.Record{keyed("short")})
	require.Error(t, errs[0])
	require.NotErrorIs(t, errs[0], driver.ErrExists)

	all, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	inserted := make(chan error, 2)
	for _, recs := range [][]driver.Record{{record("a", time.Now())}, {keyed("b")}} {
		go func() {
			_, errs := e.Insert(all, recs)
			inserted <- errors.Join(errs...)
		}()
	}
	select {
	case err := <-inserted:
		t.Fatalf("it does not wait for the lock: %v", err)
	case <-time.After(1500 * time.Millisecond): // longer than the wait for a key
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-inserted)
	require.NoError(t, <-inserted)
}
