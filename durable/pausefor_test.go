package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// flowCounter counts the changes of limits and pauses that are stored.
type flowCounter struct {
	driver.Engine
	takes  time.Duration // a change
	stored atomic.Int64
}

func (e *flowCounter) SetFlowControl(ctx context.Context, was int64, f *driver.FlowControl) error {
	time.Sleep(e.takes)
	err := e.Engine.SetFlowControl(ctx, was, f)
	if err == nil && was != f.Revision() {
		e.stored.Add(1)
	}
	return err
}

// Handlers that ask for a cooldown at about one time store few, also those of different lanes. If there are too many
// pauses for all of them, some are stored.
func TestCooldownsAtOnceAreOne(t *testing.T) {
	for name, c := range map[string]struct {
		lanes, before, paused int
		takes                 time.Duration
	}{"one kind": {0, 0, 1, 100 * time.Millisecond}, "lanes": {200, 0, 200, 100 * time.Millisecond}, "too many lanes": {200, 900, 1000, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // in real time a busy machine may end the handlers one by one
				e := &flowCounter{Engine: memory.New(nil).Open(), takes: c.takes}
				q, err := durable.Open(t.Context(), e)
				require.NoError(t, err)
				defer q.Close()
				var pauses []driver.Pause
				now := time.Now()
				for i := range c.before {
					pauses = append(pauses, driver.Pause{Pausable: durable.Pausable{Kind: fmt.Sprint(i)}, Since: now, Until: now.Add(time.Hour)})
				}
				require.NoError(t, e.Engine.SetFlowControl(t.Context(), 0, driver.NewFlowControl(1, nil, pauses)))
				const jobs = 200
				all := make(chan struct{})
				var began atomic.Int64
				q.Handle("k", func(context.Context, *durable.Attempt) error {
					if began.Add(1) == jobs {
						close(all)
					}
					<-all
					return durable.Cooldown(time.Hour, errors.New("429"))
				})
				defer start(t, q)()
				for i := range jobs {
					job := durable.Job{Kind: "k"}
					if c.lanes > 0 {
						job.Lane = fmt.Sprint(i % c.lanes)
					}
					add(t, q, job)
				}
				require.Eventually(t, func() bool { return q.Stats().Snoozed == jobs }, time.Minute, time.Millisecond)
				if c.before == 0 {
					require.Less(t, e.stored.Load(), int64(jobs/4))
				}
				paused, err := q.Paused(t.Context())
				require.NoError(t, err)
				require.Len(t, paused, c.paused)
			})
		})
	}
}

// By a clock that is set by hand a cooldown ends in its time; set back, it is at most twice as long.
func TestCooldownByTheClock(t *testing.T) {
	for _, back := range []time.Duration{0, 29 * time.Second, time.Hour} {
		clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
		q, err := durable.Open(t.Context(), memory.New(clock).Open())
		require.NoError(t, err)
		began := make(chan time.Time, 10)
		first := true
		q.Handle("k", func(context.Context, *durable.Attempt) error {
			began <- clock.Now()
			if first {
				first = false
				return durable.Cooldown(30*time.Second, errors.New("429"))
			}
			return nil
		})
		stop := start(t, q)
		add(t, q, durable.Job{Kind: "k"})
		require.NoError(t, clock.Advance(t.Context(), 29*time.Second))
		at := <-began
		require.Empty(t, began, "it waits for the end")
		clock.Set(at.Add(29*time.Second - back))
		if back == time.Hour { // it is further back than the cooldown is long, which therefore has ended
			add(t, q, durable.Job{Kind: "k"})
			require.NoError(t, clock.Advance(t.Context(), 0))
			require.Equal(t, clock.Now(), <-began)
		} else {
			require.NoError(t, clock.Advance(t.Context(), 30*time.Second))
			require.Equal(t, at.Add(30*time.Second), <-began)
		}
		stop()
		require.NoError(t, q.Close())
	}
}

// Pauses with an end have a bound of their own, and what is wrong with one is said. Beyond it a cooldown holds
// for its own job.
func TestPauseForIsBounded(t *testing.T) {
	clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	q, err := durable.Open(t.Context(), memory.New(clock).Open())
	require.NoError(t, err)
	defer q.Close()
	ran := 0
	q.Handle("k", func(context.Context, *durable.Attempt) error {
		if ran++; ran == 1 {
			return durable.Cooldown(time.Minute, errors.New("429"))
		}
		return nil
	})
	for i := range 1000 {
		require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{Lane: fmt.Sprint(i)}, time.Hour))
	}
	require.ErrorContains(t, q.PauseFor(t.Context(), durable.Pausable{Lane: "x"}, time.Hour), "1000 pauses with an end")
	require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{Lane: "7"}, 2*time.Hour), "it is there")
	require.NoError(t, q.Pause(t.Context(), durable.Pausable{Lane: "x"}))
	require.NoError(t, q.SetLimit(t.Context(), "l", durable.Limit{Kind: "other", Running: 1}))
	defer start(t, q)()
	add(t, q, durable.Job{Kind: "k"})
	require.NoError(t, clock.Advance(t.Context(), 59*time.Second))
	require.Equal(t, 1, ran)
	require.NoError(t, clock.Advance(t.Context(), time.Second))
	require.Equal(t, 2, ran)
	clock.Set(clock.Now().Add(time.Hour))
	require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{Lane: "y"}, 366*24*time.Hour), "most have ended")
	paused, err := q.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, paused, 3)

	clock.Set(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
	require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{}, 366*24*time.Hour), "as far as times go")

	for _, err := range []error{
		q.PauseFor(t.Context(), durable.Pausable{}, 0), q.PauseFor(t.Context(), durable.Pausable{}, -1),
		q.PauseFor(t.Context(), durable.Pausable{}, 366*24*time.Hour+1), q.PauseFor(t.Context(), durable.Pausable{Kind: "\x00"}, time.Hour),
		q.PauseFor(t.Context(), durable.Pausable{Lane: strings.Repeat("l", 129)}, time.Hour),
	} {
		require.ErrorIs(t, err, durable.ErrInvalid)
	}
	require.PanicsWithValue(t, "durable: Cooldown(1s, nil)", func() { _ = durable.Cooldown(time.Second, nil) })
	require.True(t, durable.IsSnooze(fmt.Errorf("wrapped: %w", durable.Cooldown(1, errors.New("429")))))
	require.NoError(t, q.Close())
	require.ErrorIs(t, q.PauseFor(context.Background(), durable.Pausable{}, time.Hour), durable.ErrClosed)
}
