package durable_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/internal/wallclock/wallclocktest"
)

// timed is an engine that says when its clock is read.
type timed struct {
	driver.Engine
	reads chan struct{}
}

func (e timed) Now(ctx context.Context) (time.Time, time.Duration, error) {
	select {
	case e.reads <- struct{}{}:
	default:
	}
	return e.Engine.Now(ctx)
}

// The engine's clock is read when this machine resumes, and not only every half second.
func TestClockIsReadAtAResume(t *testing.T) {
	e := timed{enginetest.NewMemory().Open(t), make(chan struct{}, 1)}
	q, err := durable.Open(t.Context(), e)
	require.NoError(t, err)
	for len(wallclocktest.Notices(t)) == 0 { // until the Queue watches
		time.Sleep(time.Millisecond)
	}
	const resumes = 10
	for try := 1; ; try++ { // a busy machine may be late now and then
		start := time.Now()
		for range resumes {
			wallclocktest.Notify(t)
			<-e.reads
		}
		took := time.Since(start)
		if took < resumes*500*time.Millisecond/2 { // half of the reads or more were at a resume
			break
		}
		require.Less(t, try, 10, "%d reads took %v", resumes, took)
	}
	require.NoError(t, q.Close())
	for len(wallclocktest.Notices(t)) > 0 {
		time.Sleep(time.Millisecond)
	}
}
