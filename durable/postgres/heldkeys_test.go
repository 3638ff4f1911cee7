package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/held"
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
	takes := func() time.Duration { // a plain job
		began := time.Now()
		_, err := q.Add(t.Context(), durable.Job{Kind: "plain"})
		require.NoError(t, err)
		await(t, plain)
		return time.Since(began)
	}
	takes() // it starts
	alone := max(takes(), takes())
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
		late = append(late, takes())
		if len(late) > 10 && late[len(late)-1] > 30*time.Second {
			break
		}
	}
	slices.Sort(late)
	t.Logf("plain jobs: median %v, at most %v", late[len(late)/2], late[len(late)-1])
	// Where ends that wait for keys hold up the batch, all slots are taken for a minute. A single job may be late on a starved machine.
	require.Less(t, late[len(late)/2], 5*time.Second+10*alone)
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

// Beside a transaction that holds keys, Adds of other keys do not wait, and Adds of these return
// ErrExists after a second.
func TestAddsBesideHeldKeys(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	began := time.Now()
	_, err = q.Add(t.Context(), durable.Job{Kind: "k", Key: "alone", After: time.Hour})
	require.NoError(t, err)
	alone := time.Since(began)
	release := s.holdKeys(t, e)
	var mu sync.Mutex
	var refused []time.Duration
	var callers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range heldKeys {
		on := []durable.OnKey{durable.Refuse, durable.Replace, durable.Later, durable.Keep}[i%4]
		callers.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				_, err := q.Add(context.Background(), durable.Job{Kind: "k", Key: fmt.Sprint(i), OnKey: on, After: time.Hour})
				if !errors.Is(err, durable.ErrExists) {
					t.Errorf("%v after %v", err, time.Since(began))
					return
				}
				mu.Lock()
				refused = append(refused, time.Since(began))
				mu.Unlock()
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	var took []time.Duration
	for i := range 40 {
		on := []durable.OnKey{durable.Refuse, durable.Replace}[i%2]
		began := time.Now()
		_, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: fmt.Sprint("other", i), OnKey: on, After: time.Hour})
		require.NoError(t, err)
		took = append(took, time.Since(began))
	}
	time.Sleep(2 * time.Second)
	stop()
	callers.Wait()
	slices.Sort(took)
	slices.Sort(refused)
	t.Logf("other keys: median %v, at most %v; held keys: %d refused, after %v to %v, median %v", took[20], took[39],
		len(refused), refused[0], refused[len(refused)-1], refused[len(refused)/2])
	// Where other keys wait behind held ones, each Add takes some seconds. A single Add may be late on a starved machine.
	require.Less(t, took[len(took)/3], 3*time.Second+10*alone)
	require.Greater(t, refused[0], 900*time.Millisecond)
	// An Add that waits for a key stores its job when the key is free.
	stored := make(chan error)
	go func() {
		_, err := q.Add(t.Context(), durable.Job{Kind: "k", Key: "0", After: time.Hour})
		stored <- err
	}()
	time.Sleep(50 * time.Millisecond)
	release()
	require.NoError(t, await(t, stored))
}

// Many processes that replace the job of one key get no ErrExists, since no job is claimed.
func TestHotKey(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	job := durable.Job{Kind: "k", Key: "k", After: time.Hour, Signals: true}
	var callers sync.WaitGroup
	for i := range 10 {
		q, err := durable.Open(t.Context(), s.open(t))
		require.NoError(t, err)
		defer q.Close()
		if i == 0 {
			_, err := q.Add(t.Context(), job)
			require.NoError(t, err)
		}
		j := job
		j.OnKey = []durable.OnKey{durable.Replace, durable.Later}[i%2]
		for range 4 {
			callers.Go(func() {
				for range 75 {
					if _, err := q.Add(t.Context(), j); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	callers.Wait()
}

// A signal tries until no other call changes the job meanwhile, or its context ends. False is no answer
// for a job that waits.
func TestSignalTriesOn(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	kinds, err := postgres.Signaled(ctx, func(busy bool) ([]string, error) {
		tries++
		require.Equal(t, tries > 2, busy)
		switch tries {
		case 100:
			return nil, fmt.Errorf("%w: no lock", held.Err)
		case 200:
			return []string{"k"}, nil
		}
		return []string{""}, nil
	})
	require.NoError(t, err)
	require.Equal(t, []string{"k"}, kinds)
	_, err = postgres.Signaled(ctx, func(bool) ([]string, error) {
		cancel()
		return []string{""}, nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

// A signal finds the job that waits under a key, however often that is replaced meanwhile.
func TestSignalOfHotKey(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	var queues []*durable.Queue
	for range 10 {
		q, err := durable.Open(t.Context(), s.open(t))
		require.NoError(t, err)
		defer q.Close()
		queues = append(queues, q)
	}
	for n := range 20 {
		job := durable.Job{Kind: "k", Key: fmt.Sprint(n), OnKey: durable.Replace, After: time.Hour, Signals: true}
		_, err := queues[0].Add(t.Context(), job)
		require.NoError(t, err)
		var callers sync.WaitGroup
		var signaled atomic.Bool
		for _, q := range queues {
			for range 4 {
				callers.Go(func() {
					for i := 0; i < 1000 && !signaled.Load(); i++ {
						if _, err := q.Add(t.Context(), job); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		time.Sleep(20 * time.Millisecond)
		ok, err := queues[n%10].Signal(t.Context(), job.Key, []byte("s"))
		signaled.Store(true)
		callers.Wait()
		require.NoError(t, err)
		require.True(t, ok)
	}
}

// Jobs that are handed back together do not wait for one whose key a transaction holds, nor do ends.
func TestReleaseBesideHeldKey(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e := s.open(t)
	w, err := e.Work(ctx, driver.WorkConfig{Name: "w", Kinds: driver.NewKindSet([]string{"k"}), Lease: time.Hour, Ahead: time.Second, Retention: time.Hour})
	require.NoError(t, err)
	first := record("held", time.Now())
	first.Key, first.FreeWhenBegun = "0", true
	free := first
	free.ID, free.Key = "free", "free"
	insertAll(t, e, first, free, record("plain", time.Now()))
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
			require.ErrorIs(t, err, held.Err)
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
	require.ErrorIs(t, w.Release(ctx, append(again, byID(t, all, "held")), 0), held.Err)
	require.Len(t, poll(t, w), 2)
	t.Logf("after %v", time.Since(began))
	release()
	require.NoError(t, w.Release(ctx, all, 0))
	require.Equal(t, "held", poll(t, w)[0].Record.ID)
}

// Calls that wait for a job which a transaction has locked take no connection meanwhile: the pool has
// enough for all others.
func TestCallsOfLockedJob(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	job := durable.Job{Kind: "k", Key: "k", After: time.Hour, Signals: true}
	ref, err := q.Add(t.Context(), job)
	require.NoError(t, err)
	tx, err := s.pool(t).Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.Background())
	job.OnKey = durable.Replace
	_, err = e.AddTx(t.Context(), tx, job)
	require.NoError(t, err)
	var calls sync.WaitGroup
	var canceled atomic.Int64
	check := func(what string, err error) {
		if err != nil {
			t.Error(what, err)
		}
	}
	for range 10 {
		calls.Go(func() {
			_, err := q.Signal(t.Context(), "k", nil)
			check("Signal", err)
		})
		calls.Go(func() {
			ok, err := q.Cancel(t.Context(), ref)
			check("Cancel", err)
			if ok {
				canceled.Add(1)
			}
		})
		calls.Go(func() {
			_, err := q.Reschedule(t.Context(), ref, time.Now().Add(time.Hour))
			check("Reschedule", err)
		})
	}
	time.Sleep(100 * time.Millisecond)
	began := time.Now()
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := q.Add(ctx, durable.Job{Kind: "k", After: time.Hour})
		cancel()
		require.NoError(t, err)
	}
	t.Logf("ten Adds took %v", time.Since(began))
	require.NoError(t, tx.Rollback(t.Context()))
	calls.Wait()
	require.EqualValues(t, 1, canceled.Load())
}
