package enginetest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

func errorIs(err, target error) bool { return errors.Is(err, target) }

// A job runs once, at its time, with what was stored, and is gone.
func insertRunGone(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	job := durable.Job{Kind: kind, Payload: []byte("p\x00\xff"), After: 500 * time.Millisecond, MaxAttempts: 3}
	added := time.Now()
	ref := r.add(job)[0]
	info, err := r.Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, ref, info.Ref)
	require.Equal(t, job.Payload, info.Job.Payload)
	require.Equal(t, 3, info.Job.MaxAttempts)
	require.Equal(t, durable.Waiting, info.State)
	require.WithinDuration(t, added.Add(job.After), info.Due, 5*time.Second)
	run := r.awaitRuns(1)[0]
	require.Equal(t, ref, run.Ref)
	require.Equal(t, 1, run.Number)
	require.Equal(t, job.Payload, run.Job.Payload)
	require.Equal(t, info.Due.UnixMicro(), run.Due.UnixMicro())
	r.awaitGone(ref)
	time.Sleep(lease + lease/2)
	require.Len(t, r.ran(), 1)
}
