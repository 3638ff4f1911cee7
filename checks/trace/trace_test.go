package trace

import (
	"bytes"
	"context"
	"errors"
	"io"
	rt "runtime/trace"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/exp/trace"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// A task's region lasts as long as the task: what the task logs is inside of it. The flush
// that has found the task is over by then.
func TestRegionsLastAsLongAsTheTask(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{"goroutines": timingwheel.Goroutines(), "inline": timingwheel.Inline()} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, rt.Start(&b))
			w := timingwheel.New(timingwheel.WithTrace("sessions"), timingwheel.WithExecutor(executor), timingwheel.WithWheelSize(65536)) // one level: an entry that cascades has two flushes
			w.Schedule(time.Millisecond, func() { rt.Log(context.Background(), "inside", "") })
			require.NoError(t, w.Shutdown(t.Context())) // waits for the task
			rt.Stop()
			require.Equal(t, []string{
				"sessions: flush", "end of sessions: flush", "sessions: task", "inside", "end of sessions: task",
			}, story(t, &b))
		})
	}
}

// story is what a trace has of regions and logs, in the order of time.
func story(t *testing.T, from io.Reader) (events []string) {
	r, err := trace.NewReader(from)
	require.NoError(t, err)
	for {
		e, err := r.ReadEvent()
		if errors.Is(err, io.EOF) {
			return events
		}
		require.NoError(t, err)
		switch e.Kind() {
		case trace.EventRegionBegin:
			events = append(events, e.Region().Type)
		case trace.EventRegionEnd:
			events = append(events, "end of "+e.Region().Type)
		case trace.EventLog:
			events = append(events, e.Log().Category)
		}
	}
}
