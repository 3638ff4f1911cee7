package timingwheel_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// Drive counts what is left of a call in which a task panicked, also if nothing else comes.
func TestDriveCountsWhatAPanicHasLeft(t *testing.T) {
	w := manual()
	defer w.Stop()
	w.Schedule(0, func() { panic("the task's own") })
	w.Schedule(0, noop)
	w.Schedule(0, noop)
	require.PanicsWithValue(t, "the task's own", func() { w.Drive(0) })
	require.Equal(t, 2, w.Drive(0))
	require.Zero(t, w.Drive(0))
}

// If the caller of Drive recovers a panic, no other task is lost: what came due together
// with that task runs in the next call, and Shutdown finds that all have ended.
func TestDriveAfterAPanic(t *testing.T) {
	for name, executor := range map[string]timingwheel.Executor{
		"inline":      timingwheel.Inline(),
		"caller runs": closedPool(fullCallerRuns),
		"discard":     closedPool(fullDiscard(func(task func()) { task() })),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := manual(timingwheel.WithExecutor(executor))
				const tasks = 2 * engine.SliceLen
				ran := 0
				for i := range tasks {
					w.Schedule(time.Millisecond, func() {
						if ran++; i%100 == 50 {
							panic("the task's own")
						}
					})
				}
				time.Sleep(time.Millisecond)
				for i := range tasks / 100 {
					require.PanicsWithValue(t, "the task's own", func() { w.Drive(0) })
					require.Equal(t, 100*i+51, ran)
				}
				w.Drive(0)
				require.Equal(t, tasks, ran)
				require.Zero(t, w.Stats().Running)
				require.NoError(t, w.Shutdown(t.Context()))
			})
		})
	}
}

// closedPool returns a Pool that is full for ever.
func closedPool(full whenFull) *testPool {
	p := newPool(1, 0, full)
	p.Close()
	return p
}

// Driving by hand holds nothing back, because there may be no other call.
func TestDrivingByHandHoldsNothingBack(t *testing.T) {
	ran := make(chan struct{})
	w := timingwheel.New(timingwheel.WithManualDrive())
	defer w.Stop()
	w.Schedule(0, func() { ran <- struct{}{} })
	require.Equal(t, 1, w.Drive(0))
	<-ran
	w = timingwheel.New(timingwheel.WithManualClock(time.Now()))
	defer w.Stop()
	w.Schedule(time.Second, func() { ran <- struct{}{} })
	require.Equal(t, 1, w.Advance(time.Second))
	<-ran
}
