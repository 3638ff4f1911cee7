package enginetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// A change that keeps the times keeps each occurrence that has not run, also one whose time
// has come and that waits for its jitter, and one that was rescheduled.
func scheduleEditedWaiting(t *testing.T, s Store) {
	const jitter = 1000 * time.Hour // so that few are due while the test runs
	e := s.Open(t)
	r := open(t, e)
	var start time.Time
	set := func(name, payload string, jitter time.Duration) {
		t.Helper()
		r.schedule(name, "@every 9999h", durable.Job{Kind: kind, Payload: []byte(payload)},
			durable.StartAt(start), durable.Jitter(jitter))
	}
	// waiting returns those that are not due soon.
	waiting := func() map[string]durable.ScheduleInfo {
		all := r.schedules()
		maps.DeleteFunc(all, func(_ string, is durable.ScheduleInfo) bool { return is.Next.Sub(start) < time.Hour })
		require.Greater(t, len(all), 6)
		return all
	}
	for ahead := 2 * time.Second; !engineNow(t, e).Before(start); ahead *= 2 { // all are stored before their time
		start = engineNow(t, e).Add(ahead).Truncate(time.Second)
		for i := range 12 {
			set(fmt.Sprint("s", i), "old", jitter)
		}
	}
	await(t, "all of their times have come", func() bool { return engineNow(t, e).After(start) })
	before := waiting()
	for name, is := range before {
		moved := is.Next.Add(5 * time.Hour)
		r.reschedule(is.Ref, moved, true)
		set(name, "new", jitter)
		now := r.schedules()[name]
		require.True(t, now.Next.Equal(moved), "%s was moved, and is due %v after its time", name, now.Next.Sub(start))
		require.NoError(t, r.PauseSchedule(within(t), name))
		break
	}
	for name, is := range before {
		set(name, "new", jitter)
		now := r.schedules()[name]
		if now.Paused {
			delete(before, name)
			continue
		}
		require.True(t, now.Next.Equal(is.Next), "%s: %v after its time", name, now.Next.Sub(start))
		info := r.get(now.Ref)
		require.Equal(t, "new", string(info.Job.Payload))
		set(name, "new", 2*jitter)
	}
	for name, is := range waiting() {
		d := is.Next.Sub(start)
		require.True(t, d >= 0 && d < 2*jitter, "%s: %v", name, d)
		if before[name].Name == "" {
			continue
		}
		r.schedule(name, "@every 1h", durable.Job{Kind: kind}, durable.StartAt(start.Add(time.Hour)))
		require.Equal(t, time.Hour, r.schedules()[name].Next.Sub(start), "%s has other times now", name)
	}
}

// What was missed before a change is made up for if the change has kept the times. If it has
// not, or if the schedule was paused, nothing was missed before that.
func scheduleEditedMissed(t *testing.T, s Store) {
	const period = time.Second
	e := s.Open(t)
	r := open(t, e)
	set := func(name, spec, payload string) {
		t.Helper()
		r.schedule(name, spec, durable.Job{Kind: kind, Payload: []byte(payload)}, all)
	}
	begun, release := make(chan bool, 100), make(chan bool)
	r.handle(kind, nil).handle("slow", tells(begun, release))
	r.schedule("paused", "@every 1s", durable.Job{Kind: "slow"}, all)
	set("kept", "@every 1s", "old")
	set("changed", "@every 1s", "old")
	due := engineNow(t, e)
	await(t, "some were missed", func() bool { return engineNow(t, e).Sub(due) > 4*period })
	set("kept", "@every 1s", "new")
	set("kept", "@every 1s", "newer")
	changed := engineNow(t, e)
	set("changed", "@every 500ms", "new")
	r.start()
	<-begun
	require.NoError(t, r.PauseSchedule(within(t), "paused"))
	await(t, "some would have come", func() bool { return engineNow(t, e).Sub(changed) > 3*period })
	resumed := engineNow(t, e)
	require.NoError(t, r.ResumeSchedule(within(t), "paused"))
	close(release)
	await(t, "all have run", func() bool {
		return len(r.ranOf("kept")) > 8 && len(r.ranOf("changed")) > 3 && len(r.ranOf("paused")) > 2
	})
	kept := r.ranOf("kept")
	requireGrid(t, period, kept)
	require.Equal(t, "old", string(kept[0].Job.Payload), "it was due")
	require.Equal(t, "newer", string(kept[1].Job.Payload))
	for name, since := range map[string]struct {
		at     time.Time
		period time.Duration
	}{"changed": {changed, period / 2}, "paused": {resumed, period}} {
		runs := r.ranOf(name)[1:]
		requireGrid(t, since.period, runs)
		require.True(t, runs[0].Occurrence.After(since.at), name)
	}
}

// heldUp is an engine whose changes of schedules are held up, before they are decided on and
// before they are committed.
type heldUp struct {
	driver.Engine
	by atomic.Int64
}

func (h *heldUp) Insert(ctx context.Context, recs []driver.Record) ([]durable.Ref, []error) {
	time.Sleep(time.Duration(h.by.Load()))
	return h.Engine.Insert(ctx, recs)
}

func (h *heldUp) SetSchedule(ctx context.Context, was int64, s driver.Schedule, replace driver.Replace) error {
	time.Sleep(time.Duration(h.by.Load()))
	return h.Engine.SetSchedule(ctx, was, s, func(last time.Time, waits *driver.Record) (*driver.Record, error) {
		next, err := replace(last, waits)
		time.Sleep(time.Duration(h.by.Load()))
		return next, err
	})
}

// A change that is held up over the time of an occurrence does not make it run once more, nor
// does it lose one.
func scheduleEditedLate(t *testing.T, s Store) {
	const period = 500 * time.Millisecond
	slow := &heldUp{Engine: s.Open(t)}
	r, w := open(t, slow), open(t, s.Open(t)).handle(kind, nil)
	once := engineNow(t, slow).Add(2 * time.Second).Truncate(time.Second)
	last := func() error { // it is the only occurrence, so none follows it
		return r.Schedule(within(t), "last", "@every 1h", durable.Job{Kind: kind}, durable.StartAt(once), durable.EndAt(once.Add(time.Minute)))
	}
	require.NoError(t, last())
	names := []string{"a", "b"}
	set := func(payload string) {
		for _, name := range names {
			r.schedule(name, "@every 500ms", durable.Job{Kind: kind, Payload: []byte(payload)}, all)
		}
	}
	set("first")
	w.start().awaitRuns(1)
	slow.by.Store(int64(2 * period))
	for ; engineNow(t, slow).Before(once); breathe() {
		if err := last(); !errorIs(err, durable.ErrInvalid) { // there is no time left
			require.NoError(t, err)
		}
	}
	await(t, "it has run", func() bool { return r.schedules()["last"].Next.IsZero() })
	onceEach(t, w.ran())
	for i := range 8 {
		slow.by.Store(int64(period/4) + int64(i%4)*int64(period/8))
		set(fmt.Sprint(i))
	}
	await(t, "the last change has its effect", func() bool {
		runs := w.ran()
		return slices.ContainsFunc(runs, func(run run) bool { return string(run.Job.Payload) == "7" })
	})
	for _, name := range names {
		requireGrid(t, period, w.ranOf(name))
	}
}

// A dead occurrence that is redriven when others have run since runs again, and none of those.
func scheduleRedriven(t *testing.T, s Store) {
	const period = 500 * time.Millisecond
	e := s.Open(t)
	var failed atomic.Bool
	r := open(t, e).handle(kind, func(context.Context, *durable.Attempt) error {
		if failed.CompareAndSwap(false, true) {
			return durable.Discard(errTest)
		}
		return nil
	}).start()
	end := engineNow(t, e).Add(3 * time.Second).Truncate(time.Second)
	r.schedule("x", "@every 500ms", durable.Job{Kind: kind}, all, durable.EndAt(end))
	await(t, "it has come to its end", func() bool { return r.schedules()["x"].Next.IsZero() })
	before := r.ran()
	requireGrid(t, period, before)
	require.NoError(t, r.Redrive(within(t), before[0].Ref))
	r.awaitGone(before[0].Ref)
	is := r.schedules()["x"]
	require.True(t, is.Next.IsZero(), "%v follows it", is.Next)
	require.True(t, is.Last.Equal(end.Add(-period)), "%v", is.Last)
	require.Len(t, r.ran(), len(before)+1)
}

// A schedule that is listed while its occurrences end has one at any time.
func scheduleListed(t *testing.T, s Store) {
	r, w := open(t, s.Open(t)), open(t, s.Open(t)).handle(kind, nil)
	r.schedule("x", "@every 20ms", durable.Job{Kind: kind})
	w.start().awaitRuns(1)
	for n := len(w.ran()); len(w.ran()) < n+100; breathe() {
		require.False(t, r.schedules()["x"].Next.IsZero())
	}
}
