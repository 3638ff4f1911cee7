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
	start := time.Now()
	const resumes = 30
	for range resumes {
		wallclocktest.Notify(t)
		<-e.reads
	}
	require.Less(t, int(time.Since(start)/(500*time.Millisecond)), resumes/2, "half of the reads or more were at a resume")
	require.NoError(t, q.Close())
	for len(wallclocktest.Notices(t)) > 0 {
		time.Sleep(time.Millisecond)
	}
}
