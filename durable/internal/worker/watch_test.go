package worker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/internal/worker/attempt"
)

// counting is an engine of which only the backlog is read.
type counting struct {
	driver.Engine
	backlog func(context.Context) (driver.Backlog, error)
}

func (e *counting) Backlog(ctx context.Context) (driver.Backlog, error) { return e.backlog(ctx) }

// The backlog is read once a lease, and less often where two that follow one another take long. A reading has a bound, and one that fails leaves
// what was read before. A kind that this process handles counts as handled. After the end nothing is known.
func TestBacklogIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		c := Defaults()
		c.Counters = &Counters{}
		c.Handlers = map[string]attempt.Handler{"own": func(context.Context, *attempt.Attempt) error { return nil }}
		var began []time.Time
		var known []int64 // the number that was known when each reading began
		takes := []time.Duration{0, 600 * time.Millisecond, time.Second, 100 * time.Hour, 100 * time.Hour, 0}
		c.Engine = &counting{backlog: func(try context.Context) (driver.Backlog, error) {
			n := int64(len(began))
			began, known = append(began, time.Now()), append(known, -1)
			if was := c.Counters.Backlog.Load(); was != nil {
				known[n] = was.Waiting
				require.Equal(t, []driver.Overdue{{Kind: "own", Handled: true}, {Kind: "another"}, {Kind: "a third", Handled: true}}, was.Kinds)
			}
			if sleep(try, takes[n]); int(n) == len(takes)-1 {
				end()
			}
			return driver.Backlog{Waiting: n, Kinds: []driver.Overdue{{Kind: "own"}, {Kind: "another"}, {Kind: "a third", Handled: true}}}, try.Err()
		}}
		c.watchBacklog(ctx)
		var apart []time.Duration
		for i := range began[1:] {
			apart = append(apart, began[i+1].Sub(began[i]))
		}
		bound := max(c.Lease, time.Minute)
		require.Equal(t, []time.Duration{c.Lease, takes[1] + c.Lease, takes[2] + max(c.Lease, idleFactor*takes[1]),
			bound + idleFactor*takes[2], bound + longestPause}, apart)
		require.Equal(t, []int64{-1, 0, 1, 2, 2, 2}, known)
		require.Nil(t, c.Counters.Backlog.Load())
	})
}
