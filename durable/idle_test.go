package durable_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// hooked is an engine that calls functions around what RunUntilIdle reads, and around claims.
type hooked struct {
	driver.Engine
	page    func(state durable.State) (empty bool) // before Page; it may leave all jobs out
	claimed func()                                 // before the answer to Claim
}

type hookedWorker struct {
	driver.Worker
	e *hooked
}

func (e *hooked) Page(ctx context.Context, f driver.Filter, after driver.Cursor, n int) ([]driver.Info, driver.Cursor, error) {
	if e.page != nil && e.page(f.State) {
		return nil, driver.Cursor{}, nil
	}
	return e.Engine.Page(ctx, f, after, n)
}

func (e *hooked) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	return hookedWorker{w, e}, err
}

func (w hookedWorker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	time.Sleep(20 * time.Millisecond) // a job that has failed waits for so long
	results := w.Worker.Claim(ctx, held)
	if w.e.claimed != nil {
		w.e.claimed()
	}
	return results
}

// A job that changes while RunUntilIdle looks for jobs, or that a look does not see, is run to its end.
func TestIdleSeesWhatChanges(t *testing.T) {
	const tries = 6
	finish := make(chan bool)
	for name, hook := range map[string]func(*hooked, func() durable.State){
		"it waits again when the running jobs are read": func(e *hooked, state func() durable.State) {
			e.page = func(read durable.State) bool {
				if read == durable.Running && state() == durable.Running {
					finish <- true
					for state() == durable.Running {
						time.Sleep(time.Millisecond)
					}
				}
				return false
			}
		},
		"its claim is not answered yet": func(e *hooked, _ func() durable.State) {
			e.claimed = func() { time.Sleep(time.Second) }
		},
		"its claim is answered, and it waits again": func(e *hooked, state func() durable.State) {
			answer := make(chan bool)
			e.claimed = func() {
				select {
				case <-answer:
				case <-time.After(time.Second):
				}
			}
			e.page = func(read durable.State) bool {
				if read == durable.Running && state() == durable.Running {
					answer <- true
					finish <- true
					for state() == durable.Running {
						time.Sleep(time.Millisecond)
					}
				}
				return false
			}
		},
		"a server that is behind does not show it": func(e *hooked, _ func() durable.State) {
			first := true
			e.page = func(durable.State) bool { defer func() { first = false }(); return first }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				finish = make(chan bool)
				e := &hooked{Engine: memory.New(nil).Open()}
				q, err := durable.Open(t.Context(), e)
				require.NoError(t, err)
				defer q.Close()
				ref, err := q.Add(t.Context(), durable.Job{Kind: "k"})
				require.NoError(t, err)
				q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
					select {
					case <-finish:
					case <-time.After(time.Second):
					}
					if a.Number < tries {
						return durable.RetryAfter(0, errors.New("not yet"))
					}
					return nil
				})
				hook(e, func() durable.State {
					i, _ := q.Get(t.Context(), ref)
					return i.State
				})
				ran, err := q.RunUntilIdle(t.Context(), time.Minute)
				require.NoError(t, err)
				require.Equal(t, durable.Ran{Attempts: tries, Done: 1, Failed: tries - 1}, ran)
			})
		})
	}
}

// RunUntilIdle is a call of Run: it panics where that does.
func TestIdlePanics(t *testing.T) {
	q, err := durable.Open(t.Context(), memory.New(nil).Open())
	require.NoError(t, err)
	defer q.Close()
	require.PanicsWithValue(t, "durable: Run: no handler: call Handle first", func() { _, _ = q.RunUntilIdle(t.Context(), 0) })
}

// A check that takes long, as while a server starts again, does not put the next one off for much longer.
func TestIdleAfterASlowCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		e := &hooked{Engine: memory.New(nil).Open(), page: func(durable.State) bool {
			if first {
				time.Sleep(20 * time.Second)
			}
			first = false
			return false
		}}
		q, err := durable.Open(t.Context(), e)
		require.NoError(t, err)
		defer q.Close()
		q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
		began := time.Now()
		_, err = q.RunUntilIdle(t.Context(), 0)
		require.NoError(t, err)
		require.Less(t, time.Since(began), 30*time.Second)
	})
}

// An occurrence that is left out leaves no dead job.
func TestIdleLeavesOut(t *testing.T) {
	clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	q, err := durable.Open(t.Context(), memory.New(clock).Open())
	require.NoError(t, err)
	defer q.Close()
	q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	require.NoError(t, q.SetSchedule(t.Context(), "s", "@hourly", durable.Job{Kind: "k"}, durable.OnMissed(durable.MissedSkip)))
	ref, err := q.Add(t.Context(), durable.Job{Kind: "k", Expires: clock.Now().Add(time.Minute)})
	require.NoError(t, err)
	clock.Set(clock.Now().Add(62 * time.Minute))
	ran, err := q.RunUntilIdle(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, durable.Ran{Dead: 1}, ran)
	require.EqualValues(t, 2, q.Stats().Expired)
	info, err := q.Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, durable.Dead, info.State)
}
