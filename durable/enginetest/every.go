package enginetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// grid is a schedule of all multiples of a period.
type grid time.Duration

func (g grid) Next(prev time.Time) time.Time {
	return prev.Truncate(time.Duration(g)).Add(time.Duration(g))
}

type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }

// Two processes with one schedule run each occurrence once, on the grid, over restarts.
func every(t *testing.T, s Store) {
	const period = 400 * time.Millisecond
	start := func(e durable.Engine) *rig {
		r := open(t, e).handle(kind, nil)
		require.NoError(t, r.Every(t.Context(), "tick", grid(period), durable.Job{Kind: kind, Payload: []byte("p")}))
		require.NoError(t, r.Every(t.Context(), "tick", grid(period), durable.Job{Kind: kind, Payload: []byte("p")}))
		require.NoError(t, r.Every(t.Context(), "none", never{}, durable.Job{Kind: kind}))
		return r.start()
	}
	a, b := start(s.Open(t)), start(s.Open(t))
	runs := func(rigs ...*rig) (all []run) {
		for _, r := range rigs {
			all = append(all, r.ran()...)
		}
		return all
	}
	await(t, "five occurrences", func() bool { return len(runs(a, b)) >= 5 })
	a.close()
	b.close()
	c := start(s.Open(t))
	c.awaitRuns(3)
	seen := map[int64]bool{}
	for _, run := range runs(a, b, c) {
		at := run.Job.At
		require.False(t, seen[at.UnixNano()], "twice at %v", at)
		seen[at.UnixNano()] = true
		require.Equal(t, "p", string(run.Job.Payload))
	}
	waiting := 0
	await(t, "one waits", func() bool {
		waiting = 0
		for info, err := range c.All(t.Context(), durable.Filter{}) {
			require.NoError(t, err)
			require.Equal(t, "every/tick", info.Job.Key)
			waiting++
		}
		return waiting <= 1 // the one that has run may be there for a moment
	})
}

// Occurrences that were missed run once. One that fails is tried again, and the next
// comes after it has died.
func everyMissed(t *testing.T, s Store) {
	const period = 300 * time.Millisecond
	var fail atomic.Bool
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return 50 * time.Millisecond })).
		handle(kind, func(context.Context, *durable.Attempt) error {
			if fail.Load() {
				return errTest
			}
			return nil
		})
	require.NoError(t, r.Every(t.Context(), "x", grid(period), durable.Job{Kind: kind, MaxAttempts: 2}))
	time.Sleep(6 * period)
	r.start()
	runs := r.awaitRuns(3)
	require.True(t, runs[1].Due.After(runs[0].Due.Add(4*period)), "the missed ones run once: %v", runs)

	fail.Store(true)
	await(t, "two have died", func() bool { return r.Stats().Dead >= 2 })
	fail.Store(false)
	n := len(r.ran())
	r.awaitRuns(n + 3)
	ok := false
	for !ok { // between its occurrences it may run
		var err error
		ok, err = r.CancelKey(t.Context(), "every/x")
		require.NoError(t, err)
	}
	n = len(r.ran())
	time.Sleep(4 * period)
	require.Len(t, r.ran(), n, "the series has ended")
}

// A schedule that was changed moves what waits for the old one.
func everyChanged(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	require.NoError(t, r.Every(t.Context(), "x", grid(1000*time.Hour), durable.Job{Kind: kind}))
	require.NoError(t, r.Every(t.Context(), "x", grid(300*time.Millisecond), durable.Job{Kind: kind}))
	r.start()
	r.awaitRuns(2)
	require.ErrorIs(t, r.Every(t.Context(), "", grid(time.Hour), durable.Job{Kind: kind}), durable.ErrInvalid)
	require.ErrorIs(t, r.Every(t.Context(), "a\nb", grid(time.Hour), durable.Job{Kind: kind}), durable.ErrInvalid)
}
