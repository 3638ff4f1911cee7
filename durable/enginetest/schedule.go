package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// schedules returns the schedules by name.
func (c *calls) schedules() map[string]durable.ScheduleInfo {
	all := map[string]durable.ScheduleInfo{}
	for info, err := range c.Schedules(within(c.t)) {
		require.NoError(c.t, err)
		require.NotContains(c.t, all, info.Name)
		all[info.Name] = info
	}
	return all
}

// onceEach checks that no occurrence has run twice, and returns how many have.
func onceEach(t *testing.T, runs []run) int {
	seen := map[string]bool{}
	for _, run := range runs {
		at := fmt.Sprint(run.Schedule, " ", run.Occurrence.UnixMicro())
		require.False(t, seen[at], "twice: %s", at)
		seen[at] = true
	}
	return len(seen)
}

// haveRun reports whether so many occurrences of each schedule have begun.
func (r *history) haveRun(n int, schedules ...string) bool {
	return !slices.ContainsFunc(schedules, func(name string) bool { return len(r.ranOf(name)) < n })
}

// requireGrid checks that occurrences, in the order of their time, are all multiples of a
// period, without a gap.
func requireGrid(t *testing.T, period time.Duration, runs []run) {
	onceEach(t, runs)
	for i, run := range runs {
		at := run.Occurrence
		require.Zero(t, at.UnixMicro()%period.Microseconds(), "%v", at)
		if i > 0 {
			require.Equal(t, period, at.Sub(runs[i-1].Occurrence), "%v is missing, or out of order", runs[i-1].Occurrence.Add(period))
		}
	}
}

// all is what becomes of missed occurrences where a test is not about them: all run, so that
// a busy machine leaves out none.
var all = durable.OnMissed(durable.MissedEach(1000))

// An occurrence that was canceled, paused or deleted before its time and stored again for the
// same time runs.
func scheduleAgain(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	period := 4 * time.Second
	names := []string{"cancel", "pause", "delete"}
	// All of it is to be between two occurrences.
	await(t, "an occurrence has just passed", func() bool {
		now := r.now()
		return now.Sub(now.Truncate(period)) < period/8
	})
	set := func(name string) { r.schedule(name, "@every 4s", durable.Job{Kind: kind}) }
	for _, name := range names {
		set(name)
	}
	first := r.schedules()
	r.pauseSchedule("pause")
	r.cancelKey("every/cancel", true)
	for _, name := range names[:2] {
		require.True(t, r.schedules()[name].Next.IsZero())
	}
	r.deleteSchedule("delete")
	r.resumeSchedule("pause")
	set("cancel")
	set("delete")
	second := r.schedules()
	r.start()
	await(t, "each has run", func() bool { return r.haveRun(1, names...) })
	for _, name := range names {
		require.NotEqual(t, first[name].Ref, second[name].Ref)
	}
}

func (c *calls) pauseSchedule(name string) { c.ok(c.PauseSchedule(within(c.t), name)) }

func (c *calls) resumeSchedule(name string) { c.ok(c.ResumeSchedule(within(c.t), name)) }

func (c *calls) deleteSchedule(name string) { c.ok(c.DeleteSchedule(within(c.t), name)) }

// A change takes effect soon: for what waits, and while an occurrence runs for what
// follows it.
func scheduleChanged(t *testing.T, s Store) {
	release := make(chan bool)
	r := open(t, s.Open(t), steady).handle("slow", waits(release)).handle("quick", nil).handle("far", nil).start()
	set := func(spec, kind string) { r.schedule("x", spec, durable.Job{Kind: kind}) }
	set("@yearly", "far")
	set("@every 100ms", "slow")
	require.Equal(t, "slow", r.awaitRuns(1)[0].Job.Kind)
	set("0 0 29 2 *", "far")
	set("@every 200ms", "quick")
	close(release)
	for _, run := range r.awaitRuns(4)[1:] {
		require.Equal(t, "quick", run.Job.Kind, "%v", run)
	}
	set("@yearly", "far")
	await(t, "it is slow again", func() bool { return time.Until(r.schedules()["x"].Next) > time.Minute })
	n := attempts(r)
	time.Sleep(time.Second)
	require.LessOrEqual(t, attempts(r), n+1)
}

// A schedule that is paused makes no occurrences, over restarts, until it is resumed, and
// one that is deleted makes none. An occurrence that runs meanwhile goes on, and is followed by what
// the schedule is then. RunNow runs its job in any case, with the name
// of the schedule and no time by it.
func schedulePaused(t *testing.T, s Store) {
	begun, release := make(chan bool, 100), make(chan bool)
	r := open(t, s.Open(t), steady).handle(kind, tells(begun, release)).start()
	set := func() { r.schedule("x", "@every 200ms", durable.Job{Kind: kind}) }
	quiet := func() {
		time.Sleep(time.Second)
		require.Empty(t, begun)
		require.True(t, r.schedules()["x"].Next.IsZero())
	}
	set()
	<-begun
	r.pauseSchedule("x")
	r.pauseSchedule("x") // twice
	release <- true
	await(t, "it has ended", func() bool { return r.Stats().Done == 1 })
	set() // as a process does that starts
	quiet()
	require.True(t, r.schedules()["x"].Paused)
	ref, err := r.RunNow(within(t), "x")
	require.NoError(t, err)
	<-begun
	release <- true
	r.awaitGone(ref)
	now := slices.DeleteFunc(r.ran(), func(run run) bool { return run.Ref != ref })
	require.Len(t, now, 1)
	require.Equal(t, "x", now[0].Schedule)
	require.Zero(t, now[0].Occurrence)
	quiet()
	r.resumeSchedule("x")
	<-begun
	r.pauseSchedule("x")
	r.resumeSchedule("x") // while one runs
	release <- true
	<-begun
	r.deleteSchedule("x")
	release <- true
	await(t, "all have ended", func() bool { return r.Stats().Done == 4 })
	time.Sleep(time.Second)
	require.Empty(t, begun)
	require.Empty(t, r.schedules())
	set()
	<-begun
	r.deleteSchedule("x")
	set() // anew, while one of the deleted runs
	release <- true
	<-begun
	r.deleteSchedule("x")
	release <- true
	for what, do := range map[string]func(context.Context, string) error{
		"Pause": r.PauseSchedule, "Resume": r.ResumeSchedule, "Delete": r.DeleteSchedule,
		"RunNow": func(ctx context.Context, name string) error { _, err := r.RunNow(ctx, name); return err },
	} {
		require.ErrorIs(t, do(within(t), "x"), durable.ErrNotFound, what)
		require.ErrorContains(t, do(within(t), "none"), "none", what)
	}
	empty(t, r)
}

// Of occurrences that were missed one runs, or none, or each of the last n.
func scheduleMissed(t *testing.T, s Store) {
	const period = time.Second
	r := open(t, s.Open(t)).handle(kind, nil)
	job := durable.Job{Kind: kind}
	r.schedule("once", "@every 1s", job)
	r.schedule("none", "@every 1s", job, durable.OnMissed(durable.MissedSkip))
	r.schedule("each", "@every 1s", job, durable.OnMissed(durable.MissedEach(3)))
	time.Sleep(7 * period)
	began := time.Now()
	r.start()
	await(t, "all have run", func() bool { return r.haveRun(2, "once") && r.haveRun(1, "none") && r.haveRun(3, "each") })
	onceEach(t, r.ran())
	once, each := r.ranOf("once"), r.ranOf("each")
	require.Greater(t, once[1].Occurrence.Sub(once[0].Occurrence), 4*period, "one for all")
	require.Greater(t, r.ranOf("none")[0].Occurrence, began.Add(-2*period), "what was missed is left out")
	require.Greater(t, each[0].Occurrence, began.Add(-4*period), "the one that waited is left out")
	require.Greater(t, each[0].at.Sub(each[0].Occurrence), period, "one that was missed has run")
	madeUp := slices.DeleteFunc(each, func(run run) bool { return !run.Occurrence.Before(began) })
	require.LessOrEqual(t, len(madeUp), 3)
}

// An occurrence that has failed, and whose next attempt comes too late for MissedSkip, is dead. The schedule goes on.
func scheduleSkipFailed(t *testing.T, s Store) {
	var failed atomic.Bool
	r := open(t, s.Open(t)).handle(kind, func(context.Context, *durable.Attempt) error {
		if failed.CompareAndSwap(false, true) {
			return durable.RetryAfter(3*time.Second, errors.New("fails"))
		}
		return nil
	}).start()
	r.schedule("s", "@every 1s", durable.Job{Kind: kind}, durable.OnMissed(durable.MissedSkip))
	await(t, "the schedule goes on", func() bool { return r.haveRun(3, "s") })
	dead := r.matching(durable.Filter{State: durable.Dead})
	require.Len(t, dead, 1)
	require.Equal(t, durable.ErrExpired.Error(), dead[0].LastError)
	r.deleteSchedule("s")
	require.NoError(t, r.Delete(within(t), dead[0].Ref))
	empty(t, r)
}

// An occurrence that comes due while one runs waits for its end, or is left out. Two never run at one
// time.
func scheduleOverlap(t *testing.T, s Store) {
	var wait, skip crowd
	slow := sleeps(1300 * time.Millisecond)
	r := open(t, s.Open(t)).handle("wait", wait.around(slow)).handle("skip", skip.around(slow)).start()
	r.schedule("wait", "@every 1s", durable.Job{Kind: "wait"})
	r.schedule("skip", "@every 1s", durable.Job{Kind: "skip"}, durable.SkipOverlap())
	await(t, "some have run", func() bool { return r.haveRun(4, "wait") && r.haveRun(3, "skip") })
	require.Equal(t, []int64{1, 1}, []int64{wait.most.Load(), skip.most.Load()})
	skipped, waited := r.ranOf("skip"), r.ranOf("wait")
	for i := 1; i < 3; i++ {
		require.GreaterOrEqual(t, skipped[i].Occurrence.Sub(skipped[i-1].Occurrence), 2*time.Second, "one is left out")
		require.True(t, skipped[i].Due.Equal(skipped[i].Occurrence), "and the next is on time")
	}
	late := func(run run) bool { return run.Due.After(run.Occurrence) }
	require.True(t, slices.ContainsFunc(waited[1:4], late), "one that waited is late")
}

// The start and the end of a schedule, and its jitter.
func scheduleSpan(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady).handle(kind, nil)
	var start, end time.Time
	for ahead := 3 * time.Second; !r.now().Before(start); ahead *= 2 { // all are stored before their time
		for name := range r.schedules() {
			r.deleteSchedule(name)
		}
		start = r.now().Add(ahead).Truncate(time.Microsecond)
		end = start.Add(time.Second)
		r.schedule("bounded", "@every 500ms", durable.Job{Kind: kind}, durable.StartAt(start), durable.EndAt(end), all)
		for i := range 20 {
			r.schedule(fmt.Sprint("jitter", i), "@every 9999h", durable.Job{Kind: kind}, durable.Jitter(500*time.Millisecond), durable.StartAt(start))
		}
	}
	require.True(t, r.schedules()["bounded"].Start.Equal(start) && r.schedules()["bounded"].End.Equal(end))
	r.start()
	runs := r.awaitRuns(22)
	time.Sleep(time.Second)
	require.Len(t, r.ran(), 22)
	delays := map[time.Duration]bool{}
	for _, run := range runs {
		if run.Schedule == "bounded" {
			require.Contains(t, []time.Duration{0, 500 * time.Millisecond}, run.Occurrence.Sub(start))
			continue
		}
		require.True(t, run.Occurrence.Equal(start))
		d := run.Due.Sub(start)
		require.True(t, d >= 0 && d < 500*time.Millisecond, "%v", d)
		delays[d] = true
	}
	require.Greater(t, len(delays), 10)
	require.True(t, r.schedules()["bounded"].Next.IsZero(), "it has come to its end")
}

// A schedule that there cannot be is an error that says what is wrong, and nothing is
// written.
func badSchedule(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	good := durable.Job{Kind: kind}
	for what, err := range map[string]error{
		"empty":                r.SetSchedule(within(t), "x", "", good),
		"name is empty":        r.SetSchedule(within(t), "", "@daily", good),
		"not printable":        r.SetSchedule(within(t), "a\nb", "@daily", good),
		"the key has":          r.SetSchedule(within(t), string(make([]byte, driver.MaxKey)), "@daily", good),
		"61":                   r.SetSchedule(within(t), "x", "61 * * * *", good),
		"zone \"Mars/Base\"":   r.SetSchedule(within(t), "x", "CRON_TZ=Mars/Base 0 8 * * *", good),
		"there is no time":     r.SetSchedule(within(t), "x", "0 0 30 2 *", good),
		"no time left":         r.SetSchedule(within(t), "x", "@daily", good, durable.EndAt(time.Now().Add(-time.Hour))),
		"the kind is empty":    r.SetSchedule(within(t), "x", "@daily", durable.Job{}),
		"Priority 9 is":        r.SetSchedule(within(t), "x", "@daily", durable.Job{Kind: kind, Priority: 9}),
		"OnMissed(-2)":         r.SetSchedule(within(t), "x", "@daily", good, durable.OnMissed(-2)),
		"Jitter(-1ns)":         r.SetSchedule(within(t), "x", "@daily", good, durable.Jitter(-1)),
		"beyond the year 9999": r.SetSchedule(within(t), "x", "@daily", good, durable.StartAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))),
	} {
		require.ErrorIs(t, err, durable.ErrInvalid, what)
		require.ErrorContains(t, err, what)
	}
	require.Empty(t, r.schedules())
	empty(t, r)
}

// Many change, pause, resume, cancel and delete one schedule while it runs: it is there
// once, and goes on when they have ended.
func scheduleRaces(t *testing.T, s Store) {
	rigs := []*rig{open(t, s.Open(t)).handle(kind, nil).start(), open(t, s.Open(t)).handle(kind, nil).start()}
	job := durable.Job{Kind: kind}
	atOnce(4, func(i int) {
		r := rigs[i%2]
		for n, end := 0, time.Now().Add(2*time.Second); n < 5 || time.Now().Before(end); n++ {
			breathe()
			var err error
			switch rand.N(8) {
			case 0:
				err = r.PauseSchedule(within(t), "x")
			case 1, 2:
				err = r.ResumeSchedule(within(t), "x")
			case 3:
				err = r.DeleteSchedule(within(t), "x")
			case 4:
				_, err = r.CancelKey(within(t), "every/x")
			default:
				err = r.SetSchedule(within(t), "x", fmt.Sprintf("@every %dms", 20+20*rand.N(3)), job)
			}
			assert.True(t, err == nil || errors.Is(err, durable.ErrNotFound), "%v", err)
		}
	})
	rigs[0].schedule("x", "@every 100ms", job, all)
	rigs[0].resumeSchedule("x")
	awaitRuns(t, attempts(rigs...)+5, rigs...)
	onceEach(t, ran(rigs...))
	rigs[0].deleteSchedule("x")
	empty(t, rigs[0])
}

// Two processes with one schedule run each occurrence once, on the grid. It goes on without them: a
// process that has never heard of it runs its occurrences, and stores what follows. They are what was
// stored, and are listed.
func scheduleShared(t *testing.T, s Store) {
	const period = 400 * time.Millisecond
	job := full()
	job.Expires = time.Time{}
	start := func() *rig {
		r := open(t, s.Open(t), steady).handle(kind, nil)
		for range 2 {
			r.schedule("tick", "@every 400ms", job, all)
		}
		return r.start()
	}
	a, b := start(), start()
	await(t, "five occurrences", func() bool { return attempts(a, b) >= 5 })
	a.close()
	b.close()
	c := open(t, s.Open(t), steady).handle(kind, nil).start()
	c.awaitRuns(3)
	c.drain()
	runs := ran(a, b, c)
	slices.SortFunc(runs, func(x, y run) int { return x.Occurrence.Compare(y.Occurrence) })
	requireGrid(t, period, runs)
	info := c.schedules()["tick"]
	require.Equal(t, "@every 400ms", info.Spec)
	sameJob(t, withKey(job, ""), info.Job)
	for _, run := range runs {
		sameJob(t, withKey(job, "every/tick"), run.Job)
		require.Equal(t, "tick", run.Schedule)
		require.True(t, run.Due.Equal(run.Job.At) && !run.Due.Before(run.Occurrence))
	}
	last := runs[len(runs)-1].Occurrence
	require.True(t, info.Last.Equal(last), "%v, %v", info.Last, last)
	require.False(t, info.Next.Before(last.Add(period)), "%v, %v", info.Next, last)
	waiting := c.matching(durable.Filter{})
	require.Len(t, waiting, 1)
	require.Equal(t, "every/tick", waiting[0].Job.Key)
}

func withKey(j durable.Job, key string) durable.Job { j.Key = key; return j }

// An occurrence that fails is tried again, and the next comes after it has died. After one was
// canceled the schedule stands still.
func scheduleFailed(t *testing.T, s Store) {
	var works atomic.Bool
	r := open(t, s.Open(t), backoff(50*time.Millisecond)).handle(kind, func(context.Context, *durable.Attempt) error {
		if works.Load() {
			return nil
		}
		return errTest
	})
	r.schedule("x", "@every 300ms", durable.Job{Kind: kind, MaxAttempts: 2})
	r.start()
	await(t, "two have died", func() bool { return r.Stats().Dead >= 2 })
	works.Store(true)
	r.awaitRuns(attempts(r) + 3)
	await(t, "one is canceled between two", func() bool { return r.cancelsKey("every/x") })
	n := attempts(r)
	time.Sleep(1200 * time.Millisecond)
	require.Len(t, r.ran(), n, "it stands still")
}

// store stores a schedule, and an occurrence of it that is due now, as another release may.
func (r *rig) store(name, definition, occurrence string) durable.Ref {
	s := driver.Schedule{Name: name, Revision: r.now().UnixMicro(), Definition: definition}
	r.ok(r.engine.SetSchedule(within(r.t), 0, s, func(time.Time, *driver.Record) (*driver.Record, error) {
		rec, err := driver.NewRecord(durable.Job{Kind: kind}, r.now())
		rec.Key, rec.Schedule = driver.OccurrenceKey(name), name
		rec.Occurrence = strings.ReplaceAll(occurrence, "REV", fmt.Sprint(s.Revision))
		rec.Occurrence = strings.ReplaceAll(rec.Occurrence, "AT", fmt.Sprint(rec.Due.UnixMicro()))
		return &rec, err
	}))
	ref, err := r.engine.Lookup(within(r.t), driver.OccurrenceKey(name))
	r.ok(err)
	return ref
}

// An occurrence whose spec cannot be read is left to a newer release, unless a call of SetSchedule
// has replaced it. The placeholder of a worker that could not read a spec does not run, and the
// next occurrence does.
func scheduleOfAnother(t *testing.T, s Store) {
	const newer, occurrence = `{"spec":"@moon","job":{"kind":"k","max":25}}`, `{"spec":"@moon","rev":REV,"at":AT}`
	var log bytes.Buffer
	r := open(t, s.Open(t), durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).handle(kind, nil)
	refs := map[string]durable.Ref{
		"newer":   r.store("newer", newer, occurrence),
		"other":   r.store("other", "another format", "another format"),
		"changed": r.store("changed", newer, occurrence),
		"pass": r.store("pass", `{"spec":"@every 300ms","job":{"kind":"k","max":25}}`,
			`{"spec":"@every 300ms","rev":REV,"at":AT,"pass":true}`),
	}
	for _, name := range []string{"newer", "other"} {
		require.ErrorIs(t, r.ResumeSchedule(within(t), name), durable.ErrInvalid)
	}
	require.ErrorIs(t, r.PauseSchedule(within(t), "other"), durable.ErrInvalid)
	_, err := r.RunNow(within(t), "other")
	require.ErrorIs(t, err, durable.ErrInvalid)
	r.schedule("changed", "@every 300ms", durable.Job{Kind: kind})
	r.start()
	await(t, "those that go on have run", func() bool { return r.haveRun(3, "changed", "pass") })
	r.drain()
	onceEach(t, r.ran())
	for _, name := range []string{"newer", "other"} {
		require.Empty(t, r.ranOf(name))
		require.Equal(t, refs[name], r.schedules()[name].Ref)
		line := `level=WARN msg="durable: cannot read the spec of a schedule; other workers run its jobs" name=` + name
		require.Equal(t, 1, strings.Count(log.String(), line), "%s", &log)
		r.deleteSchedule(name)
	}
	for _, name := range []string{"changed", "pass"} {
		for _, run := range r.ranOf(name) {
			require.NotEqual(t, refs[name], run.Ref, name)
			require.Zero(t, run.Occurrence.UnixMicro()%(300*time.Millisecond).Microseconds())
		}
	}
}

// A change that keeps the times keeps each occurrence that has not run, also one whose time
// has come and that waits for its jitter, and one that was rescheduled.
func scheduleEditedWaiting(t *testing.T, s Store) {
	const jitter = 1000 * time.Hour // so that few are due while the test runs
	r := open(t, s.Open(t))
	var start time.Time
	set := func(name, payload string, jitter time.Duration) {
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
	for ahead := 2 * time.Second; !r.now().Before(start); ahead *= 2 { // all are stored before their time
		start = r.now().Add(ahead).Truncate(time.Second)
		for i := range 12 {
			set(fmt.Sprint("s", i), "old", jitter)
		}
	}
	await(t, "all of their times have come", func() bool { return r.now().After(start) })
	before := waiting()
	for name, is := range before {
		moved := is.Next.Add(5 * time.Hour)
		r.reschedule(is.Ref, moved, true)
		set(name, "new", jitter)
		now := r.schedules()[name]
		require.True(t, now.Next.Equal(moved), "%s was moved, and is due %v after its time", name, now.Next.Sub(start))
		r.pauseSchedule(name)
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
		require.Equal(t, "new", string(r.get(now.Ref).Job.Payload))
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
	r := open(t, s.Open(t), steady)
	set := func(name, spec, payload string) {
		r.schedule(name, spec, durable.Job{Kind: kind, Payload: []byte(payload)}, all)
	}
	begun, release := make(chan bool, 100), make(chan bool)
	r.handle(kind, nil).handle("slow", tells(begun, release))
	r.schedule("paused", "@every 1s", durable.Job{Kind: "slow"}, all)
	set("kept", "@every 1s", "old")
	set("changed", "@every 1s", "old")
	due := r.now()
	await(t, "some were missed", func() bool { return r.now().Sub(due) > 4*period })
	set("kept", "@every 1s", "new")
	set("kept", "@every 1s", "newer")
	changed := r.now()
	set("changed", "@every 500ms", "new")
	r.start()
	<-begun
	r.pauseSchedule("paused")
	await(t, "some would have come", func() bool { return r.now().Sub(changed) > 3*period })
	resumed := r.now()
	r.resumeSchedule("paused")
	close(release)
	await(t, "all have run", func() bool { return r.haveRun(9, "kept") && r.haveRun(4, "changed") && r.haveRun(3, "paused") })
	kept := r.ranOf("kept")
	requireGrid(t, period, kept)
	require.Equal(t, "old", string(kept[0].Job.Payload), "it was due")
	require.Equal(t, "newer", string(kept[1].Job.Payload))
	since := func(name string, at time.Time, period time.Duration) {
		runs := r.ranOf(name)[1:]
		requireGrid(t, period, runs)
		require.True(t, runs[0].Occurrence.After(at), name)
	}
	since("changed", changed, period/2)
	since("paused", resumed, period)
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
	var once time.Time
	last := func() error { // it is the only occurrence, so none follows it
		return r.SetSchedule(within(t), "last", "@every 1h", durable.Job{Kind: kind}, durable.StartAt(once), durable.EndAt(once.Add(time.Minute)))
	}
	for ahead := 2 * time.Second; ; ahead *= 2 {
		once = engineNow(t, slow).Add(ahead).Truncate(time.Second)
		err := last()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, durable.ErrInvalid) // it was over before it was stored
	}
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
		if err := last(); !errors.Is(err, durable.ErrInvalid) { // there is no time left
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
		return slices.ContainsFunc(w.ran(), func(run run) bool { return string(run.Job.Payload) == "7" })
	})
	for _, name := range names {
		requireGrid(t, period, w.ranOf(name))
	}
}

// steppable is an engine whose clock a Queue reads as ahead.
type steppable struct {
	driver.Engine
	by atomic.Int64
}

func (e *steppable) Now(ctx context.Context) (time.Time, time.Duration, error) {
	now, off, err := e.Engine.Now(ctx)
	return now.Add(time.Duration(e.by.Load())), off, err
}

func (e *steppable) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	if read := c.Time; read != nil {
		c.Time = func(now time.Time, off time.Duration) { read(now.Add(time.Duration(e.by.Load())), off) }
	}
	return e.Engine.Work(ctx, c)
}

// A clock that was ahead is put right: schedules that were stored by it, and those whose occurrence
// has ended or runs meanwhile, go on at once. One that was canceled does not.
func scheduleClockAhead(t *testing.T, s Store) {
	e := &steppable{Engine: s.Open(t)}
	begun, release := make(chan bool, 10000), make(chan bool)
	r := open(t, e, steady).handle(kind, nil).handle("halted", nil).handle("slow", tells(begun, release)).start()
	shift := func(by time.Duration) {
		steps := r.Stats().ClockSteps
		e.by.Store(int64(by))
		await(t, "it sees the step", func() bool { return r.Stats().ClockSteps > steps })
	}
	set := func(name, kind string) { r.schedule(name, "@every 200ms", durable.Job{Kind: kind}) }
	set("first", "slow")
	set("second", "slow")
	<-begun
	<-begun
	shift(48 * time.Hour)
	set("new", kind)
	halted := durable.Pausable{Kind: "halted"} // or its occurrence may begin before it is canceled
	r.pause(halted)
	set("canceled", halted.Kind)
	r.cancelKey("every/canceled", true)
	r.resume(halted)
	release <- true // either
	await(t, "one has ended", func() bool { return r.Stats().Done == 1 })
	shift(0)
	close(release)
	await(t, "all go on", func() bool { return r.haveRun(3, "first", "second", "new") })
	require.Empty(t, r.ranOf("canceled"))
}

// A dead occurrence that is redriven when others have run since runs again, and none of those.
func scheduleRedriven(t *testing.T, s Store) {
	const period = 500 * time.Millisecond
	r := open(t, s.Open(t)).handle(kind, returns(durable.Discard(errTest))).start()
	var end time.Time
	err := durable.ErrInvalid
	for ahead := 3 * time.Second; errors.Is(err, durable.ErrInvalid); ahead *= 2 { // it has ended before it is stored
		end = r.now().Add(ahead).Truncate(time.Second)
		err = r.SetSchedule(within(t), "x", "@every 500ms", durable.Job{Kind: kind}, all, durable.EndAt(end))
	}
	r.ok(err)
	await(t, "it has come to its end", func() bool { return r.schedules()["x"].Next.IsZero() })
	before := r.ran()
	requireGrid(t, period, before)
	r.redrive(before[0].Ref)
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
	for n := attempts(w); attempts(w) < n+100; breathe() {
		require.False(t, r.schedules()["x"].Next.IsZero())
	}
}
