package timingwheel_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

var errFull = errors.New("the pool is full")

// submitThatRefuses returns an executor that takes every n-th task, and none if n is 0.
func submitThatRefuses(n int64) timingwheel.SubmitFunc {
	var calls atomic.Int64
	return func(task func()) error {
		if n > 0 && calls.Add(1)%n == 0 {
			go task()
			return nil
		}
		return errFull
	}
}

// Whatever has a function for the executor goes on if the executor refuses it.
func TestRefusedFunctionsRun(t *testing.T) {
	for _, takes := range []int64{0, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithExecutor(submitThatRefuses(takes)))
			var ran, expired atomic.Int64
			count := func() { ran.Add(1) }
			for range 1000 { // more than a slice
				w.Schedule(time.Millisecond, count)
			}
			job := mustJob(t)(w.ScheduleAtFixedRate(time.Second, time.Second, count))
			future, err := timingwheel.Submit(w, time.Second, func(context.Context) (int, error) { return 7, nil })
			require.NoError(t, err)
			keyed, group, watches := timingwheel.NewKeyed[int](w), timingwheel.NewGroup(w), purgatory.New[string](w)
			keyed.Schedule(1, time.Second, count)
			group.Schedule(time.Second, count)
			watches.Park(time.Second, func() bool { return false }, func(o purgatory.Outcome) {
				if o == purgatory.Expired {
					expired.Add(1)
				}
			}, "key")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.EqualValues(t, 1000+10+2, ran.Load())
			require.EqualValues(t, 1, expired.Load())
			require.EqualValues(t, 10, job.Runs())
			value, err := future.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, 7, value)
			require.Zero(t, keyed.Len()+group.Len())
			require.NoError(t, group.StopWait(t.Context()))

			st := w.Stats()
			requireAccounts(t, st)
			require.EqualValues(t, 1, st.Pending, "the job's next run")
			require.Zero(t, st.Running)
			handed := int64(1000 + 10 + 4) // a parked operation is one more entry, for its function
			require.Equal(t, handed+1, st.Expired)
			if refused := handed; takes == 0 {
				require.Equal(t, refused, st.Refused)
			} else {
				require.Equal(t, refused-handed/takes, st.Refused)
			}
			require.NoError(t, w.Shutdown(t.Context()))
			require.Equal(t, timingwheel.ErrStopped, job.Err())
			require.Empty(t, w.Stop())
		})
	}
}

// A refused function that blocks holds up neither the driver nor another one.
func TestRefusedFunctionsBlockNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(submitThatRefuses(0)), timingwheel.WithShards(1))
		release := make(chan struct{})
		var ran atomic.Int64
		for i := range 20 {
			w.Schedule(time.Duration(1+i/10)*time.Millisecond, func() { ran.Add(1); <-release })
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 20, ran.Load())
		require.Zero(t, w.Stats().HeldUp)
		require.EqualValues(t, 20, w.Stats().Running)
		close(release)
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

// A panic in a refused function goes to the handler.
func TestRefusedFunctionThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var caught atomic.Int64
		w := timingwheel.New(timingwheel.WithExecutor(submitThatRefuses(0)), timingwheel.WithPanicHandler(func(any, []byte) { caught.Add(1) }))
		w.Schedule(time.Second, func() { panic("the task's") })
		require.NoError(t, w.Shutdown(t.Context()))
		require.EqualValues(t, 1, caught.Load())
		require.EqualValues(t, 1, w.Stats().Panicked)
	})
}

// A task runs once, whatever an executor says and does with it.
func TestExecutorsThatLie(t *testing.T) {
	var kept []func()
	each := func(f func(task func())) timingwheel.Executor {
		return batches(func(tasks []func()) {
			for _, task := range tasks {
				f(task)
			}
		})
	}
	for name, x := range map[string]timingwheel.Executor{
		"runs and refuses":      timingwheel.SubmitFunc(func(task func()) error { task(); return errFull }),
		"begins and refuses":    timingwheel.SubmitFunc(func(task func()) error { go task(); return errFull }),
		"keeps and refuses":     timingwheel.SubmitFunc(func(task func()) error { kept = append(kept, task); return errFull }),
		"runs twice":            timingwheel.SubmitFunc(func(task func()) error { task(); task(); return nil }),
		"function, twice":       timingwheel.ExecutorFunc(func(task func()) { task(); go task() }),
		"ends the goroutine":    timingwheel.SubmitFunc(func(task func()) error { runtime.Goexit(); return nil }),
		"function, Goexit":      timingwheel.ExecutorFunc(func(task func()) { runtime.Goexit() }),
		"runs, then Goexit":     timingwheel.ExecutorFunc(func(task func()) { task(); runtime.Goexit() }),
		"slices, Goexit":        batches(func(tasks []func()) { tasks[0](); runtime.Goexit() }),
		"slices, twice":         each(func(task func()) { task(); task() }),
		"slices, keep and exit": batches(func(tasks []func()) { kept = append(kept, tasks...); runtime.Goexit() }),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kept = nil
				w := timingwheel.New(timingwheel.WithExecutor(x), timingwheel.WithShards(1))
				var ran [600]atomic.Int64
				for i := range ran {
					w.Schedule(time.Duration(1+i/300)*time.Millisecond, func() { ran[i].Add(1) })
				}
				require.NoError(t, w.Shutdown(t.Context()))
				for _, task := range kept {
					task()
				}
				synctest.Wait()
				for i := range ran {
					require.EqualValues(t, 1, ran[i].Load(), i)
				}
				require.Zero(t, w.Stats().Running)
				require.Empty(t, w.Stop())
			})
		})
	}
}

// batches is an executor that gets the tasks of a slice together.
type batches func(tasks []func())

func (f batches) Execute(tasks []func()) { f(tasks) }

// An executor that panics loses nothing, if the caller of Advance recovers.
func TestExecutorsThatPanic(t *testing.T) {
	for name, make := range map[string]func(broken *bool) timingwheel.Executor{
		"SubmitFunc": func(broken *bool) timingwheel.Executor {
			return timingwheel.SubmitFunc(func(task func()) error {
				if *broken {
					panic("send on closed channel")
				}
				task()
				return nil
			})
		},
		"ExecutorFunc": func(broken *bool) timingwheel.Executor {
			return timingwheel.ExecutorFunc(func(task func()) {
				task()
				if *broken {
					panic("send on closed channel")
				}
			})
		},
		"slices": func(broken *bool) timingwheel.Executor {
			return batches(func(tasks []func()) {
				for i, task := range tasks {
					if *broken && i == len(tasks)/2 {
						panic("send on closed channel")
					}
					task()
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			broken := true
			w := virtual(timingwheel.WithExecutor(make(&broken)))
			var ran atomic.Int64
			for range 500 {
				w.Schedule(time.Second, func() { ran.Add(1) })
			}
			require.PanicsWithValue(t, "send on closed channel", func() { w.Advance(time.Minute) })
			broken = false
			w.Advance(time.Minute)
			require.NoError(t, w.Shutdown(t.Context()))
			require.EqualValues(t, 500, ran.Load())
		})
	}
}

// The logger hears of refusals at once, and then once a minute while they go on.
func TestRefusalsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := make(chan slog.Record, 100)
		w := timingwheel.New(timingwheel.WithExecutor(submitThatRefuses(0)), timingwheel.WithLogger(slog.New(recordHandler{records})))
		job := mustJob(t)(w.ScheduleAtFixedRate(time.Second, time.Second, func() {}))
		time.Sleep(150 * time.Second)
		synctest.Wait()
		job.Stop()
		for _, refused := range []int64{1, 61, 121} {
			r := <-records
			require.Equal(t, "timingwheel: the executor has refused a function", r.Message)
			require.Equal(t, slog.LevelWarn, r.Level)
			found := map[string]slog.Value{}
			r.Attrs(func(a slog.Attr) bool { found[a.Key] = a.Value; return true })
			require.Equal(t, errFull, found["error"].Any())
			require.Equal(t, refused, found["refused"].Int64())
		}
		require.Empty(t, records)
		require.NoError(t, w.Shutdown(t.Context()))
	})
}

type recordHandler struct{ records chan slog.Record }

func (recordHandler) Enabled(context.Context, slog.Level) bool        { return true }
func (h recordHandler) Handle(_ context.Context, r slog.Record) error { h.records <- r; return nil }
func (h recordHandler) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h recordHandler) WithGroup(string) slog.Handler                 { return h }

// A SubmitFunc inside an executor of a user's own loses nothing either.
func TestSubmitFuncExecutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(struct{ timingwheel.Executor }{submitThatRefuses(2)}))
		var ran atomic.Int64
		for range 100 {
			w.Schedule(time.Second, func() { ran.Add(1) })
		}
		require.NoError(t, w.Shutdown(t.Context()))
		require.EqualValues(t, 100, ran.Load())
	})
}

// What a refusing executor has not been given can be canceled as ever, and Stop hands it back.
func TestCancelBesideRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithExecutor(submitThatRefuses(0)))
		timeout, err := w.Schedule(time.Second, mustNotRun)
		require.NoError(t, err)
		w.Schedule(time.Hour, mustNotRun)
		require.True(t, timeout.Cancel())
		time.Sleep(time.Minute)
		require.Len(t, w.Stop(), 1)
		requireAccounts(t, w.Stats())
	})
}
