package timingwheel_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// logged returns a logger, and what it has logged, a line each.
func logged() (*slog.Logger, func() []string) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, nil)), func() []string {
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
}

// A task that holds the driver up makes others late, which is logged once until the
// driver has caught up.
func TestLateDriverIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logged()
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		for range 2 {
			w.AfterFunc(time.Second, func() { time.Sleep(5 * time.Second) })
			w.AfterFunc(2*time.Second, func() {})
			w.AfterFunc(3*time.Second, func() {})
			w.AfterFunc(10*time.Second, func() {})
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		require.Len(t, lines(), 2)
		for _, line := range lines() {
			require.Contains(t, line, `level=WARN msg="timingwheel: driver is late" late=4s`)
		}
	})
}

func TestPanicIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logged()
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithPanicHandler(func(any, []byte) {}))
		defer w.Stop()
		w.AfterFunc(time.Second, panickingTask)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, lines(), 1)
		require.Contains(t, lines()[0], `level=ERROR msg="timingwheel: task panicked" panic="the task's own"`)
		require.Contains(t, lines()[0], "panickingTask")
	})
}

func TestNilLoggerPanics(t *testing.T) {
	require.PanicsWithValue(t, "timingwheel: WithLogger(nil)", func() { timingwheel.New(timingwheel.WithLogger(nil)) })
}

// badHandler calls a function with each message.
type badHandler struct {
	slog.Handler
	handle func()
}

func (badHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h badHandler) Handle(context.Context, slog.Record) error {
	h.handle()
	return nil
}

// The logger may do anything on the driver's goroutine without harm to a task: end that
// goroutine, or panic where the caller of Drive recovers.
func TestLoggerThatMisbehavesOnTheDriver(t *testing.T) {
	late := func(w *timingwheel.TimingWheel) (ran *[]int) {
		ran = new([]int)
		w.AfterFunc(time.Second, func() { time.Sleep(5 * time.Second) })
		for i := range 300 {
			w.AfterFunc(2*time.Second, func() { *ran = append(*ran, i) })
		}
		return ran
	}
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		l := slog.New(badHandler{handle: func() { calls++; runtime.Goexit() }})
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1))
		ran := late(w)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, *ran, 300)
		require.Equal(t, 1, calls)
		require.Zero(t, w.Stats().Running)
		w.Stop()
	})
	synctest.Test(t, func(t *testing.T) {
		l := slog.New(badHandler{handle: func() { panic("the logger's own") }})
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1),
			timingwheel.WithManualDrive(), timingwheel.WithWheelSize(4096))
		ran := late(w)
		require.Equal(t, 1, w.Drive(time.Hour))
		require.PanicsWithValue(t, "the logger's own", func() { w.Drive(time.Hour) })
		require.Empty(t, *ran)
		require.Equal(t, 300, w.Drive(0))
		require.Len(t, *ran, 300)
		w.Stop()
	})
}
