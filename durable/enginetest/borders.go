package enginetest

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// scribble writes into all that a job shares with others if it is no copy.
func scribble(payloads [][]byte, meta map[string]string) {
	for _, p := range payloads {
		clear(p)
		_ = append(p, 0, 0, 0)
	}
	for name := range meta {
		meta[name] = "scribbled"
	}
	if meta != nil {
		meta["more"] = "scribbled"
	}
}

// What a handler writes into its job is stored nowhere: not for the next attempt, and not in the
// dead job. The same of a listing's job, and of what a caller writes after Add.
func handlerWrites(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return 0 }))
	seen := make(chan durable.Job, 10)
	signals := make(chan string, 10)
	r.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
		j := a.Job
		j.Payload, j.Meta = append([]byte{}, j.Payload...), maps.Clone(j.Meta)
		seen <- j
		signals <- string(a.Signal)
		scribble([][]byte{a.Job.Payload, a.Signal}, a.Job.Meta)
		return errTest
	})
	want := durable.Job{Kind: kind, Key: "k", Signals: true, Payload: []byte("payload"), Meta: map[string]string{"a": "b"}, MaxAttempts: 3, After: time.Hour}
	given := want
	given.Payload, given.Meta = []byte("payload"), maps.Clone(want.Meta)
	ref := r.add(given)[0]
	scribble([][]byte{given.Payload}, given.Meta)
	for range 2 {
		info := r.get(ref)
		sameJob(t, want, info.Job)
		scribble([][]byte{info.Job.Payload}, info.Job.Meta)
	}
	signal := []byte("signal")
	ok, err := r.Signal(within(t), "k", signal)
	require.True(t, ok, err)
	clear(signal)
	r.start()
	for range 3 {
		sameJob(t, want, <-seen)
		require.Equal(t, "signal", <-signals)
	}
	for range 2 {
		info := r.awaitDead(ref)
		sameJob(t, want, info.Job)
		require.Len(t, info.Errors, 3)
		require.Equal(t, errTest.Error(), info.Errors[0].Error)
		scribble([][]byte{info.Job.Payload}, info.Job.Meta)
		info.Errors[0].Error = "scribbled"
	}
	for _, info := range r.matching(durable.Filter{}) {
		sameJob(t, want, info.Job)
		scribble([][]byte{info.Job.Payload}, info.Job.Meta)
	}
	sameJob(t, want, r.get(ref).Job)
}

// The same of schedules: each occurrence has the job of the schedule.
func handlerWritesOccurrence(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	job := durable.Job{Kind: kind, Payload: []byte("payload"), Meta: map[string]string{"a": "b"}, MaxAttempts: 1}
	wrong := make(chan durable.Job, 100)
	r.handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) != "payload" || len(a.Job.Meta) != 1 || a.Job.Meta["a"] != "b" {
			wrong <- a.Job
		}
		scribble([][]byte{a.Job.Payload}, a.Job.Meta)
		if a.Occurrence.UnixMilli()/500%2 == 0 {
			return errors.New("fails")
		}
		return nil
	})
	given := job
	given.Payload, given.Meta = []byte("payload"), maps.Clone(job.Meta)
	r.schedule("x", "@every 500ms", given)
	scribble([][]byte{given.Payload}, given.Meta)
	r.start()
	r.awaitRuns(4)
	info := r.schedules()["x"]
	require.Equal(t, "payload", string(info.Job.Payload))
	require.Equal(t, job.Meta, info.Job.Meta)
	scribble([][]byte{info.Job.Payload}, info.Job.Meta)
	require.Equal(t, "payload", string(r.schedules()["x"].Job.Payload))
	r.awaitRuns(6)
	require.Empty(t, wrong)
}
