package purgatory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// A parked operation expires on time while a user's function holds the driver up, or while a Pool
// is full: Wait returns, and the outcome is set. Its done runs on the executor, and waits for it
// like any function.
func TestExpiresWhateverTheExecutorDoes(t *testing.T) {
	for name, executor := range map[string]func() timingwheel.Executor{
		"inline":       timingwheel.Inline,
		"pool, wait":   func() timingwheel.Executor { return pool.New(1, 0, pool.Wait) },
		"pool, caller": func() timingwheel.Executor { return pool.New(1, 0, pool.CallerRuns) },
	} {
		for _, stopped := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := timingwheel.New(timingwheel.WithExecutor(executor()), timingwheel.WithMaxPending(100))
					p := purgatory.New[string](w)
					for range 2 { // the second is run by the driver where callers run
						w.Schedule(time.Millisecond, func() { time.Sleep(time.Minute) })
					}
					start := time.Now()
					require.ErrorIs(t, p.Wait(t.Context(), time.Second, nil, "k"), purgatory.ErrExpired)
					require.Equal(t, time.Second, time.Since(start))
					th := purgatory.NewThreshold[int](w)
					require.ErrorIs(t, th.Await(t.Context(), 1, time.Second), purgatory.ErrExpired)
					require.Equal(t, 2*time.Second, time.Since(start))
					outcomes := make(chan purgatory.Outcome, 2)
					op, err := p.Park(time.Second, nil, func(o purgatory.Outcome) { outcomes <- o }, "k")
					require.NoError(t, err)
					time.Sleep(2 * time.Second)
					synctest.Wait()
					require.Equal(t, purgatory.Expired, op.Outcome())
					require.Empty(t, outcomes, "done waits for the executor")
					if stopped {
						for _, pending := range w.Stop() {
							require.NotNil(t, pending.Func) // the functions that wait, but not done
						}
						synctest.Wait()
					}
					require.Equal(t, purgatory.Expired, <-outcomes)
					require.NoError(t, w.Shutdown(t.Context()))
					require.Empty(t, outcomes)
					require.EqualValues(t, 2, p.Stats().Expired)
				})
			})
		}
	}
}
