// Package upgradetest has what engines must do with a store that a release before this one
// has written.
package upgradetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// Names of the series of [Series].
const (
	Due     = "due"     // it waits, and is due
	Claimed = "claimed" // a worker has claimed it that is no more
	Far     = "far"     // it waits for longer than the test takes
	Stored  = "stored"  // it waits, and is due; its times are no code any more
)

// Kind is that of their jobs.
const Kind = "k"

// patience is how long the test waits for what must come. It is a bound, not a measure.
const patience = 5 * time.Minute

// period is that of the series now.
const period = 300 * time.Millisecond

// grid is a schedule of all multiples of the period.
type grid struct{}

func (grid) Next(prev time.Time) time.Time { return prev.Truncate(period).Add(period) }

// Series checks what becomes of occurrences of recurring jobs that were stored before there
// were schedules, when times were code and nothing else: a process that does not know them
// leaves them to others. One that does runs them, and stores what follows with their end,
// once each.
func Series(t *testing.T, open func() durable.Engine, stored map[string]durable.Ref) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ran := make(chan *durable.Attempt, 10000)
	queue := func(h func(context.Context, *durable.Attempt) error) *durable.Queue {
		q, err := durable.Open(ctx, open(), durable.WithLease(3*time.Second))
		require.NoError(t, err)
		q.Handle(Kind, h)
		return q
	}
	start := func(q *durable.Queue) {
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- q.Run(running) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			q.Close()
		})
	}
	start(queue(func(_ context.Context, a *durable.Attempt) error {
		if a.Schedule != Stored {
			t.Errorf("an occurrence of %q begins where its times are not known", a.Schedule)
		}
		ran <- a
		return nil
	}))
	time.Sleep(time.Second)
	q := queue(func(_ context.Context, a *durable.Attempt) error { ran <- a; return nil })
	for _, name := range []string{Due, Claimed, Far} {
		require.NoError(t, q.Every(ctx, name, grid{}, durable.Job{Kind: Kind}))
	}
	require.NoError(t, q.Schedule(ctx, Stored, "@every 300ms", durable.Job{Kind: Kind}))
	start(q)
	follow(ctx, t, ran, stored)
	listed := 0
	for info, err := range q.Schedules(ctx) {
		require.NoError(t, err)
		require.False(t, info.Last.IsZero(), info.Name)
		listed++
	}
	require.Equal(t, len(stored), listed)
}

// follow waits for three runs of each series.
func follow(ctx context.Context, t *testing.T, ran <-chan *durable.Attempt, stored map[string]durable.Ref) {
	runs := map[string]int{}
	last := map[string]time.Time{}
	seen := map[durable.Ref]bool{}
	for least := 0; least < 3; {
		var a *durable.Attempt
		select {
		case a = <-ran:
		case <-ctx.Done():
			require.Fail(t, "some do not go on", "%v", runs)
		}
		name := a.Schedule
		require.Contains(t, stored, name)
		require.False(t, seen[a.Ref], "twice: %s at %v", name, a.Occurrence)
		seen[a.Ref] = true
		if runs[name] == 0 {
			require.Equal(t, name != Far, a.Ref == stored[name], "%s begins with what was stored, unless that is too late", name)
		} else {
			require.True(t, a.Occurrence.After(last[name]), "%s: %v after %v", name, a.Occurrence, last[name])
			require.Zero(t, a.Occurrence.UnixMicro()%period.Microseconds(), "%s at %v", name, a.Occurrence)
		}
		last[name] = a.Occurrence
		runs[name]++
		least = runs[name]
		for name := range stored {
			least = min(least, runs[name])
		}
	}
}
