package timingwheel_test

import (
	"bytes"
	"context"
	"io"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// ownStanza returns what a goroutine profile says of the goroutine that calls it: its
// labels and its stack.
func ownStanza(t *testing.T) string {
	var b strings.Builder
	pprof.Lookup("goroutine").WriteTo(&b, 1)
	for stanza := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stanza, "pprof.writeGoroutine+") {
			return stanza
		}
	}
	t.Error("the profile does not show who takes it")
	return ""
}

const sessions = `"timingwheel":"sessions"`

// A goroutine profile that is taken inside a task shows the wheel's name at the task.
func TestTraceLabels(t *testing.T) {
	for name, executor := range executors() {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithTrace("sessions"), timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
			defer w.Stop()
			for range 3 { // the second time on a goroutine that may have run another
				inside := make(chan string)
				w.Schedule(0, func() { inside <- ownStanza(t) })
				require.Contains(t, <-inside, sessions)
			}
		})
	}
}

// Labels end with the task, also on a goroutine that is not ours.
func TestTraceLabelsEndWithTheTask(t *testing.T) {
	var inside, after string
	var wg sync.WaitGroup
	wg.Add(1)
	w := timingwheel.New(timingwheel.WithTrace("sessions"), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) {
		go func() {
			defer wg.Done()
			task()
			after = ownStanza(t)
		}()
	})))
	defer w.Stop()
	w.Schedule(0, func() { inside = ownStanza(t) })
	wg.Wait()
	require.Contains(t, inside, sessions)
	require.NotContains(t, after, sessions)
}

// executorThatLooks is an executor that says what the labels of its caller are.
type executorThatLooks struct {
	t    *testing.T
	seen string
}

func (e *executorThatLooks) Execute(tasks []func()) {
	e.seen = ownStanza(e.t)
	for _, task := range tasks {
		task()
	}
}

// The caller of Drive is the driver until Drive returns.
func TestTraceLabelsUnderManualDrive(t *testing.T) {
	looks := &executorThatLooks{t: t}
	for _, executor := range []timingwheel.Executor{timingwheel.Inline(), looks} {
		w := timingwheel.New(timingwheel.WithTrace("sessions"), timingwheel.WithManualDrive(), timingwheel.WithExecutor(executor))
		inside := ""
		w.Schedule(0, func() { inside = ownStanza(t) })
		require.Equal(t, 1, w.Drive(0))
		require.Contains(t, inside, sessions)
		require.NotContains(t, ownStanza(t), sessions)
		w.Stop()
	}
	require.Contains(t, looks.seen, sessions)
}

// A trace has the regions by name. In every format of a trace, strings are there as they
// are.
func TestTraceRegions(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, trace.Start(&b))
	w := timingwheel.New(timingwheel.WithTrace("sessions"))
	ran := make(chan bool)
	w.Schedule(time.Millisecond, func() {
		trace.Log(context.Background(), "inside", "the task")
		ran <- true
	})
	<-ran
	w.Stop()
	trace.Stop()
	out, err := io.ReadAll(&b)
	require.NoError(t, err)
	require.Contains(t, string(out), "sessions: task")
	require.Contains(t, string(out), "sessions: flush")
}
