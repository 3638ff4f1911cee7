package memory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// begin is what the tests' clocks show first.
var begin = time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)

// within returns a context that ends with patience, a bound and not a measure.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// open returns a Queue on a store, and what has it run until the end of the test.
func open(t *testing.T, s *memory.Store, opts ...durable.Option) (q *durable.Queue, run func()) {
	opts = append(opts, durable.WithLogger(slog.New(slog.DiscardHandler)))
	q, err := durable.Open(within(t), s.Open(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	return q, func() {
		done := make(chan error, 1)
		go func() { done <- q.Run(t.Context()) }()
		t.Cleanup(func() {
			q.Close()
			require.NoError(t, <-done)
		})
	}
}

// A clock may be set to any time, such as that of package time: what is due by it then has run when Advance returns.
func TestTimeBetweenMicroseconds(t *testing.T) {
	clock := memory.NewClock(begin.Add(1))
	q, run := open(t, memory.New(clock))
	ran := 0
	q.Handle("k", func(context.Context, *durable.Attempt) error { ran++; return nil })
	run()
	for i, after := range []time.Duration{0, time.Hour, time.Hour + 1, 0} {
		if i == 3 {
			clock.Set(begin.Add(5*time.Hour + 1))
		}
		_, err := q.Add(within(t), durable.Job{Kind: "k", After: after})
		require.NoError(t, err)
		require.NoError(t, clock.Advance(within(t), after))
		require.Equal(t, i+1, ran)
	}
}

// Each attempt and each occurrence begins at its own time, to the microsecond, and has ended
// when Advance returns.
func TestEachAtItsTime(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock), durable.WithBackoff(func(n int) time.Duration { return time.Duration(n) * time.Hour }))
	var mu sync.Mutex
	began := map[string][]time.Duration{}
	note := func(a *durable.Attempt) int {
		mu.Lock()
		defer mu.Unlock()
		began[a.Job.Kind] = append(began[a.Job.Kind], clock.Now().Sub(begin))
		return len(began[a.Job.Kind])
	}
	q.Handle("once", func(_ context.Context, a *durable.Attempt) error { note(a); return nil })
	q.Handle("last", func(_ context.Context, a *durable.Attempt) error { note(a); return nil })
	q.Handle("fails", func(_ context.Context, a *durable.Attempt) error {
		if note(a) < 4 {
			return errors.New("no")
		}
		return nil
	})
	q.Handle("daily", func(_ context.Context, a *durable.Attempt) error {
		note(a)
		_, err := q.Add(t.Context(), durable.Job{Kind: "once", After: time.Minute})
		return err
	})
	run()
	refs, err := q.AddMany(within(t), durable.Job{Kind: "once", After: 72 * time.Hour}, durable.Job{Kind: "fails", After: time.Hour},
		durable.Job{Kind: "once"}, durable.Job{Kind: "last", MaxAttempts: 1, After: 71 * time.Hour})
	require.NoError(t, err)
	require.NoError(t, q.SetSchedule(within(t), "daily", "0 12 * * *", durable.Job{Kind: "daily"}))
	require.NoError(t, clock.Advance(within(t), 0))
	require.Equal(t, map[string][]time.Duration{"once": {0}}, began)
	require.NoError(t, clock.Advance(within(t), 72*time.Hour-time.Microsecond))
	hour, minute := time.Hour, time.Minute
	want := map[string][]time.Duration{
		"once": {0, 3*hour + minute, 27*hour + minute, 51*hour + minute}, "last": {71 * hour},
		"fails": {hour, 2 * hour, 4 * hour, 7 * hour}, "daily": {3 * hour, 27 * hour, 51 * hour},
	}
	require.Equal(t, want, began)
	info, err := q.Get(within(t), refs[0])
	require.NoError(t, err)
	require.Equal(t, durable.Waiting, info.State)
	require.NoError(t, clock.Advance(within(t), time.Microsecond))
	require.Equal(t, 72*hour, began["once"][4])
	require.Equal(t, 72*hour, clock.Now().Sub(begin))
}

// A schedule that is changed more than once within an instant keeps its occurrence.
func TestScheduleChangedTwiceAtOnce(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock))
	var mu sync.Mutex
	ran := map[string]int{}
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		mu.Lock()
		defer mu.Unlock()
		ran[a.Schedule]++
		return nil
	})
	for _, name := range []string{"paused", "edited"} {
		require.NoError(t, q.SetSchedule(within(t), name, "@every 1h", durable.Job{Kind: "k"}))
	}
	require.NoError(t, q.PauseSchedule(within(t), "paused"))
	require.NoError(t, q.ResumeSchedule(within(t), "paused"))
	for _, jitter := range []time.Duration{time.Minute, 2 * time.Minute, 0} { // the last is as the first was
		require.NoError(t, q.SetSchedule(within(t), "edited", "@every 1h", durable.Job{Kind: "k"}, durable.Jitter(jitter)))
	}
	run()
	require.NoError(t, clock.Advance(within(t), 2*time.Hour))
	require.Equal(t, map[string]int{"paused": 2, "edited": 2}, ran)
}

// What waits for tokens of two limits begins when both are there, however many wait.
func TestTokensComeByTheClock(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock))
	var mu sync.Mutex
	var began []time.Duration
	q.Handle("k", func(context.Context, *durable.Attempt) error {
		mu.Lock()
		defer mu.Unlock()
		began = append(began, clock.Now().Sub(begin))
		return nil
	})
	require.NoError(t, q.SetLimit(within(t), "daily", durable.Limit{PerLane: true, Rate: 1.0 / 86400, Burst: 2}))
	require.NoError(t, q.SetLimit(within(t), "hourly", durable.Limit{Kind: "k", Rate: 1.0 / 3600, Burst: 1, Running: 1}))
	const many = 100 // more than a worker holds of a lane
	for range many {
		_, err := q.Add(within(t), durable.Job{Kind: "k", Lane: "a"})
		require.NoError(t, err)
	}
	run()
	require.NoError(t, clock.Advance(within(t), 0))
	require.Equal(t, []time.Duration{0}, began)
	require.NoError(t, clock.Advance(within(t), 23*time.Hour))
	require.Equal(t, []time.Duration{0, time.Hour}, began)
	require.NoError(t, clock.Advance(within(t), many*24*time.Hour))
	require.Len(t, began, many)
	for i, at := range began[2:] {
		require.Equal(t, time.Duration(i+1)*24*time.Hour, at)
	}
}

// What has expired does not run, and what is dead is forgotten after its retention, by the
// clock; so are the times of failures.
func TestClockOfDeadJobs(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock), durable.WithRetention(48*time.Hour))
	q.Handle("k", func(context.Context, *durable.Attempt) error { return durable.Discard(errors.New("no")) })
	refs, err := q.AddMany(within(t), durable.Job{Kind: "k", After: time.Hour},
		durable.Job{Kind: "k", After: time.Hour, Expires: begin.Add(2 * time.Hour)})
	require.NoError(t, err)
	clock.Set(begin.Add(3 * time.Hour))
	run()
	require.NoError(t, clock.Advance(within(t), 0))
	info, err := q.Get(within(t), refs[0])
	require.NoError(t, err)
	require.Equal(t, []durable.Failure{{At: begin.Add(3 * time.Hour), Attempt: 1, Error: "no"}}, info.Errors)
	info, err = q.Get(within(t), refs[1])
	require.NoError(t, err)
	require.Equal(t, durable.ErrExpired.Error(), info.LastError)
	clock.Set(begin.Add(51*time.Hour - time.Microsecond))
	_, err = q.Get(within(t), refs[0])
	require.NoError(t, err)
	clock.Set(begin.Add(51 * time.Hour))
	_, err = q.Get(within(t), refs[0])
	require.ErrorIs(t, err, durable.ErrNotFound)
}

// Advance waits for a worker to come, and for what others add meanwhile, to another store
// too. It says for what it waits in vain.
func TestAdvanceWaits(t *testing.T) {
	clock := memory.NewClock(begin)
	a, runA := open(t, memory.New(clock))
	b, runB := open(t, memory.New(clock))
	count := 0
	bounce := func(to *durable.Queue) durable.Handler {
		return func(ctx context.Context, _ *durable.Attempt) error {
			if count++; count == 10 {
				return nil
			}
			_, err := to.Add(ctx, durable.Job{Kind: "k"})
			return err
		}
	}
	a.Handle("k", bounce(b))
	b.Handle("k", bounce(a))
	_, err := a.Add(within(t), durable.Job{Kind: "k", After: time.Hour})
	require.NoError(t, err)
	time.AfterFunc(20*time.Millisecond, func() { runA(); runB() })
	require.NoError(t, clock.Advance(within(t), time.Hour))
	require.Equal(t, 10, count)

	_, err = a.Add(within(t), durable.Job{Kind: "other", After: time.Hour})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil && clock.Now().Before(begin.Add(2*time.Hour)) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	err = clock.Advance(ctx, 2*time.Hour)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, `"other"`)
	require.Equal(t, begin.Add(2*time.Hour), clock.Now(), "where it waited")
	require.PanicsWithValue(t, "memory: Advance(-1ns): negative", func() { clock.Advance(t.Context(), -1) })
}

// Two Queues on one store share its jobs, as two processes do.
func TestTwoProcesses(t *testing.T) {
	clock := memory.NewClock(begin)
	store := memory.New(clock)
	producer, _ := open(t, store)
	consumer, run := open(t, store)
	ran := make(chan string, 1)
	consumer.Handle("k", func(_ context.Context, a *durable.Attempt) error { ran <- string(a.Job.Payload); return nil })
	run()
	for i := range 100 {
		canceled, err := producer.Add(within(t), durable.Job{Kind: "k", After: 30 * time.Minute})
		require.NoError(t, err)
		_, err = producer.Add(within(t), durable.Job{Kind: "k", After: time.Hour, Payload: fmt.Append(nil, i)})
		require.NoError(t, err)
		ok, err := producer.Cancel(within(t), canceled)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, clock.Advance(within(t), time.Hour))
		require.Equal(t, fmt.Sprint(i), <-ran)
	}
}

// What a limit lets begin at a time begins at that time: a job that waits for its token is due
// when that comes, and Advance goes on to there.
func TestRateByTheClock(t *testing.T) {
	clock := memory.NewClock(begin)
	store := memory.New(clock)
	q, run := open(t, store)
	other, runOther := open(t, store)
	var mu sync.Mutex
	began := map[string][]time.Duration{}
	for _, q := range []*durable.Queue{q, other} {
		for _, kind := range []string{"k", "one"} {
			q.Handle(kind, func(_ context.Context, a *durable.Attempt) error {
				mu.Lock()
				defer mu.Unlock()
				began[a.Job.Lane] = append(began[a.Job.Lane], clock.Now().Sub(begin))
				return nil
			})
		}
	}
	require.NoError(t, q.SetLimit(t.Context(), "hourly", durable.Limit{Kind: "k", PerLane: true, Rate: 1.0 / 3600, Burst: 2}))
	require.NoError(t, q.SetLimit(t.Context(), "one", durable.Limit{Kind: "one", Running: 1}))
	for range 5 {
		for _, j := range []durable.Job{{Kind: "k", Lane: "a"}, {Kind: "k", Lane: "b", After: 90 * time.Minute}, {Kind: "one", Lane: "c"}} {
			_, err := q.Add(t.Context(), j)
			require.NoError(t, err)
		}
	}
	run()
	runOther()
	require.NoError(t, clock.Advance(within(t), 0))
	require.Equal(t, map[string][]time.Duration{"a": {0, 0}, "c": {0, 0, 0, 0, 0}}, began)
	require.NoError(t, clock.Advance(within(t), 24*time.Hour))
	h := time.Hour
	wholeSeconds := func(all []time.Duration) (rounded []time.Duration) { // a Rate is rounded down to a gap of nanoseconds
		for _, d := range all {
			rounded = append(rounded, d.Truncate(time.Second))
		}
		return rounded
	}
	require.Equal(t, []time.Duration{0, 0, h, 2 * h, 3 * h}, wholeSeconds(began["a"]))
	require.Equal(t, []time.Duration{h * 3 / 2, h * 3 / 2, h * 5 / 2, h * 7 / 2, h * 9 / 2}, wholeSeconds(began["b"]))
	require.Equal(t, begin.Add(24*h), clock.Now())
}

// After the clock is set back by 20 s the rate goes on, and one job more begins than the limit says.
func TestRateAfterTheClockIsSetBack(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock))
	var began atomic.Int64
	q.Handle("k", func(context.Context, *durable.Attempt) error { began.Add(1); return nil })
	require.NoError(t, q.SetLimit(t.Context(), "l", durable.Limit{Kind: "k", Rate: 10, Burst: 5}))
	for range 50 {
		_, err := q.Add(t.Context(), durable.Job{Kind: "k"})
		require.NoError(t, err)
	}
	clock.Set(begin.Add(time.Hour)) // they are due by the clock that is set back, too
	run()
	require.NoError(t, clock.Advance(within(t), time.Second))
	require.InDelta(t, 5+10, began.Load(), 1)
	clock.Set(clock.Now().Add(-20 * time.Second))
	require.NoError(t, clock.Advance(within(t), time.Second))
	require.LessOrEqual(t, began.Load(), int64(5+20+1))
	require.GreaterOrEqual(t, began.Load(), int64(5+20-1))
}

// A job whose process has died waits for another token of its limit, and begins when that comes.
func TestTokenAfterCrash(t *testing.T) {
	clock := memory.NewClock(begin)
	store := memory.New(clock)
	first := store.Open()
	q, err := durable.Open(within(t), first, durable.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	require.NoError(t, q.SetLimit(t.Context(), "hourly", durable.Limit{Kind: "k", Rate: 1.0 / 3600, Burst: 1, Running: 1}))
	_, err = q.Add(t.Context(), durable.Job{Kind: "k"})
	require.NoError(t, err)
	q.Handle("k", func(context.Context, *durable.Attempt) error { return first.Close() })
	next, run := open(t, store)
	var began time.Duration
	next.Handle("k", func(context.Context, *durable.Attempt) error { began = clock.Now().Sub(begin); return nil })
	go func() {
		q.Run(t.Context())
		q.Close()
		run()
	}()
	require.NoError(t, clock.Advance(within(t), 24*time.Hour))
	require.Equal(t, time.Hour, began.Truncate(time.Second))
}

// An occurrence that has run does not run again by a clock that was set back, whatever is
// changed in its schedule. One that is deleted, and stored anew, begins with the clock as it is.
func TestClockSetBackBesideSchedule(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock))
	var mu sync.Mutex
	var ran []time.Time
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, a.Occurrence.UTC())
		return nil
	})
	run()
	set := func(spec, payload string) {
		require.NoError(t, q.SetSchedule(within(t), "s", spec, durable.Job{Kind: "k", Payload: []byte(payload)}))
	}
	at := begin.Add(time.Hour)
	set("0 * * * *", "")
	require.NoError(t, clock.Advance(within(t), time.Hour))
	for _, change := range []func(){
		func() { set("0 * * * *", "other") },
		func() { set("0 8-20 * * *", "other") },
		func() { require.NoError(t, q.ResumeSchedule(within(t), "s")) },
		func() {
			_, err := q.CancelKey(within(t), "every/s")
			require.NoError(t, err)
			set("0 8-20 * * *", "other")
		},
	} {
		clock.Set(at.Add(-time.Minute))
		change()
		require.NoError(t, clock.Advance(within(t), 2*time.Minute))
		require.Equal(t, []time.Time{at}, ran)
	}
	clock.Set(at.Add(-time.Minute))
	require.NoError(t, q.DeleteSchedule(within(t), "s"))
	set("0 * * * *", "")
	require.NoError(t, clock.Advance(within(t), time.Minute))
	require.Equal(t, []time.Time{at, at}, ran)
}

// interrupted is an engine in which something comes between what a change has read and what it
// stores.
type interrupted struct {
	driver.Engine
	between func()
}

func (e *interrupted) Manual() func() time.Time {
	return e.Engine.(interface{ Manual() func() time.Time }).Manual()
}

func (e *interrupted) interrupt() {
	if f := e.between; f != nil {
		e.between = nil
		f()
	}
}

func (e *interrupted) SetSchedule(ctx context.Context, was int64, s driver.Schedule, r driver.Replace) error {
	e.interrupt()
	return e.Engine.SetSchedule(ctx, was, s, r)
}

func (e *interrupted) SetFlowControl(ctx context.Context, was int64, r *driver.FlowControl) error {
	e.interrupt()
	return e.Engine.SetFlowControl(ctx, was, r)
}

// Of two changes at one time, by one clock, none is taken for the other.
func TestChangesAtOneTime(t *testing.T) {
	store := memory.New(memory.NewClock(begin))
	e := &interrupted{Engine: store.Open()}
	a, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer a.Close()
	b, _ := open(t, store)
	set := func(q *durable.Queue, payload string) {
		require.NoError(t, q.SetSchedule(within(t), "s", "@hourly", durable.Job{Kind: "k", Payload: []byte(payload)}))
		require.NoError(t, q.SetLimit(within(t), payload, durable.Limit{Running: 1}))
	}
	set(a, "first")
	e.between = func() { set(b, "second") }
	set(a, "third")
	for s, err := range b.Schedules(within(t)) {
		require.NoError(t, err)
		require.Equal(t, "third", string(s.Job.Payload))
	}
	e.between = func() { require.NoError(t, b.SetLimit(within(t), "fourth", durable.Limit{Running: 1})) }
	require.NoError(t, a.SetLimit(within(t), "fifth", durable.Limit{Running: 1}))
	var names []string
	for l, err := range b.Limits(within(t)) {
		require.NoError(t, err)
		names = append(names, l.Name)
	}
	require.Equal(t, []string{"fifth", "first", "fourth", "second", "third"}, names)
}

// MissedEach runs the last n occurrences of those that were missed, and the one that waited is one of
// them only if it is late enough. One that was begun, or rescheduled, was not missed.
func TestMissedEach(t *testing.T) {
	for i, n := range []int{1, 2, 3, 23, 24, 25, 100, 1, 3, 24, 25} {
		clock, spec := memory.NewClock(begin), "0 * * * *"
		if i > 6 {
			spec = "@every 1h"
		}
		q, run := open(t, memory.New(clock))
		var mu sync.Mutex
		var ran []time.Time
		q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, a.Occurrence)
			return nil
		})
		require.NoError(t, q.SetSchedule(within(t), "x", spec, durable.Job{Kind: "k"}, durable.OnMissed(durable.MissedEach(n))))
		clock.Set(begin.Add(24*time.Hour + time.Minute)) // 24 are missed
		run()
		require.NoError(t, clock.Advance(within(t), 0))
		var want []time.Time
		for i := max(1, 25-n); i <= 24; i++ {
			want = append(want, begin.Add(time.Duration(i)*time.Hour))
		}
		mu.Lock()
		require.Len(t, ran, len(want), "MissedEach(%d)", n)
		for i, at := range ran {
			require.True(t, want[i].Equal(at), "MissedEach(%d): %v", n, ran)
		}
		mu.Unlock()
		require.NoError(t, clock.Advance(within(t), time.Hour))
		mu.Lock()
		require.Len(t, ran, len(want)+1)
		mu.Unlock()
	}
}

// An occurrence that waits for another attempt, or that was rescheduled, runs however many were missed.
func TestMissedEachKeepsWhatHasBegun(t *testing.T) {
	for _, moved := range []bool{false, true} {
		clock := memory.NewClock(begin)
		q, run := open(t, memory.New(clock), durable.WithBackoff(func(int) time.Duration { return 10 * time.Hour }))
		var mu sync.Mutex
		var ran []string
		q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, fmt.Sprint(a.Occurrence.Sub(begin), " ", a.Number))
			if len(ran) == 1 && !moved {
				return errors.New("no")
			}
			return nil
		})
		require.NoError(t, q.SetSchedule(within(t), "x", "0 * * * *", durable.Job{Kind: "k"}, durable.OnMissed(durable.MissedEach(2))))
		want := []string{"1h0m0s 1", "1h0m0s 2", "10h0m0s 1", "11h0m0s 1"}
		if moved {
			i, err := q.Lookup(within(t), "every/x")
			require.NoError(t, err)
			ok, err := q.Reschedule(within(t), i.Ref, begin.Add(11*time.Hour))
			require.NoError(t, err)
			require.True(t, ok)
			want = append([]string{"1h0m0s 1"}, want[2:]...)
		}
		run()
		require.NoError(t, clock.Advance(within(t), 11*time.Hour+time.Minute))
		mu.Lock()
		require.Equal(t, want, ran)
		mu.Unlock()
	}
}

// An occurrence that expires while no worker is there was not canceled.
func TestWhyAnOccurrenceExpired(t *testing.T) {
	clock := memory.NewClock(begin)
	q, _ := open(t, memory.New(clock))
	require.NoError(t, q.SetSchedule(t.Context(), "s", "@hourly", durable.Job{Kind: "k"}, durable.OnMissed(durable.MissedSkip)))
	clock.Set(begin.Add(time.Hour + 2*time.Minute))
	why, err := q.WhySchedule(t.Context(), "s")
	require.NoError(t, err)
	require.Equal(t, durable.CauseExpired, why.Cause)
}

// An occurrence that has begun, or was rescheduled, was not missed. If its next attempt comes too late for MissedSkip, it
// is dead and listed, and the schedule goes on.
func TestMissedSkipKeepsWhatHasBegun(t *testing.T) {
	for name, result := range map[string]error{"failed": errors.New("failed"), "snoozed": durable.Snooze(2 * time.Minute), "rescheduled": nil} {
		t.Run(name, func(t *testing.T) {
			clock := memory.NewClock(begin)
			q, run := open(t, memory.New(clock), durable.WithBackoff(func(int) time.Duration { return 2 * time.Minute }))
			q.Handle("k", func(_ context.Context, a *durable.Attempt) error {
				if a.Occurrence.Equal(begin.Add(time.Hour)) {
					return result
				}
				return nil
			})
			require.NoError(t, q.SetSchedule(t.Context(), "s", "@hourly", durable.Job{Kind: "k"}, durable.OnMissed(durable.MissedSkip)))
			first, err := q.Lookup(t.Context(), driver.OccurrenceKey("s"))
			require.NoError(t, err)
			if result == nil {
				moved, err := q.Reschedule(t.Context(), first.Ref, begin.Add(time.Hour+2*time.Minute))
				require.NoError(t, err)
				require.True(t, moved)
			}
			run()
			require.NoError(t, clock.Advance(within(t), 90*time.Minute))
			info, err := q.Get(t.Context(), first.Ref)
			require.NoError(t, err)
			require.Equal(t, durable.Dead, info.State)
			require.Equal(t, durable.ErrExpired.Error(), info.LastError)
			next, err := q.Lookup(t.Context(), driver.OccurrenceKey("s"))
			require.NoError(t, err)
			require.Equal(t, begin.Add(2*time.Hour), next.Due.UTC())
			require.NoError(t, clock.Advance(within(t), time.Hour))
			require.EqualValues(t, 1, q.Stats().Done)
		})
	}
}

// The end of an occurrence that has expired before its schedule was changed is stored beside the new occurrence.
func TestExpiredOccurrenceOfAChangedSchedule(t *testing.T) {
	clock := memory.NewClock(begin)
	q, run := open(t, memory.New(clock))
	q.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	for i, payload := range []string{"old", "new"} {
		require.NoError(t, q.SetSchedule(t.Context(), "s", "@hourly", durable.Job{Kind: "k", Payload: []byte(payload)}, durable.OnMissed(durable.MissedSkip)))
		clock.Set(begin.Add(time.Hour + time.Duration(2+i)*time.Minute))
	}
	run()
	require.NoError(t, clock.Advance(within(t), time.Hour))
	st := q.Stats()
	require.EqualValues(t, []int64{1, 1, 0}, []int64{st.Expired, st.Done, st.LeaseLost})
}

// A call of Advance that waits for a due job goes on to the end of a pause that is set meanwhile.
func TestPauseBesideAdvance(t *testing.T) {
	clock := memory.NewClock(begin)
	q, _ := open(t, memory.New(clock))
	_, err := q.Add(t.Context(), durable.Job{Kind: "nobody's"})
	require.NoError(t, err)
	synced := make(chan error, 1)
	go func() { synced <- clock.Advance(within(t), time.Minute) }()
	time.Sleep(20 * time.Millisecond) // it most likely waits
	require.NoError(t, q.PauseFor(t.Context(), durable.Pausable{}, time.Hour))
	require.NoError(t, <-synced)
}
