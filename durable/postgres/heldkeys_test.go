package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// heldKeys is how many keys a transaction holds in these tests.
const heldKeys = 64

// holdKeys has a transaction add a job under each of the keys "0" to "63", and stay open until release.
func (s *store) holdKeys(t testing.TB, e *postgres.Engine) (release func()) {
	tx, err := s.pool(t).Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { tx.Rollback(context.Background()) })
	jobs := make([]durable.Job, heldKeys)
	for i := range jobs {
		jobs[i] = durable.Job{Kind: "k", Key: fmt.Sprint(i), After: time.Hour}
	}
	for _, j := range jobs {
		_, err = e.AddTx(t.Context(), tx, j)
		require.NoError(t, err)
	}
	return func() { require.NoError(t, tx.Rollback(t.Context())) }
}

// A transaction that holds the keys of failed attempts, and stays open, makes no other job late: the
// attempts wait for their keys, outside of batches and slots, and take them when it has ended.
func TestRetriesOfHeldKeys(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	begun, fail, plain := make(chan bool, heldKeys), make(chan bool), make(chan bool, 1000)
	q, err := durable.Open(t.Context(), e, durable.WithConcurrency(64), durable.WithLease(time.Minute),
		durable.WithBackoff(func(int) time.Duration { return time.Hour }))
	require.NoError(t, err)
	q.Handle("k", func(context.Context, *durable.Attempt) error {
		begun <- true
		<-fail
		return errors.New("no")
	})
	q.Handle("plain", func(context.Context, *durable.Attempt) error {
		plain <- true
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- q.Run(ctx) }()
	for i := range heldKeys {
		_, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: fmt.Sprint(i), FreeWhenBegun: true})
		require.NoError(t, err)
	}
	for range heldKeys {
		await(t, begun)
	}
	release := s.holdKeys(t, e)
	for range heldKeys {
		fail <- true
		time.Sleep(5 * time.Millisecond) // so that their ends are in several batches
	}
	var late []time.Duration
	for range 100 {
		began := time.Now()
		_, err := q.Add(t.Context(), durable.Job{Kind: "plain"})
		require.NoError(t, err)
		await(t, plain)
		late = append(late, time.Since(began))
		if len(late) > 10 && late[len(late)-1] > 5*time.Second {
			break
		}
	}
	slices.Sort(late)
	t.Logf("plain jobs: median %v, at most %v", late[len(late)/2], late[len(late)-1])
	require.Less(t, late[len(late)-1], 5*time.Second)
	release()
	for i := range heldKeys {
		require.Eventually(t, func() bool {
			i, err := q.Lookup(t.Context(), fmt.Sprint(i))
			return err == nil && i.Attempt == 1 && i.State == durable.Waiting
		}, patience, 5*time.Millisecond, "the retry takes its key again")
	}
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, q.Close())
}

// Jobs that are handed back together do not wait for one whose key a transaction holds, nor do ends.
func TestReleaseBesideHeldKey(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := s.open(t)
	w, err := e.Work(ctx, driver.WorkConfig{Name: "w", Kinds: driver.NewKindGate([]string{"k"}), Lease: time.Hour, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	held := record("held", time.Now())
	held.Key, held.FreeWhenBegun = "0", true
	free := held
	free.ID, free.Key = "free", "free"
	insertAll(t, e, held, free, record("plain", time.Now()))
	all := poll(t, w)
	require.Len(t, all, 3)
	for i, h := range all {
		h.Exact = true
		require.Equal(t, driver.Granted, w.Claim(ctx, all[i:i+1])[0].Status)
	}
	release := s.holdKeys(t, e)
	began := time.Now()
	var ends []driver.Completion
	for _, h := range all {
		ends = append(ends, driver.Completion{Delivery: h, End: driver.Retry, At: time.Now()})
	}
	for i, err := range w.Finish(ctx, ends) {
		if all[i].Record.ID == "held" {
			require.ErrorIs(t, err, driver.ErrHeld)
		} else {
			require.NoError(t, err)
		}
	}
	again := poll(t, w)
	require.Len(t, again, 2)
	for i, h := range again {
		h.Exact = true
		require.Equal(t, driver.Granted, w.Claim(ctx, again[i:i+1])[0].Status)
	}
	require.ErrorIs(t, w.Release(ctx, append(again, byID(t, all, "held")), 0), driver.ErrHeld)
	require.Len(t, poll(t, w), 2)
	t.Logf("after %v", time.Since(began))
	release()
	require.NoError(t, w.Release(ctx, all, 0))
	require.Equal(t, "held", poll(t, w)[0].Record.ID)
}
