package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// occurrences records when the occurrences of schedules begin.
type occurrences struct {
	clock *memory.Clock
	mu    sync.Mutex
	began []time.Time // by the clock
	of    []time.Time // by the schedule
	then  func()      // after a record; called once
}

func (o *occurrences) handle(_ context.Context, a *durable.Attempt) error {
	o.mu.Lock()
	o.began, o.of = append(o.began, o.clock.Now()), append(o.of, a.Occurrence.UTC())
	then := o.then
	o.then = nil
	o.mu.Unlock()
	if then != nil {
		then()
	}
	return nil
}

// haveEnded reports whether then was called, and all occurrences that have begun are counted as done. The
// count alone does not tell: it may be behind.
func (o *occurrences) haveEnded(q *durable.Queue) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.then == nil && q.Stats().Done == int64(len(o.began))
}

// take returns the occurrences that have begun since the last call.
func (o *occurrences) take() []time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.of
	o.of = nil
	return of
}

// The store's clock was ahead, and is put right: a schedule goes on at the next time of the right
// clock, whether an occurrence waits, runs or has run, and whatever the policies are.
func TestScheduleAfterAClockThatWasAhead(t *testing.T) {
	options := map[string][]durable.ScheduleOption{
		"once": nil, "none": {durable.OnMissed(durable.MissedSkip)}, "each": {durable.OnMissed(durable.MissedEach(3))},
		"skip": {durable.SkipOverlap()}, "start": {durable.StartAt(begin.Add(-time.Hour))},
	}
	for _, ahead := range []time.Duration{2 * time.Hour, 24 * time.Hour, 10 * 365 * 24 * time.Hour} {
		for name, opts := range options {
			for _, before := range []time.Duration{0, 5 * time.Minute} {
				for _, inRun := range []bool{false, true} {
					for _, wasRight := range []bool{false, true} { // at first
						t.Run(fmt.Sprint(ahead, name, before, inRun, wasRight), func(t *testing.T) {
							clock := memory.NewClock(begin)
							if !wasRight {
								clock.Set(begin.Add(ahead))
							}
							q, run := open(t, memory.New(clock))
							o := &occurrences{clock: clock}
							q.Handle("k", o.handle)
							run()
							require.NoError(t, q.SetSchedule(within(t), "s", "* * * * *", durable.Job{Kind: "k"}, opts...))
							clock.Set(begin.Add(ahead))
							require.NoError(t, clock.Advance(within(t), before+30*time.Second))
							putRight := func() { clock.Set(clock.Now().Add(-ahead)) }
							if inRun {
								o.mu.Lock()
								o.then = putRight
								o.mu.Unlock()
								clock.Set(clock.Now().Add(time.Minute)) // not by Advance, which would return to that time
								require.Eventually(t, func() bool { return o.haveEnded(q) }, time.Minute, time.Millisecond)
							} else {
								putRight()
							}
							o.take()
							from := clock.Now()
							require.NoError(t, clock.Advance(within(t), 30*time.Minute))
							var want []time.Time
							for i := range 30 {
								want = append(want, from.Truncate(time.Minute).Add(time.Duration(i+1)*time.Minute).UTC())
							}
							require.Equal(t, want, o.take())
						})
					}
				}
			}
		}
	}
}

// After small steps back no occurrence runs twice, and none is lost.
func TestScheduleAfterSmallStepsBack(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock))
	o := &occurrences{clock: clock}
	q.Handle("k", o.handle)
	run()
	require.NoError(t, q.SetSchedule(within(t), "s", "* * * * *", durable.Job{Kind: "k"}))
	for _, back := range []time.Duration{time.Second, 10 * time.Minute, time.Hour, 89 * time.Minute} {
		require.NoError(t, clock.Advance(within(t), 2*time.Hour))
		clock.Set(clock.Now().Add(-back))
		require.NoError(t, q.SetSchedule(within(t), "s", "* * * * *", durable.Job{Kind: "k"}))
	}
	require.NoError(t, clock.Advance(within(t), 2*time.Hour))
	all := o.take()
	for i, at := range all {
		require.Equal(t, begin.Add(time.Duration(i+1)*time.Minute).UTC(), at)
	}
	require.WithinDuration(t, clock.Now(), all[len(all)-1], time.Minute)
}

// A rare occurrence that has run does not run again after the clock was set back by less than half
// the time to the next.
func TestRareScheduleAndAClockSetBack(t *testing.T) {
	for _, c := range []struct {
		spec  string
		back  time.Duration
		again bool
	}{{"@yearly", 24 * time.Hour, false}, {"@weekly", 24 * time.Hour, false}, {"@daily", 2 * time.Hour, false}, {"@daily", 24 * time.Hour, true}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			first := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC) // a Sunday
			clock := memory.NewClock(first.Add(-time.Minute))
			q, run := open(t, memory.New(clock))
			o := &occurrences{clock: clock}
			q.Handle("k", o.handle)
			run()
			require.NoError(t, q.SetSchedule(within(t), "s", c.spec, durable.Job{Kind: "k"}))
			clock.Set(clock.Now().Add(-c.back)) // before it has run: it comes, once
			if !c.again {
				clock.Set(clock.Now().Add(c.back))
			}
			require.NoError(t, clock.Advance(within(t), c.back+2*time.Minute))
			o.take()
			clock.Set(first.Add(time.Minute - c.back))
			require.NoError(t, clock.Advance(within(t), c.back+time.Hour))
			if c.again {
				require.Equal(t, []time.Time{first}, o.take())
			} else {
				require.Empty(t, o.take())
			}
		})
	}
}

// Schedules that were canceled, paused or deleted stay so when the clock is put right, and what was
// rescheduled keeps its time.
func TestClockPutRightBesideWhatStands(t *testing.T) {
	clock := memory.NewClock(begin.Add(24 * time.Hour))
	q, run := open(t, memory.New(clock))
	o := &occurrences{clock: clock}
	q.Handle("k", o.handle)
	run()
	for _, name := range []string{"canceled", "paused", "deleted"} {
		require.NoError(t, q.SetSchedule(within(t), name, "* * * * *", durable.Job{Kind: "k"}))
	}
	_, err := q.CancelKey(within(t), "every/canceled")
	require.NoError(t, err)
	require.NoError(t, q.PauseSchedule(within(t), "paused"))
	require.NoError(t, q.DeleteSchedule(within(t), "deleted"))
	clock.Set(begin)
	require.NoError(t, clock.Advance(within(t), time.Hour))
	require.Empty(t, o.take())
	require.NoError(t, q.ResumeSchedule(within(t), "paused"))
	require.NoError(t, clock.Advance(within(t), time.Hour))
	require.Len(t, o.take(), 60)
}

// If nobody has seen the step, a call of Schedule, or ResumeSchedule, makes a schedule go on.
func TestScheduleIsCalledAfterAStepThatNobodySaw(t *testing.T) {
	for _, ran := range []bool{false, true} {
		for name, call := range map[string]func(*durable.Queue) error{
			"same": func(q *durable.Queue) error {
				return q.SetSchedule(t.Context(), "s", "* * * * *", durable.Job{Kind: "k"})
			},
			"other": func(q *durable.Queue) error {
				return q.SetSchedule(t.Context(), "s", "*/1 * * * *", durable.Job{Kind: "k"})
			},
			"resume": func(q *durable.Queue) error { return q.ResumeSchedule(t.Context(), "s") },
		} {
			t.Run(fmt.Sprint(name, ran), func(t *testing.T) {
				clock := memory.NewClock(begin.Add(24 * time.Hour))
				store := memory.New(clock)
				first, run := open(t, store)
				first.Handle("k", (&occurrences{clock: clock}).handle)
				require.NoError(t, first.SetSchedule(within(t), "s", "* * * * *", durable.Job{Kind: "k"}))
				if ran {
					run()
					require.NoError(t, clock.Advance(within(t), 5*time.Minute))
				}
				require.NoError(t, first.Close())
				clock.Set(begin)

				q, run := open(t, store)
				o := &occurrences{clock: clock}
				q.Handle("k", o.handle)
				run()
				require.NoError(t, call(q))
				require.NoError(t, clock.Advance(within(t), 30*time.Minute))
				require.Len(t, o.take(), 30)
			})
		}
	}
}
