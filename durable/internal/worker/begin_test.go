package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// However many kinds have jobs that are due, the choice of the next one looks at one queue for
// all kinds without a limit, and at one for each kind that has a limit of its own. All run.
func TestKindsWithoutALimitShareQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const kinds = 1000
		w, first, _ := woken(t, &answering{beats: []error{nil}}, time.Now())
		var ran atomic.Int64
		for i := range kinds {
			l := &lane{kind: fmt.Sprint("k", i), limit: w.env.Concurrency, queues: w.shared}
			if i%500 == 0 {
				l.limit, l.limited, l.queues = 1, true, l
			}
			w.lanes[l.kind] = l
			w.env.Handlers[l.kind] = func(context.Context, *Attempt) error { ran.Add(1); return nil }
		}
		for i := range kinds {
			h := *first
			h.Record.Kind = fmt.Sprint("k", i)
			h.Ref = driver.Ref(h.Record.Kind)
			require.True(t, w.admit(t.Context(), &h))
		}
		synctest.Wait()
		w.mu.Lock()
		require.Equal(t, 3, len(w.activeLanes()))
		w.mu.Unlock()
		for batch := w.takeClaimable(); len(batch) > 0; batch = w.takeClaimable() {
			w.claim(t.Context(), batch)
			synctest.Wait()
		}
		require.Equal(t, int64(kinds), ran.Load())
		for _, l := range w.activeLanes() {
			require.Zero(t, l.running)
		}
	})
}
