package durable_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := enginetest.NewMemory()
		q, err := durable.Open(t.Context(), m.Open(t))
		require.NoError(t, err)
		var ran []time.Time
		q.Handle("a", func(_ context.Context, a *durable.Attempt) error {
			ran = append(ran, time.Now())
			require.False(t, time.Now().Before(a.Due))
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(ctx) }()
		start := time.Now()
		_, err = q.Add(t.Context(), durable.Job{Kind: "a", After: time.Hour}, durable.Job{Kind: "a"})
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		require.Len(t, ran, 2)
		t.Log(ran[0].Sub(start), ran[1].Sub(start))
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
		require.Equal(t, int64(2), q.Stats().Done)
	})
}
