package timingwheel_test

import (
	"bytes"
	"context"
	"fmt"
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

// A goroutine profile that is taken inside a task shows the wheel's name at the task and
// at the driver. After the task it shows the name nowhere else.
func TestTraceLabels(t *testing.T) {
	for name, executor := range executors() {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithTrace("sessions"), timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
			defer w.Stop()
			w.Schedule(time.Hour, func() {}) // keeps the driver there
			for range 3 {                    // the second time on a goroutine that may have run another
				profile := make(chan string)
				w.Schedule(0, func() {
					var b strings.Builder
					pprof.Lookup("goroutine").WriteTo(&b, 1)
					profile <- b.String()
				})
				labelled := 0
				for stanza := range strings.SplitSeq(<-profile, "\n\n") {
					if !strings.Contains(stanza, `"timingwheel":"sessions"`) {
						require.NotContains(t, stanza, "writeGoroutine")
						require.NotContains(t, stanza, ").drive(")
						continue
					}
					labelled++
				}
				require.Positive(t, labelled)
			}
		})
	}
}

// Labels end with the task, also on a goroutine that is not ours.
func TestTraceLabelsEndWithTheTask(t *testing.T) {
	var after string
	var wg sync.WaitGroup
	wg.Add(1)
	w := timingwheel.New(timingwheel.WithTrace("sessions"), timingwheel.WithExecutor(timingwheel.ExecutorFunc(func(task func()) {
		go func() {
			defer wg.Done()
			task()
			var b strings.Builder
			pprof.Lookup("goroutine").WriteTo(&b, 1)
			after = b.String()
		}()
	})))
	defer w.Stop()
	w.Schedule(0, func() {})
	wg.Wait()
	for stanza := range strings.SplitSeq(after, "\n\n") {
		if strings.Contains(stanza, "writeGoroutine") {
			require.NotContains(t, stanza, "sessions")
		}
	}
}

// The driver keeps its label, also if an executor runs tasks on it and clears theirs.
func TestTraceLabelsTheDriver(t *testing.T) {
	for name, executor := range executors() {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithTrace(name), timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
			defer w.Stop()
			w.Schedule(time.Hour, func() {})
			w.Schedule(0, func() {})
			label := fmt.Sprintf(`"timingwheel":%q`, name)
			require.Eventually(t, func() bool {
				var b strings.Builder
				pprof.Lookup("goroutine").WriteTo(&b, 1)
				for stanza := range strings.SplitSeq(b.String(), "\n\n") {
					if strings.Contains(stanza, label) && strings.Contains(stanza, ").drive+") {
						return w.Stats().Fired == 1 && w.Stats().Running == 0
					}
				}
				return false
			}, 30*time.Second, time.Millisecond)
		})
	}
}

// Under manual drive the caller of Drive is the driver until Drive returns.
func TestTraceLabelsUnderManualDrive(t *testing.T) {
	labelled := func() bool {
		var b strings.Builder
		pprof.Lookup("goroutine").WriteTo(&b, 1)
		for stanza := range strings.SplitSeq(b.String(), "\n\n") {
			if strings.Contains(stanza, "writeGoroutine") {
				return strings.Contains(stanza, `"timingwheel":"sessions"`)
			}
		}
		t.Fatal("no such goroutine")
		return false
	}
	w := timingwheel.New(timingwheel.WithTrace("sessions"), timingwheel.WithManualDrive(), timingwheel.WithExecutor(timingwheel.Inline()))
	defer w.Stop()
	inside := false
	w.Schedule(0, func() { inside = labelled() })
	require.Equal(t, 1, w.Drive(0))
	require.True(t, inside)
	require.False(t, labelled())
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
