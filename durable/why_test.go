package durable_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// leased is an engine that says when the leases of its workers end. With a zero time it knows no worker.
type leased struct {
	driver.Engine
	until time.Time
}

func (e *leased) Workers(ctx context.Context) ([]driver.WorkerInfo, error) {
	all, err := e.Engine.Workers(ctx)
	if e.until.IsZero() {
		return nil, err
	}
	for i := range all {
		all[i].Until = e.until
	}
	return all, err
}

// Why says when the lease of a job's dead worker ended, as long as the engine knows that, and then that there is no such worker.
func TestWhyOfADeadWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &leased{Engine: memory.New(nil).Open()}
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		defer q.Close()
		q.Handle("k", func(ctx context.Context, _ *durable.Attempt) error { <-ctx.Done(); return nil })
		ref, err := q.Add(t.Context(), durable.Job{Kind: "k"})
		require.NoError(t, err)
		go q.Run(t.Context())
		time.Sleep(time.Minute)
		ended := time.Now().Add(-time.Second)
		for until, text := range map[time.Time]string{
			ended: ", and its lease has ended: " + ended.UTC().Format(time.RFC3339) + " (1s ago). The next",
			{}:    ", and no longer exists. The next",
		} {
			e.until = until
			why, err := q.Why(t.Context(), ref)
			require.NoError(t, err)
			require.Equal(t, durable.CauseLost, why.Cause)
			require.Contains(t, why.Text, "has claimed it for attempt 1"+text)
			require.True(t, until.Equal(why.Until))
		}
	})
}
