package durable_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// When a worker dies, another begins the jobs that it had begun, claimed or fetched after one lease to two.
func TestLateByTheLeaseOfTheDead(t *testing.T) {
	const lease = 30 * time.Second
	for _, silent := range []time.Duration{0, 4 * time.Second, lease / 3} { // between its last heartbeat and its death
		bubble(t, func(t *testing.T, m *enginetest.Memory, q *durable.Queue) {
			refs := add(t, q, durable.Job{Kind: "k"}, durable.Job{Kind: "k", After: 4 * time.Second}, durable.Job{Kind: "k", After: 4 * time.Second})
			w, err := m.Open(t).Work(t.Context(), driver.WorkConfig{Name: "dies", Lease: lease, Ahead: 5 * time.Second, Kinds: driver.NewKindSet([]string{"k"})})
			require.NoError(t, err)
			var held []*driver.Delivery
			ctx, die := context.WithCancel(t.Context())
			go w.Fetch(ctx, func(all []*driver.Delivery) { held = append(held, all...) })
			synctest.Wait()
			require.Len(t, held, len(refs))
			held[0].Exact = true // it begins; the second is claimed ahead, and the third is not claimed
			for _, v := range w.Claim(t.Context(), held[:2]) {
				require.Equal(t, driver.Granted, v.Status)
			}
			require.NoError(t, w.Heartbeat(t.Context()))
			beat := time.Now()
			time.Sleep(silent)
			died := time.Now()
			die()

			var mu sync.Mutex
			began := map[durable.Ref]time.Time{}
			q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
				mu.Lock()
				defer mu.Unlock()
				began[a.Ref] = time.Now()
				return nil
			})
			defer start(t, q)()
			time.Sleep(10 * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			for _, ref := range refs {
				require.WithinRange(t, began[ref], beat.Add(lease), died.Add(2*lease))
			}
		}, durable.WithLease(lease))
	}
}
