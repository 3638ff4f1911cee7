package enginetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

var errTest = errors.New("not this time")

// A key is held from Add until its job is done, canceled or dead: while it waits, runs,
// and waits for another attempt.
func keys(t *testing.T, s Store) {
	proceed := make(chan error)
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return 300 * time.Millisecond })).
		handle(kind, func(context.Context, *durable.Attempt) error { return <-proceed }).start()
	taken := func() {
		t.Helper()
		ref, err := r.Add(within(t), durable.Job{Kind: kind, Key: "k"})
		require.ErrorIs(t, err, durable.ErrExists)
		require.Empty(t, ref)
	}
	free := func(j durable.Job) durable.Ref {
		t.Helper()
		var ref durable.Ref
		await(t, "the key is free", func() bool {
			var err error
			if ref, err = r.Add(within(t), j); err != nil {
				require.ErrorIs(t, err, durable.ErrExists)
			}
			return err == nil
		})
		return ref
	}
	far := durable.Job{Kind: kind, Key: "k", After: time.Hour}
	now := durable.Job{Kind: kind, Key: "k"}

	// Canceled by Ref, and by key.
	ref := r.add(far)[0]
	taken()
	r.add(durable.Job{Kind: kind, Key: "other", After: time.Hour})
	r.cancel(ref, true, "")
	ref = r.add(far)[0]
	taken()
	r.cancelKey("k", true)
	r.cancelKey("k", false)
	_, err := r.Get(within(t), ref)
	require.ErrorIs(t, err, durable.ErrNotFound)

	// Running, waiting for the next attempt, running, done.
	r.add(now)
	r.awaitRuns(1)
	taken()
	proceed <- errTest
	taken()
	r.awaitRuns(2)
	taken()
	proceed <- nil

	// Dead; redriven while another has the key, and when that has gone.
	dead := free(now)
	r.awaitRuns(3)
	proceed <- durable.Discard(errTest)
	ref = free(far)
	require.ErrorIs(t, r.Redrive(within(t), dead), durable.ErrExists)
	r.cancel(ref, true, "")
	require.NoError(t, r.Redrive(within(t), dead))
	r.awaitRuns(4)
	taken()
	proceed <- nil
	ref = free(far)

	// Rescheduled, it is held still.
	r.reschedule(ref, time.Now().Add(2*time.Hour), true)
	taken()
	r.cancelKey("k", true)
	r.add(far)
}

// Of many who add a key at one time, one does.
func keyRace(t *testing.T, s Store) {
	var engines []*rig
	for range 3 {
		engines = append(engines, open(t, s.Open(t)))
	}
	for round := range 10 {
		key := string(rune('a' + round))
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				_, err := engines[i%3].Add(within(t), durable.Job{Kind: kind, Key: key, After: time.Hour})
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, durable.ErrExists) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, int64(1), won.Load())
	}
}

// A key that is taken and left all the time has one job at a time, and each runs.
func keyTurns(t *testing.T, s Store) {
	var c crowd
	a := open(t, s.Open(t)).handle(kind, c.around(sleeps(time.Millisecond))).start()
	b := open(t, s.Open(t)).handle(kind, c.around(sleeps(time.Millisecond))).start()
	added := 0
	for end := time.Now().Add(2 * time.Second); added < 6 || time.Now().Before(end); breathe() {
		_, err := a.Add(within(t), durable.Job{Kind: kind, Key: "turn"})
		if err == nil {
			added++
		} else {
			require.ErrorIs(t, err, durable.ErrExists)
		}
	}
	await(t, "all ran", func() bool { return len(ran(a, b)) == added && c.inside.Load() == 0 })
	t.Logf("%d turns", added)
	require.Equal(t, int64(1), c.most.Load())
	empty(t, b)
}
