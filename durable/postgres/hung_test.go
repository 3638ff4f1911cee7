package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

func workConfig(name string, lease time.Duration) durable.WorkConfig {
	return durable.WorkConfig{Name: name, Lease: lease, Ahead: time.Second, Retention: time.Hour}
}

// A claim whose connection is half open keeps its row from nobody for long: the server has
// the claim, and waits for the end of what was sent. So it is for a beat: its worker keeps
// the lease by another connection.
func TestHalfOpen(t *testing.T) {
	s := newStore(server(t))
	e := s.open(t)
	behind, p := s.behindProxy(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	insertAll(t, e, record("a", time.Now()))
	cut, err := behind.Work(ctx, workConfig("cut", 2*time.Second))
	require.NoError(t, err)
	held := look(t, cut)
	require.Len(t, held, 1)
	require.Eventually(t, func() bool { return p.pool.Stat().AcquiredConns() == 0 }, patience, time.Millisecond)
	p.holdNext.Store(2) // the settings, and the claim
	require.Equal(t, durable.Later, cut.Claim(ctx, held)[0].Claimed)
	require.EqualValues(t, 1, p.holds.Load())

	w, err := e.Work(ctx, workConfig("w", 6*time.Second))
	require.NoError(t, err)
	feeding, stop := context.WithCancel(ctx)
	got := make(chan *durable.Held, 100)
	fed := make(chan error)
	go func() {
		fed <- w.Feed(feeding, func(hs []*durable.Held) {
			for _, h := range hs {
				got <- h
			}
		})
	}()
	defer func() { stop(); require.NoError(t, <-fed) }()
	for mine := false; !mine; {
		select {
		case h := <-got:
			mine = w.Claim(ctx, []*durable.Held{h})[0].Claimed == durable.Mine
		case <-ctx.Done():
			t.Fatal("the row is locked for good")
		}
	}

	// The worker's lease is longer than a test takes, so that only the beat's own bound can
	// be what ends it.
	long, err := behind.Work(ctx, workConfig("long", 20*time.Second))
	require.NoError(t, err)
	require.NoError(t, long.Beat(ctx))
	p.holdNext.Store(1)
	lease, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	require.Error(t, long.Beat(lease))
	require.NoError(t, lease.Err(), "the lease is over")
	require.EqualValues(t, 2, p.holds.Load())
	for long.Beat(ctx) != nil {
		require.NoError(t, ctx.Err())
	}
	require.NoError(t, lease.Err(), "the lease is over")
}
