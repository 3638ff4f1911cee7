package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
)

// A later version may store fields in schedules, their jobs, limits, and beside the limits and pauses
// that this one does not know. A change of something else passes them on, and so does the next
// occurrence.
func TestUnknownFieldsArePassedOn(t *testing.T) {
	t.Parallel()
	e := enginetest.NewMemory().Open(t)
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	defer q.Close()
	ran := make(chan bool, 100)
	q.Handle("k", func(context.Context, *durable.Attempt) error { ran <- true; return nil })

	require.NoError(t, q.SetSchedule(t.Context(), "s", "@every 50ms", durable.Job{Kind: "k"}))
	stored, err := e.Schedule(t.Context(), "s")
	require.NoError(t, err)
	const later = `{"spec":"@every 50ms","since":1,"job":{"kind":"k","max":25,"ofLater":7},"holidays":["de"]}`
	require.NoError(t, e.SetSchedule(t.Context(), stored.Revision, driver.Schedule{Name: "s", Revision: stored.Revision + 1, Definition: later},
		func(_ time.Time, waits *driver.Record) (*driver.Record, error) { return waits, nil }))
	require.NoError(t, q.PauseSchedule(t.Context(), "s"))
	require.NoError(t, q.ResumeSchedule(t.Context(), "s"))
	stored, err = e.Schedule(t.Context(), "s")
	require.NoError(t, err)
	require.Contains(t, stored.Definition, `"holidays":["de"]`)
	require.Contains(t, stored.Definition, `"ofLater":7`)

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	for range 3 {
		<-ran
	}
	stop()
	require.NoError(t, <-done)
	ref, err := e.Lookup(t.Context(), driver.OccurrenceKey("s"))
	require.NoError(t, err)
	w, err := e.Work(t.Context(), driver.WorkConfig{Name: "w", Lease: time.Minute, Ahead: time.Hour, Kinds: driver.NewKindSet([]string{"k"})})
	require.NoError(t, err)
	fetching, enough := context.WithCancel(t.Context())
	require.NoError(t, w.Fetch(fetching, func(all []*driver.Delivery) {
		require.Equal(t, ref, all[0].Ref)
		require.Contains(t, all[0].Record.Occurrence, `"holidays":["de"]`)
		require.NotContains(t, all[0].Record.Occurrence, `"ofLater":7`)
		enough()
	}))

	flow, err := driver.DecodeFlowControl(7, `{"limits":[{"name":"l","id":1,"kind":"k","running":1,"perHost":true}],"windows":[{"kind":"k"}]}`)
	require.NoError(t, err)
	require.NoError(t, e.SetFlowControl(t.Context(), 0, flow))
	require.NoError(t, q.SetLimit(t.Context(), "other", durable.Limit{Running: 2}))
	require.NoError(t, q.Pause(t.Context(), durable.Pausable{Lane: "x"}))
	flow, err = e.FlowControl(t.Context())
	require.NoError(t, err)
	require.Len(t, flow.Limits(), 2)
	require.Contains(t, flow.Encode(), `"perHost":true`)
	require.Contains(t, flow.Encode(), `"windows":[{"kind":"k"}]`)
}
