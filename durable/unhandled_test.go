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
