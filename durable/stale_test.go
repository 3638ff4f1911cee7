package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// stale is an engine whose next reading of each kind is an old one, as that of a leader which was deposed and does
// not know it.
type stale struct {
	driver.Engine
	flow     atomic.Pointer[read[*driver.FlowControl]]
	schedule atomic.Pointer[read[driver.Schedule]]
}

type read[T any] struct {
	answer T
	err    error
}

// remember makes the state of now the next answers.
func (e *stale) remember(t *testing.T) {
	f, err := e.Engine.FlowControl(t.Context())
	e.flow.Store(&read[*driver.FlowControl]{f, err})
	s, err := e.Engine.Schedule(t.Context(), "s")
	e.schedule.Store(&read[driver.Schedule]{s, err})
}

func (e *stale) FlowControl(ctx context.Context) (*driver.FlowControl, error) {
	if old := e.flow.Swap(nil); old != nil {
		return old.answer, old.err
	}
	return e.Engine.FlowControl(ctx)
}

func (e *stale) Schedule(ctx context.Context, name string) (driver.Schedule, error) {
	if old := e.schedule.Swap(nil); old != nil {
		return old.answer, old.err
	}
	return e.Engine.Schedule(ctx, name)
}

// An answer for which nothing is stored is right although what was read first was old: the store has confirmed it.
func TestUnchangedIsConfirmed(t *testing.T) {
	what, limit := durable.Pausable{Kind: "k"}, durable.Limit{Kind: "k", Running: 1}
	pause := func(q *durable.Queue) error { return q.Pause(t.Context(), what) }
	pauseFor := func(q *durable.Queue) error { return q.PauseFor(t.Context(), what, time.Hour) }
	resume := func(q *durable.Queue) error { return q.Resume(t.Context(), what) }
	set := func(q *durable.Queue) error { return q.SetLimit(t.Context(), "l", limit) }
	del := func(q *durable.Queue) error { return q.DeleteLimit(t.Context(), "l") }
	schedule := func(q *durable.Queue) error { return q.SetSchedule(t.Context(), "s", "@daily", durable.Job{Kind: "k"}) }
	other := func(q *durable.Queue) error {
		return q.SetSchedule(t.Context(), "s", "@hourly", durable.Job{Kind: "k"})
	}
	pauseSchedule := func(q *durable.Queue) error { return q.PauseSchedule(t.Context(), "s") }
	resumeSchedule := func(q *durable.Queue) error { return q.ResumeSchedule(t.Context(), "s") }
	deleteSchedule := func(q *durable.Queue) error { return q.DeleteSchedule(t.Context(), "s") }
	runNow := func(q *durable.Queue) error { _, err := q.RunNow(t.Context(), "s"); return err }
	type steps = []func(*durable.Queue) error
	for name, c := range map[string]struct {
		old, since steps // by another process
		call       func(*durable.Queue) error
		paused     int
		limits     int
		spec       string // of a schedule
		stopped    bool   // it is paused
	}{
		"Pause":                   {old: steps{pause}, since: steps{resume}, call: pause, paused: 1},
		"Pause of a longer one":   {old: steps{pause}, since: steps{resume}, call: pauseFor, paused: 1},
		"Resume":                  {since: steps{pause}, call: resume},
		"Resume of one that was":  {old: steps{pause, resume}, since: steps{pause}, call: resume},
		"SetLimit":                {old: steps{set}, since: steps{del}, call: set, limits: 1},
		"DeleteLimit":             {since: steps{set}, call: del},
		"SetSchedule":             {old: steps{schedule}, since: steps{other}, call: schedule, spec: "@daily"},
		"SetSchedule of a paused": {old: steps{schedule, pauseSchedule}, since: steps{other}, call: schedule, spec: "@daily", stopped: true},
		"PauseSchedule":           {old: steps{schedule, pauseSchedule}, since: steps{resumeSchedule}, call: pauseSchedule, spec: "@daily", stopped: true},
		"PauseSchedule of none":   {since: steps{schedule}, call: pauseSchedule, spec: "@daily", stopped: true},
		"PauseSchedule of a new":  {old: steps{other, deleteSchedule}, since: steps{schedule}, call: pauseSchedule, spec: "@daily", stopped: true},
		"ResumeSchedule":          {since: steps{schedule, pauseSchedule}, call: resumeSchedule, spec: "@daily"},
		"DeleteSchedule":          {since: steps{schedule}, call: deleteSchedule},
		"RunNow":                  {since: steps{schedule}, call: runNow, spec: "@daily"},
	} {
		t.Run(name, func(t *testing.T) {
			store := memory.New(memory.NewClock(time.Now()))
			e := &stale{Engine: store.Open()}
			q, err := durable.Open(t.Context(), e)
			require.NoError(t, err)
			defer q.Close()
			another, err := durable.Open(t.Context(), store.Open())
			require.NoError(t, err)
			defer another.Close()
			for _, step := range c.old {
				require.NoError(t, step(another))
			}
			e.remember(t)
			for _, step := range c.since {
				require.NoError(t, step(another))
			}
			require.NoError(t, c.call(q))
			f, err := e.Engine.FlowControl(t.Context())
			require.NoError(t, err)
			require.Len(t, f.Pauses(), c.paused)
			require.Len(t, f.Limits(), c.limits)
			for s, err := range another.Schedules(t.Context()) {
				require.NoError(t, err)
				require.Equal(t, c.spec, s.Spec)
				require.Equal(t, c.stopped, s.Paused)
				c.spec = ""
			}
			require.Empty(t, c.spec, "there is no schedule")
		})
	}
}
