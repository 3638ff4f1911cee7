package jetstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// A worker that begins while the server is silent waits for it until its context ends, also
// one without a deadline.
func TestWorkWaitsForTheServer(t *testing.T) {
	t.Parallel()
	l := &wall{srv: newStore(t).srv}
	nc, err := nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	defer nc.Close()
	e, err := jetstream.Connect(t.Context(), nc)
	require.NoError(t, err)
	defer e.Close()
	work := func(ctx context.Context, name string) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := e.Work(ctx, driver.WorkConfig{Name: name, Lease: time.Minute, Ahead: time.Second, Retention: time.Hour})
			done <- err
		}()
		return done
	}
	l.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	canceled, done := work(ctx, "canceled"), work(t.Context(), "patient")
	time.Sleep(12 * time.Second) // longer than the engine waits for one answer
	cancel()
	require.ErrorIs(t, <-canceled, context.Canceled)
	require.Empty(t, done)
	l.Unlock()
	require.NoError(t, <-done)
}

// A server that is silent keeps Health no longer than its context.
func TestHealthOfSilentServer(t *testing.T) {
	t.Parallel()
	l := &wall{srv: newStore(t).srv}
	nc, err := nats.Connect("", nats.InProcessServer(l), nats.MaxReconnects(-1), nats.Timeout(time.Minute))
	require.NoError(t, err)
	defer nc.Close()
	e, err := jetstream.Connect(t.Context(), nc)
	require.NoError(t, err)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	require.NoError(t, q.Health(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ended := make(chan error, 1)
	l.Lock()
	defer l.Unlock()
	go func() { ended <- q.Health(ctx) }()
	time.AfterFunc(200*time.Millisecond, cancel)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "the engine does not answer")
	case <-time.After(patience):
		t.Fatal("Health outlasts its context")
	}
}
