package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/postgres"
)

// A claim counts tokens as driver.Take does, wherever the times of the counter are: each lane has others.
func TestTokensAreCountedAsByTake(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	e, pool := s.open(t), s.pool(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	require.NoError(t, q.SetLimit(t.Context(), "l", durable.Limit{Kind: "k", PerLane: true, Rate: 1.0 / 3600, Burst: 3}))
	rules, err := e.FlowControl(t.Context())
	require.NoError(t, err)
	l := rules.Limits()[0]

	const each = 4 // jobs of a lane
	now := time.Now()
	in := func(gaps float64) int64 { return now.UnixNano() + int64(gaps*float64(l.Gap())) }
	want := map[string]driver.Counter{}
	var jobs []durable.Job
	for _, full := range []float64{-1, 0.5, 1.5, 2.5, 3.5, 4.5, 10} {
		for _, behind := range []int64{0, in(-1), in(0.5), in(1.5), in(3.5), in(4.5)} {
			lane := fmt.Sprint("lane", len(want))
			c := driver.Counter{TAT: in(full), TATBehind: behind}
			_, err := pool.Exec(t.Context(), "insert into "+s.schema+".counter (limit_id, lane, full_at, full_behind) values ($1, $2, $3, $4)", l.ID, lane, c.TAT, c.TATBehind)
			require.NoError(t, err)
			for range each {
				driver.Take([]*driver.StoredLimit{l}, []*driver.Counter{&c}, []bool{false}, "w", now)
				jobs = append(jobs, durable.Job{Kind: "k", Lane: lane})
			}
			want[lane] = c
		}
	}
	_, err = q.AddMany(t.Context(), jobs...)
	require.NoError(t, err)
	w, err := e.Work(t.Context(), workConfig("w", patience))
	require.NoError(t, err)
	var held []*driver.Delivery
	for len(held) < len(jobs) {
		held = append(held, poll(t, w)...)
	}
	for _, h := range held {
		h.Exact = true
	}
	w.Claim(t.Context(), held)
	usage, err := e.Usage(t.Context())
	require.NoError(t, err)
	for _, u := range usage {
		c := want[u.Lane]
		about := fmt.Sprintf("%s: %+v, by driver.Take %+v", u.Lane, u.Counter, c)
		require.Equal(t, c.Taken, u.Taken, about) // each is claimed still
		require.InDelta(t, c.TAT, u.TAT, float64(l.Gap()/4), about)
		require.InDelta(t, c.TATBehind, u.TATBehind, float64(l.Gap()/4), about)
	}
	require.Len(t, usage, len(want))
}

// A server whose clock is ahead sweeps no counter whose tokens are not back by another clock: two clocks that alternate
// would give the Burst again with each sweep.
func TestSweepByAClockAhead(t *testing.T) {
	t.Parallel()
	s := sharedStore(t)
	q, err := durable.Open(t.Context(), s.open(t))
	require.NoError(t, err)
	defer q.Close()
	ahead, set := s.OpenClocked(t, time.Hour)
	require.NoError(t, q.SetLimit(t.Context(), "l", durable.Limit{Kind: "k", PerLane: true, Rate: 0.01, Burst: 5}))
	q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	stop, done := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(stop) })
	defer running.Wait()
	defer done()
	_, err = q.AddMany(t.Context(), slices.Repeat([]durable.Job{{Kind: "k", Lane: "l"}}, 5)...)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return q.Stats().Done == 5 }, patience, 10*time.Millisecond)
	taken := func(e driver.Engine) int {
		usage, err := e.Usage(t.Context())
		require.NoError(t, err)
		return len(usage)
	}
	right := s.open(t)
	ahead.(*postgres.Engine).Expire(t.Context())
	require.Equal(t, 1, taken(right), "the tokens are not back")
	require.Zero(t, taken(ahead), "they are, by this clock")
	set(3 * time.Hour)
	ahead.(*postgres.Engine).Expire(t.Context())
	require.Zero(t, taken(right), "it is swept")
}
