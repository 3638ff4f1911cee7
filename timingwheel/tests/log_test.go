package timingwheel_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// logged returns a logger, and what it has logged, a line each.
func logged() (*slog.Logger, func() []string) {
	b := new(lockedBuffer)
	return slog.New(slog.NewTextHandler(b, nil)), func() []string {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
}

// lockedBuffer is written by one goroutine while another one reads it.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// A process that was suspended finds that things are late, which is logged once until the
// driver has caught up. Here a clock that is set forward under the wheel stands for that.
func TestLateDriverIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logged()
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithManualDrive())
		defer w.Stop()
		for range 2 {
			w.AfterFunc(time.Second, func() {})
			w.AfterFunc(2*time.Second, func() {})
			w.AfterFunc(10*time.Second, func() {})
			time.Sleep(5 * time.Second)
			for range 3 {
				w.Drive(0)
			}
			for w.Len() > 0 {
				w.Drive(time.Minute)
			}
			synctest.Wait()
		}
		require.Len(t, lines(), 2)
		for _, line := range lines() {
			require.Contains(t, line, `level=WARN msg="timingwheel: the driver is late" late=4s`)
		}
	})
}

// fire makes n functions run on a wheel that is driven by hand, so late.
func fire(w *timingwheel.TimingWheel, n int, late time.Duration) {
	for range n {
		w.AfterFunc(0, func() {})
	}
	time.Sleep(late)
	for w.Len() > 0 {
		w.Drive(0)
	}
	synctest.Wait()
}

// The log has the lateness of the last minute beside that since the start: a bad start does
// not stay in it.
func TestLateDriverIsLoggedWithTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logged()
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithManualDrive())
		defer w.Stop()
		fire(w, 1000, 40*time.Second)
		for range 10 {
			time.Sleep(20 * time.Second)
			fire(w, 1000, 0)
		}
		fire(w, 1, 2*time.Second)
		require.Len(t, lines(), 2)
		require.Contains(t, lines()[0], "late=40s p99=40s p99_since_start=40s")
		require.Contains(t, lines()[1], "late=2s p99=1µs p99_since_start=40s")
	})
}

// An executor that holds the driver up is logged after 1, 10 and 60 s, with the function.
func TestHeldUpDriverIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logged()
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithExecutor(timingwheel.Inline()))
		defer w.Stop()
		w.AfterFunc(time.Second, func() { time.Sleep(900 * time.Millisecond) })
		w.AfterFunc(2*time.Second, longFunction)
		w.AfterFunc(3*time.Second, func() { time.Sleep(30 * time.Second) }) // waits for the one before
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, lines(), 5)
		for i, want := range []string{"for=1s", "for=10s", "for=1m0s", "for=1s", "for=10s"} {
			require.Contains(t, lines()[i], `level=WARN msg="timingwheel: the executor holds the driver up" `+want)
			if i < 3 {
				require.Contains(t, lines()[i], "longFunction")
			}
		}
	})
}

func longFunction() { time.Sleep(2 * time.Minute) }

// A panic goes to the handler, and is not reported a second time by the logger.
func TestPanicIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logged()
		panics := 0
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithPanicHandler(func(recovered any, stack []byte) {
			panics++
			require.Equal(t, "the task's own", recovered)
			require.Contains(t, string(stack), "panickingTask")
		}))
		defer w.Stop()
		w.AfterFunc(time.Second, panickingTask)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, panics)
		require.Equal(t, []string{""}, lines())
	})
}

func TestNilLoggerPanics(t *testing.T) {
	require.PanicsWithValue(t, "timingwheel: WithLogger(nil)", func() { timingwheel.New(timingwheel.WithLogger(nil)) })
}

// badHandler misbehaves with each record.
type badHandler struct {
	slog.Handler
	handle func()
}

func (badHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h badHandler) Handle(context.Context, slog.Record) error {
	h.handle()
	return nil
}

// A logger that blocks or ends its goroutine harms no task: it does not run on the driver.
func TestLoggerThatMisbehaves(t *testing.T) {
	for name, misbehave := range map[string]func(){"ends": runtime.Goexit, "blocks": func() { time.Sleep(time.Hour) }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				l := slog.New(badHandler{handle: func() { calls++; misbehave() }})
				w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1))
				ran := 0
				w.AfterFunc(time.Second, func() { time.Sleep(5 * time.Second) })
				for range 300 {
					w.AfterFunc(2*time.Second, func() { ran++ })
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, 300, ran)
				require.Equal(t, 1, calls)
				require.Zero(t, w.Stats().Running)
				w.Stop()
				time.Sleep(time.Hour)
			})
		})
	}
}

// The log speaks of one function. Many short ones that follow one another hold nobody up for
// long, however long they take together; and one after the other is warned about for itself.
func TestHeldUpLogSpeaksOfOneFunction(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{
		"inline": timingwheel.Inline(),
		"func":   timingwheel.ExecutorFunc(func(task func()) { task() }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, lines := logged()
				w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithExecutor(executor), timingwheel.WithShards(1))
				defer w.Stop()
				run := func(pauses ...time.Duration) (logged []string) {
					before := len(lines())
					for _, pause := range pauses {
						w.AfterFunc(time.Millisecond, func() { time.Sleep(pause) })
					}
					time.Sleep(time.Hour)
					synctest.Wait()
					return lines()[before:]
				}
				w.AfterFunc(time.Millisecond, longFunction)
				time.Sleep(time.Hour)
				require.Len(t, lines(), 3)

				var pile []time.Duration
				for range 3000 { // a minute and a half
					pile = append(pile, 30*time.Millisecond)
				}
				require.Empty(t, run(pile...))
				require.Empty(t, run(900*time.Millisecond, 900*time.Millisecond, 500*time.Millisecond))

				logged := run(append([]time.Duration{2 * time.Second, 20 * time.Second, 999 * time.Millisecond, 90 * time.Second, time.Second + 1}, pile...)...)
				require.Len(t, logged, 7)
				for i, want := range []string{"for=1s", "for=1s", "for=10s", "for=1s", "for=10s", "for=1m0s", "for=1s"} {
					require.Contains(t, logged[i], want)
				}
			})
		})
	}
}

// The last minute is at least half a minute.
func TestLateDriverIsLoggedWithWhatWasALittleBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, lines := logged()
		w := timingwheel.New(timingwheel.WithLogger(l), timingwheel.WithManualDrive())
		defer w.Stop()
		fire(w, 1000, 900*time.Millisecond)
		time.Sleep(45 * time.Second)
		fire(w, 1, 0)
		time.Sleep(5 * time.Second)
		fire(w, 1, 2*time.Second)
		require.Len(t, lines(), 1)
		require.NotContains(t, lines()[0], "p99=2s")
		require.NotContains(t, lines()[0], "p99=1µs")
	})
}
