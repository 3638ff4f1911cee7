package durable_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// A claim that the store lacks ends: the context of its handler, and a job that has not begun. A Queue is
// healthy when the engine says that both agree, and counts forgotten claims.
func TestLostClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sick{Engine: enginetest.NewMemory().Open(t), faults: map[string]error{}}
		q, err := durable.Open(t.Context(), s, durable.WithConcurrency(1))
		require.NoError(t, err)
		defer q.Close()
		cause, begun := make(chan error, 10), 0
		q.Handle("k", func(ctx context.Context, _ *durable.Attempt) error {
			if begun++; begun > 1 {
				return nil
			}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil
		})
		defer start(t, q)()
		refs := add(t, q, durable.Job{Kind: "k"})
		time.Sleep(time.Second)
		refs = append(refs, add(t, q, durable.Job{Kind: "k"})...)
		time.Sleep(time.Second)
		require.Equal(t, int64(1), q.Stats().Claimed)
		s.say(driver.Notice{Lost: append(refs, "unknown"), Forgotten: 3})
		synctest.Wait()
		require.ErrorIs(t, <-cause, durable.ErrLeaseLost)
		require.ErrorIs(t, q.Health(t.Context()), durable.ErrWentBack)
		require.Equal(t, int64(3), q.Stats().Forgotten)
		time.Sleep(time.Second)
		require.Equal(t, 2, begun, "the job that had not begun was handed back, and came again")
		s.say(driver.Notice{Agreed: true})
		require.NoError(t, q.Health(t.Context()))
	})
}
