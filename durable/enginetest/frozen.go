package enginetest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// RunEndsWhileFrozen requires that Run ends after its context while the server is frozen, whatever the worker holds and
// however long the server has been silent: a running handler, jobs that end and are claimed at that moment, permits, keys
// and a schedule. Open makes an engine on a server of its own; freeze stops that server until the end of the test.
func RunEndsWhileFrozen(t *testing.T, open func(t *testing.T) (e driver.Engine, freeze func())) {
	for _, silent := range []time.Duration{0, time.Second, 15 * time.Second} { // before the end of the context
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			t.Parallel()
			e, freeze := open(t)
			q, err := durable.Open(t.Context(), e, durable.WithLease(busy.Longer(4*time.Second)), durable.WithGrace(3*time.Second),
				durable.WithLogger(slog.New(slog.DiscardHandler)))
			require.NoError(t, err)
			t.Cleanup(func() { q.Close() })
			stop, done := runAllSorts(t, q)
			freeze()
			time.Sleep(silent)
			began := time.Now()
			stop()
			select {
			case err := <-done:
				require.NoError(t, err)
				t.Log("Run ended after", time.Since(began))
			case <-time.After(patience / 3):
				t.Error("Run waits for the server")
			}
		})
	}
}

// runAllSorts runs jobs of all sorts, one of them until its context ends, and returns while more become due.
func runAllSorts(t *testing.T, q *durable.Queue) (stop func(), done <-chan error) {
	begun := make(chan struct{}, 1)
	q.Handle("quick", func(context.Context, *durable.Attempt) error { return nil })
	q.Handle("slow", func(ctx context.Context, _ *durable.Attempt) error {
		select {
		case begun <- struct{}{}:
		default: // once more, after a lease that was lost
		}
		<-ctx.Done()
		return ctx.Err()
	})
	require.NoError(t, q.SetLimit(t.Context(), "few", durable.Limit{Kind: "quick", PerLane: true, Running: 1, Rate: 1000, Burst: 10}))
	require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 1s", durable.Job{Kind: "quick"}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx) }()
	jobs := []durable.Job{{Kind: "slow"}}
	for i := range 200 {
		jobs = append(jobs, durable.Job{Kind: "quick", Lane: fmt.Sprint("lane", i%20), Key: fmt.Sprint("key", i), FreeWhenBegun: true,
			After: time.Duration(i) * 20 * time.Millisecond})
	}
	_, err := q.AddMany(within(t), jobs...)
	require.NoError(t, err)
	<-begun
	require.Eventually(t, func() bool { return q.Stats().Done >= 10 }, patience, time.Millisecond)
	return stop, ended
}
