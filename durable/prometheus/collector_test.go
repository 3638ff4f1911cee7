package prometheus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	jobmetrics "github.com/tickwheel/tickwheel/durable/prometheus"
)

func TestCollector(t *testing.T) {
	q, err := durable.Open(t.Context(), enginetest.NewMemory().Open(t))
	require.NoError(t, err)
	defer q.Close()
	q.Handle("good", func(context.Context, *durable.Attempt) error { return nil })
	q.Handle("bad", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	refs, err := q.Add(ctx, durable.Job{Kind: "good"}, durable.Job{Kind: "bad"}, durable.Job{Kind: "good", After: time.Hour})
	require.NoError(t, err)
	ok, err := q.Cancel(ctx, refs[2])
	require.NoError(t, err)
	require.True(t, ok)
	require.Eventually(t, func() bool { return q.Stats().Done+q.Stats().Dead == 2 }, 20*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-done)

	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(jobmetrics.NewCollector(q, "q")))
	require.NoError(t, testutil.GatherAndCompare(r, strings.NewReader(`
# HELP durable_added_total Jobs that were accepted here.
# TYPE durable_added_total counter
durable_added_total{queue="q"} 3
# HELP durable_canceled_total Jobs that were canceled here.
# TYPE durable_canceled_total counter
durable_canceled_total{queue="q"} 1
# HELP durable_dead_total Jobs that died here.
# TYPE durable_dead_total counter
durable_dead_total{queue="q"} 1
# HELP durable_done_total Attempts that ended well.
# TYPE durable_done_total counter
durable_done_total{queue="q"} 1
# HELP durable_held Jobs that the engine has handed out to this worker.
# TYPE durable_held gauge
durable_held{queue="q"} 0
`), "durable_added_total", "durable_canceled_total", "durable_dead_total", "durable_done_total", "durable_held"))
	families, err := r.Gather()
	require.NoError(t, err)
	require.Len(t, families, 15)
	for _, f := range families {
		if f.GetName() == "durable_lateness_seconds" {
			require.Equal(t, uint64(2), f.GetMetric()[0].GetHistogram().GetSampleCount())
		}
	}
	require.Panics(t, func() { jobmetrics.NewCollector(nil, "x") })
}
