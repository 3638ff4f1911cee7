package engine_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/internal/parking"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// The tests in this file look inside a TimingWheel.

func inside(w *timingwheel.TimingWheel) *engine.Engine { return (*engine.Engine)(w) }

func mustJob(t *testing.T) func(j *timingwheel.Job, err error) *timingwheel.Job {
	return func(j *timingwheel.Job, err error) *timingwheel.Job {
		t.Helper()
		require.NoError(t, err)
		return j
	}
}

// silentOp is a parked operation that leaves nothing to do.
type silentOp struct{}

func (silentOp) Expire(parking.Held) (leave, done func())             { return nil, nil }
func (silentOp) Stop(parking.Held) (rest func(), by parking.Executor) { return nil, nil }

// Between the moment in which a wheel is closed and that in which the pass comes to a task of
// the wheel's own, the task may be used and may fire. It does so once.
func TestOwnTasksBetweenTheMarkAndThePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(timingwheel.WithShards(2))
		start := time.Now()
		later, stopped, soon, kept := w.NewTimer(time.Minute), w.NewTimer(time.Minute), w.NewTimer(time.Second), w.NewTimer(time.Hour)
		ticker, ended := w.NewTicker(time.Second), w.NewTicker(time.Second)
		ctx, cancel := w.WithTimeout(t.Context(), time.Second)
		defer cancel()
		canceled, cancel := w.WithTimeout(t.Context(), time.Second)
		job := mustJob(t)(w.ScheduleAtFixedRate(time.Second, time.Second, func() { t.Error("ran") }))
		other := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { t.Error("ran") }))
		last := mustJob(t)(w.ScheduleAtFixedRate(time.Hour, time.Hour, func() { t.Error("ran") }))

		inside(w).MarkClosed()
		require.True(t, later.Reset(2*time.Minute))
		at, ok := later.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(2*time.Minute), at)
		at, ok = kept.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(time.Hour), at)
		require.True(t, stopped.Stop())
		ended.Stop()
		cancel()
		require.True(t, other.Stop())
		require.ErrorIs(t, other.Err(), timingwheel.ErrCanceled)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, start.Add(time.Second), <-soon.C)
		require.Equal(t, start.Add(time.Second), <-ticker.C)
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
		require.ErrorIs(t, canceled.Err(), context.Canceled)
		require.ErrorIs(t, job.Err(), timingwheel.ErrStopped)
		require.NoError(t, last.Err())
		require.NoError(t, engine.Verify(inside(w)))

		require.NoError(t, w.Shutdown(t.Context()))
		require.ErrorIs(t, last.Err(), timingwheel.ErrStopped)
		at, ok = kept.Deadline()
		require.True(t, ok)
		require.Equal(t, start.Add(time.Hour), at)
		require.Equal(t, start.Add(2*time.Minute), <-later.C)
		require.Equal(t, start.Add(time.Hour), <-kept.C)
		time.Sleep(time.Hour)
		for _, c := range []<-chan time.Time{later.C, stopped.C, soon.C, kept.C, ticker.C, ended.C} {
			require.Empty(t, c)
		}
	})
}

// Every call that adds lets others run first if the driver is late, and none does so if it is
// not. On one processor, a goroutine that was just started tells: it runs during the call
// only if the caller yields.
func TestEveryAddYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 100
	for name, add := range map[string]func(w *timingwheel.TimingWheel){
		"AfterFunc":  func(w *timingwheel.TimingWheel) { w.AfterFunc(time.Hour, func() {}) },
		"NewTimer":   func(w *timingwheel.TimingWheel) { w.NewTimer(time.Hour) },
		"Schedule":   func(w *timingwheel.TimingWheel) { w.Schedule(time.Hour, func() {}) },
		"ScheduleAt": func(w *timingwheel.TimingWheel) { w.ScheduleAt(time.Now().Add(time.Hour), func() {}) },
		"ScheduleBatch": func(w *timingwheel.TimingWheel) {
			w.ScheduleBatch(nil, []timingwheel.Delayed{{After: time.Hour, Func: func() {}}})
		},
		"Keyed": on(timingwheel.NewKeyed[int], func(k *timingwheel.Keyed[int]) { k.Schedule(k.Len(), time.Hour, func() {}) }),
		"Group": on(timingwheel.NewGroup, func(g *timingwheel.Group) { g.Schedule(time.Hour, func() {}) }),
		"Submit": func(w *timingwheel.TimingWheel) {
			timingwheel.Submit(w, time.Hour, func(context.Context) (int, error) { return 0, nil })
		},
		"NewTicker": func(w *timingwheel.TimingWheel) { w.NewTicker(time.Hour) },
		"Park": func(w *timingwheel.TimingWheel) { // as package purgatory does
			e, now := inside(w).Here()
			e.Park(engine.Delay{Now: now, D: time.Hour}, silentOp{})
		},
		"WithTimeout": func(w *timingwheel.TimingWheel) { w.WithTimeout(context.Background(), time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w := timingwheel.New(timingwheel.WithManualDrive(), timingwheel.WithShards(1))
			defer w.Stop()
			yields := func(lateAfter time.Duration) (n int) {
				inside(w).SetLateAfter(lateAfter)
				for range rounds {
					var ran atomic.Bool
					go ran.Store(true)
					add(w)
					if ran.Load() {
						n++
					}
					for !ran.Load() {
						runtime.Gosched()
					}
				}
				return n
			}
			require.Greater(t, yields(0), rounds/2, "the driver is late")
			require.Less(t, yields(time.Hour), rounds/2, "it is not") // it may be interrupted
			require.Equal(t, 2*rounds, w.Len())
		})
	}
}

// on calls add with a thing that is made once for each wheel. Making it yields, too.
func on[T any](make func(w *timingwheel.TimingWheel) T, add func(to T)) func(w *timingwheel.TimingWheel) {
	var last *timingwheel.TimingWheel
	var to T
	return func(w *timingwheel.TimingWheel) {
		if w != last {
			last, to = w, make(w)
		}
		add(to)
	}
}
