// Package upgradetest has what engines must do with a store that a release before this one
// has written.
package upgradetest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// Names of the series of [Series].
const (
	Due     = "due"     // it waits, and is due
	Claimed = "claimed" // a worker has claimed it that is no more
	Far     = "far"     // it waits for longer than the test takes
	Stored  = "stored"  // it waits, and is due
)

// Kind is that of their jobs.
const Kind = "k"

// patience is how long the test waits for what must come. It is a bound, not a measure.
const patience = 5 * time.Minute

// Series checks what becomes of occurrences of recurring jobs that were stored before there
// were schedules, when times were code and nothing else. Those run whose time comes, and their
// series end with a line in the log. [Far] and [Stored] are stored as schedules, and go on.
func Series(t *testing.T, open func() driver.Engine, stored map[string]durable.Ref) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var log bytes.Buffer
	q, err := durable.Open(ctx, open(), durable.WithLease(busy.Longer(3*time.Second)), durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	ran := make(chan *durable.Attempt, 10000)
	q.Handle(Kind, func(_ context.Context, a *durable.Attempt) error { ran <- a; return nil })
	for _, name := range []string{Far, Stored} {
		require.NoError(t, q.Schedule(ctx, name, "@every 300ms", durable.Job{Kind: Kind}))
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- q.Run(running) }()
	follow(ctx, t, ran, stored)
	for _, name := range []string{Due, Claimed} {
		require.Eventually(t, func() bool {
			_, err := q.Get(ctx, stored[name])
			return errors.Is(err, durable.ErrNotFound)
		}, patience, time.Millisecond, name)
	}
	stop()
	require.NoError(t, <-done)
	for info, err := range q.Schedules(ctx) {
		require.NoError(t, err)
		require.Equal(t, info.Name == Far || info.Name == Stored, !info.Next.IsZero(), info.Name)
	}
	require.NoError(t, q.Close())
	for name := range stored {
		lines := 0
		if name == Due || name == Claimed {
			lines = 1
		}
		require.Equal(t, lines, strings.Count(log.String(), `a schedule ends; no occurrence can follow" name=`+name), "%s: %s", name, &log)
	}
}

// follow waits for one run of each series that ends, and three of each that goes on.
func follow(ctx context.Context, t *testing.T, ran <-chan *durable.Attempt, stored map[string]durable.Ref) {
	runs := map[string]int{}
	last := map[string]time.Time{}
	seen := map[durable.Ref]bool{}
	for runs[Due] < 1 || runs[Claimed] < 1 || runs[Far] < 3 || runs[Stored] < 3 {
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
			require.Zero(t, a.Occurrence.UnixMicro()%(300*time.Millisecond).Microseconds(), "%s at %v", name, a.Occurrence)
		}
		last[name] = a.Occurrence
		runs[name]++
	}
	require.Equal(t, []int{1, 1}, []int{runs[Due], runs[Claimed]})
}
