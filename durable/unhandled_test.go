package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// forgetful is an engine that knows of no worker.
type forgetful struct{ driver.Engine }

func (f forgetful) Unhandled(context.Context) ([]driver.Unhandled, error) {
	return []driver.Unhandled{{Kind: "own"}, {Kind: "nobody's"}}, nil
}

func (f forgetful) Backlog(context.Context) (driver.Backlog, error) {
	return driver.Backlog{Kinds: []driver.Overdue{{Kind: "own"}, {Kind: "nobody's"}}}, nil
}

// A worker does not say that no worker handles a kind that it handles itself, though the engine does not know of
// its heartbeat: that is late, or is read from a server that is behind.
func TestOwnKindsAreHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, err := durable.Open(t.Context(), forgetful{memory.New(nil).Open()})
		require.NoError(t, err)
		defer q.Close()
		q.Handle("own", func(context.Context, *durable.Attempt) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- q.Run(ctx) }()
		time.Sleep(time.Minute)
		st := q.Stats()
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, []durable.Unhandled{{Kind: "nobody's"}}, st.Unhandled)
		require.Equal(t, []durable.Overdue{{Kind: "own", Handled: true}, {Kind: "nobody's"}}, st.Backlog.Kinds)
	})
}

// slowBacklog is an engine whose answers to Backlog take as long as is set.
type slowBacklog struct {
	driver.Engine
	takes atomic.Int64 // nanoseconds
	reads atomic.Int64
}

func (e *slowBacklog) Backlog(ctx context.Context) (driver.Backlog, error) {
	e.reads.Add(1)
	t := time.NewTimer(time.Duration(e.takes.Load()))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return driver.Backlog{}, ctx.Err()
	case <-t.C:
		return e.Engine.Backlog(ctx)
	}
}

// One slow answer does not delay the next reading of the backlog. If all answers are slow, readings are rare, but no pause is
// longer than five minutes.
func TestBacklogAfterASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slowBacklog{Engine: memory.New(nil).Open()}
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		defer q.Close()
		q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
		defer start(t, q)()
		age := func() time.Duration { return time.Since(q.Stats().BacklogAt) }
		for _, takes := range []time.Duration{20 * time.Second, time.Hour} { // the latter is an outage: it has no answer
			time.Sleep(2 * time.Minute)
			e.takes.Store(int64(takes))
			for e.reads.Store(0); e.reads.Load() == 0; {
				time.Sleep(time.Second)
			}
			e.takes.Store(0)
			time.Sleep(2 * time.Minute)
			require.Less(t, age(), time.Minute, "after an answer of %v", takes)
		}

		e.takes.Store(int64(5 * time.Second))
		time.Sleep(10 * time.Minute)
		e.reads.Store(0)
		time.Sleep(time.Hour)
		require.InDelta(t, 14, e.reads.Load(), 1, "each takes 5 s, with a pause of 250 s")
		e.takes.Store(int64(time.Hour))
		time.Sleep(time.Hour)
		e.takes.Store(0)
		time.Sleep(7 * time.Minute)
		require.Less(t, age(), 7*time.Minute, "after an outage of an hour")
	})
}
