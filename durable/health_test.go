package durable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// stuck is an engine that does not do what is set.
type stuck struct {
	driver.Engine
	now, look, beat atomic.Bool
}

var errStuck = errors.New("stuck")

func (e *stuck) Now(ctx context.Context) (time.Time, time.Duration, error) {
	if e.now.Load() {
		return time.Time{}, 0, errStuck
	}
	return e.Engine.Now(ctx)
}

func (e *stuck) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	looked := c.Polled
	c.Polled = func() {
		if !e.look.Load() {
			looked()
		}
	}
	w, err := e.Engine.Work(ctx, c)
	return stuckWorker{w, e}, err
}

type stuckWorker struct {
	driver.Worker
	e *stuck
}

func (w stuckWorker) Heartbeat(ctx context.Context) error {
	if w.e.beat.Load() {
		return errStuck
	}
	return w.Worker.Heartbeat(ctx)
}

// A process is healthy until its engine does not answer, its lease is over, or it is handed
// nothing; and again after.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &stuck{Engine: memory.New(nil).Open()}
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
		require.NoError(t, q.Health(t.Context()), "it does not run")
		require.Zero(t, q.Stats().LastPoll)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		time.Sleep(time.Minute)
		require.NoError(t, q.Health(t.Context()))
		st := q.Stats()
		require.WithinRange(t, st.LastPoll, time.Now().Add(-30*time.Second), time.Now())
		require.WithinRange(t, st.LastHeartbeat, time.Now().Add(-11*time.Second), time.Now())
		require.WithinRange(t, st.LastClaim, time.Now().Add(-61*time.Second), time.Now().Add(-59*time.Second), "nothing was due")
		require.WithinRange(t, st.BacklogAt, time.Now().Add(-31*time.Second), time.Now())

		e.now.Store(true)
		require.ErrorIs(t, q.Health(t.Context()), errStuck)
		e.now.Store(false)
		require.NoError(t, q.Health(t.Context()))

		e.look.Store(true)
		time.Sleep(2 * time.Minute)
		require.ErrorContains(t, q.Health(t.Context()), "last successful poll")
		e.look.Store(false)
		time.Sleep(time.Minute)
		require.NoError(t, q.Health(t.Context()))

		e.beat.Store(true)
		time.Sleep(2 * time.Minute)
		require.ErrorIs(t, q.Health(t.Context()), durable.ErrLeaseLost)
		e.beat.Store(false)
		time.Sleep(time.Minute)
		require.NoError(t, q.Health(t.Context()))

		_, err = q.Add(t.Context(), durable.Job{Kind: "k"})
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.WithinRange(t, q.Stats().LastClaim, time.Now().Add(-2*time.Second), time.Now())
		stop()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
		require.ErrorIs(t, q.Health(t.Context()), durable.ErrClosed)
	})
}

// A worker that has as many jobs as it can hold is not taken for one that is handed nothing.
func TestHealthOfTheFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := durable.Open(t.Context(), memory.New(nil).Open(), durable.WithConcurrency(1))
		require.NoError(t, err)
		release := make(chan bool)
		q.Handle("k", func(context.Context, *durable.Attempt) error { <-release; return nil })
		const big = 64<<20/durable.MaxPayload + 8 // as many as fill a worker, by their bytes
		payload := make([]byte, durable.MaxPayload)
		for range big {
			_, err = q.Add(t.Context(), durable.Job{Kind: "k", Payload: payload})
			require.NoError(t, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		require.Less(t, q.Stats().Held, int64(big))
		require.NoError(t, q.Health(t.Context()))
		require.GreaterOrEqual(t, q.Stats().Backlog.Kinds[0].Jobs, int64(1))
		close(release)
		stop()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
	})
}
