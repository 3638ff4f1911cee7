package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

func workConfig(name string, lease time.Duration) driver.WorkConfig {
	return driver.WorkConfig{Name: name, Kinds: driver.NewKindSet([]string{"k"}), Lease: lease, Ahead: time.Second, Retention: time.Hour}
}

// A claim whose connection is half open keeps its row from nobody for long: the server has
// the claim, and waits for the end of what was sent.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e := s.open(t)
	behind, p := s.behindProxy(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	insertAll(t, e, record("a", time.Now()))
	cut, err := behind.Work(ctx, workConfig("cut", 2*time.Second))
	require.NoError(t, err)
	held := poll(t, cut)
	require.Len(t, held, 1)
	require.Eventually(t, func() bool { return p.pool.Stat().AcquiredConns() == 0 }, patience, time.Millisecond)
	p.holdNext.Store(2) // the settings, and the claim
	require.Equal(t, driver.RetryLater, cut.Claim(ctx, held)[0].Status)
	require.EqualValues(t, 1, p.holds.Load())

	w, err := e.Work(ctx, workConfig("w", 6*time.Second))
	require.NoError(t, err)
	feeding, stop := context.WithCancel(ctx)
	got := make(chan *driver.Delivery, 100)
	fed := make(chan error)
	go func() {
		fed <- w.Fetch(feeding, func(hs []*driver.Delivery) {
			for _, h := range hs {
				got <- h
			}
		})
	}()
	defer func() { stop(); require.NoError(t, <-fed) }()
	for mine := false; !mine; {
		select {
		case h := <-got:
			mine = w.Claim(ctx, []*driver.Delivery{h})[0].Status == driver.Granted
		case <-ctx.Done():
			t.Fatal("the row is locked for good")
		}
	}
}

// A beat whose connection is half open is given up in time for another one, and what it has
// locked is free when the connection is ended.
func TestHalfOpenBeat(t *testing.T) {
	t.Parallel()
	s := newStore(server(t))
	e := s.open(t)
	behind, p := s.behindProxy(t)
	const lease = 20 * time.Second
	w, err := behind.Work(t.Context(), workConfig("w", lease))
	require.NoError(t, err)
	began := time.Now() // before the lease begins
	require.NoError(t, w.Heartbeat(t.Context()))
	for try := int64(1); ; try++ {
		p.holdNext.Store(1)
		require.Error(t, w.Heartbeat(t.Context()))
		require.Equal(t, try, p.holds.Load())
		e.EndHung(t.Context(), 0)
		again := time.Now()
		if err = w.Heartbeat(t.Context()); err == nil {
			return
		}
		require.ErrorIs(t, err, driver.ErrLeaseLost)
		require.Greater(t, time.Since(began), lease)
		began = again
		require.Less(t, try, int64(6), "too late for the lease each time") // a busy machine may be now and then
	}
}

// A server that takes questions and answers none keeps Health no longer than its context.
func TestHealthOfStuckServer(t *testing.T) {
	t.Parallel()
	srv := server(t)
	behind, p := newStore(srv).behindProxy(t)
	q, err := durable.Open(t.Context(), behind)
	require.NoError(t, err)
	defer q.Close()
	require.NoError(t, q.Health(t.Context()))
	p.holdNext.Store(1)
	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), meant{}, true), time.Hour)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- q.Health(ctx) }()
	require.Eventually(t, func() bool { return p.holds.Load() == 1 }, patience, time.Millisecond)
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "does not answer")
	case <-time.After(patience):
		t.Fatal("Health outlasts its context")
	}
	require.NoError(t, srv.Kill(), "else the pool waits for the connection")
}
