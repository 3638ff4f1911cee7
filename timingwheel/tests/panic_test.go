package timingwheel_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// panics is a handler that keeps what it was called with.
type panics struct {
	mu     sync.Mutex
	values []any
	stacks []string
}

func (p *panics) handle(value any, stack []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.values = append(p.values, value)
	p.stacks = append(p.stacks, string(stack))
}

func (p *panics) take() (values []any, stacks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	values, stacks, p.values, p.stacks = p.values, p.stacks, nil, nil
	return values, stacks
}

// With a handler, tasks that panic and tasks that end their goroutine harm no other,
// whatever runs them, and the handler sees where they were.
func TestPanicHandlerInEveryExecutor(t *testing.T) {
	for name, executor := range executors() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p panics
				var ran atomic.Int64
				w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithPanicHandler(p.handle))
				const tasks = 900 // in batches of some hundred
				for i := range tasks {
					w.Schedule(time.Duration(i/300)*time.Millisecond, func() {
						ran.Add(1)
						switch i % 3 {
						case 0:
							panickingTask()
						case 1:
							runtime.Goexit()
						}
					})
				}
				job, err := w.ScheduleAtFixedRate(0, time.Hour, panickingTask)
				require.NoError(t, err)
				keyed := timingwheel.NewKeyed[int](w)
				_, err = keyed.Schedule(1, 0, panickingTask)
				require.NoError(t, err)
				time.Sleep(time.Second)
				synctest.Wait()

				require.EqualValues(t, tasks, ran.Load())
				if !job.Stop() { // it ended by its panic; otherwise its run was discarded
					<-job.Done()
					require.ErrorContains(t, job.Err(), "the task's own")
					var failure *timingwheel.PanicError
					require.ErrorAs(t, job.Err(), &failure)
					require.Contains(t, string(failure.Stack), "panickingTask")
				} else {
					require.Contains(t, name, "discard")
				}
				require.Zero(t, keyed.Len())
				values, stacks := p.take()
				require.Len(t, values, tasks/3+2)
				for i := range values {
					require.Equal(t, "the task's own", values[i])
					require.Contains(t, stacks[i], "panickingTask")
				}
				st := w.Stats()
				require.EqualValues(t, tasks/3+2, st.Panicked)
				require.Zero(t, st.Running)

				w.Schedule(0, func() { ran.Add(1) })
				synctest.Wait()
				require.EqualValues(t, tasks+1, ran.Load(), "the wheel goes on")
				require.NoError(t, w.Shutdown(t.Context()))
			})
		})
	}
}

// A panic in the function of FullDiscard is treated like a panic in a task. It harms no other task,
// and all tasks are counted.
func TestDiscardThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p panics
		n := 0
		executor := closed(pool.New(1, 0, pool.Discard(func(func()) {
			switch n++; n % 3 {
			case 0:
				panickingTask()
			case 1:
				runtime.Goexit()
			}
		})))
		w := timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithPanicHandler(p.handle))
		for range 900 {
			w.Schedule(time.Millisecond, func() { t.Error("ran") })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		values, stacks := p.take()
		require.Len(t, values, 300)
		require.Contains(t, stacks[0], "panickingTask")
		st := w.Stats()
		require.EqualValues(t, 900, st.Discarded)
		require.EqualValues(t, 900, st.Expired)
		require.EqualValues(t, 300, st.Panicked)
		require.Zero(t, st.Running)
		require.Empty(t, w.Stop())
	})
}

// The panic of a Future becomes its own error, and is counted all the same.
func TestPanicOfAFutureIsCounted(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	future, err := timingwheel.Submit(w, 0, func(context.Context) (int, error) { panic("the task's own") })
	require.NoError(t, err)
	_, err = future.Wait(t.Context())
	require.ErrorContains(t, err, "the task's own")
	require.EqualValues(t, 1, w.Stats().Panicked)
}

// The handler may do what a task may: call the wheel, and end its goroutine.
func TestPanicHandlerThatEndsItsGoroutine(t *testing.T) {
	for name, executor := range executors() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w *timingwheel.TimingWheel
				var again atomic.Int64
				w = timingwheel.New(timingwheel.WithExecutor(executor), timingwheel.WithPanicHandler(func(_ any, stack []byte) {
					if !strings.Contains(string(stack), "panickingTask") {
						t.Error("the stack is another's")
					}
					w.Schedule(time.Millisecond, func() { again.Add(1) })
					runtime.Goexit()
				}))
				for range 100 {
					w.Schedule(time.Millisecond, panickingTask)
				}
				require.NoError(t, shutdownAfter(t, w, time.Second))
				require.EqualValues(t, 100, again.Load())
			})
		})
	}
}

func shutdownAfter(t *testing.T, w *timingwheel.TimingWheel, d time.Duration) error {
	time.Sleep(d)
	return w.Shutdown(t.Context())
}
