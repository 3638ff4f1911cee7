package enginetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// schedules returns the schedules by name.
func (r *rig) schedules() map[string]durable.ScheduleInfo {
	r.t.Helper()
	all := map[string]durable.ScheduleInfo{}
	for info, err := range r.Schedules(within(r.t)) {
		require.NoError(r.t, err)
		require.NotContains(r.t, all, info.Name)
		all[info.Name] = info
	}
	return all
}

// onceEach checks that no occurrence has run twice, and returns how many have.
func onceEach(t *testing.T, runs []run) int {
	t.Helper()
	seen := map[string]bool{}
	for _, run := range runs {
		at := fmt.Sprint(run.Schedule, " ", run.Occurrence.UnixMicro())
		require.False(t, seen[at], "twice: %s", at)
		seen[at] = true
	}
	return len(seen)
}

// requireGrid checks that occurrences, in the order of their time, are all multiples of a
// period, without a gap.
func requireGrid(t *testing.T, period time.Duration, runs []run) {
	t.Helper()
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
var all = durable.OnMissed(durable.RunEach(1000))

// A schedule that one process has stored goes on without it: a process that has never heard
// of it runs its occurrences, and stores what follows. They are what was stored, and are
// listed.
func scheduleStored(t *testing.T, s Store) {
	const period = 400 * time.Millisecond
	a, b := open(t, s.Open(t)), open(t, s.Open(t)).handle(kind, nil).start()
	job := full()
	job.Expires = time.Time{}
	for range 3 {
		a.schedule("tick", "@every 400ms", job, all)
	}
	a.close()
	runs := b.awaitRuns(5)
	requireGrid(t, period, runs)
	want := job
	want.Key = "every/tick"
	for _, run := range runs {
		sameJob(t, want, run.Job)
		require.Equal(t, "tick", run.Schedule)
		require.True(t, run.Due.Equal(run.Job.At) && !run.Due.Before(run.Occurrence))
	}
	info := b.schedules()["tick"]
	require.Equal(t, "@every 400ms", info.Spec)
	want.Key = ""
	sameJob(t, want, info.Job)
	require.False(t, info.Last.Before(runs[3].Occurrence), "%v", info)
	b.drain()
	info = b.schedules()["tick"]
	last := b.ran()[len(b.ran())-1].Occurrence
	require.True(t, info.Last.Equal(last), "%v, %v", info.Last, last)
	require.False(t, info.Next.Before(last.Add(period)), "%v, %v", info.Next, last)
	c := open(t, s.Open(t)).handle(kind, nil).start()
	c.awaitRuns(2)
	requireGrid(t, period, ran(b, c))
}

// An occurrence that was canceled, paused or deleted before its time and stored again for the
// same time runs.
func scheduleAgain(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	period := 4 * time.Second
	e := s.Open(t)
	names := []string{"cancel", "pause", "delete"}
	// All of it is to be between two occurrences.
	await(t, "an occurrence has just passed", func() bool {
		now := engineNow(t, e)
		return now.Sub(now.Truncate(period)) < period/8
	})
	set := func(name string) {
		r.schedule(name, "@every 4s", durable.Job{Kind: kind})
	}
	for _, name := range names {
		set(name)
	}
	first := r.schedules()
	for _, name := range names {
		switch name {
		case "pause":
			require.NoError(t, r.PauseSchedule(within(t), name))
			require.True(t, r.schedules()[name].Next.IsZero())
			require.NoError(t, r.ResumeSchedule(within(t), name))
		case "delete":
			require.NoError(t, r.DeleteSchedule(within(t), name))
			set(name)
		default:
			r.cancelKey("every/"+name, true)
			require.True(t, r.schedules()[name].Next.IsZero())
			set(name)
		}
	}
	second := r.schedules()
	r.start()
	await(t, "each has run", func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return len(r.ranOf(name)) == 0 })
	})
	for _, name := range names {
		require.NotEqual(t, first[name].Ref, second[name].Ref)
		t.Logf("%s: first %v, then %v", name, first[name].Next, second[name].Next)
	}
}

// A change takes effect soon: for what waits, and while an occurrence runs for what
// follows it.
func scheduleChanged(t *testing.T, s Store) {
	release := make(chan bool)
	r := open(t, s.Open(t)).handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) == "slow" {
			<-release
		}
		return nil
	}).start()
	set := func(spec, payload string) {
		r.schedule("x", spec, durable.Job{Kind: kind, Payload: []byte(payload)})
	}
	set("@yearly", "far")
	began := time.Now()
	set("@every 100ms", "slow")
	r.awaitRuns(1)
	t.Logf("%v until the change took effect", time.Since(began))
	require.Equal(t, "slow", string(r.ran()[0].Job.Payload))
	set("0 0 29 2 *", "never")
	set("@every 200ms", "quick")
	close(release)
	runs := r.awaitRuns(4)
	for _, run := range runs[1:] {
		require.Equal(t, "quick", string(run.Job.Payload), "%v", run)
	}
	set("@yearly", "far")
	await(t, "it is slow again", func() bool { return time.Until(r.schedules()["x"].Next) > time.Minute })
	n := len(r.ran())
	time.Sleep(time.Second)
	require.LessOrEqual(t, len(r.ran()), n+1)
}

// A schedule that is paused makes no occurrences, over restarts, until it is resumed, and
// one that is deleted makes none. An occurrence that runs meanwhile goes on, and is followed by what
// the schedule is then. RunNow runs one in any case.
func schedulePaused(t *testing.T, s Store) {
	begun, release := make(chan bool, 100), make(chan bool)
	r := open(t, s.Open(t)).handle(kind, tells(begun, release)).start()
	set := func() {
		r.schedule("x", "@every 200ms", durable.Job{Kind: kind})
	}
	quiet := func() {
		t.Helper()
		time.Sleep(time.Second)
		require.Empty(t, begun)
		require.True(t, r.schedules()["x"].Next.IsZero())
	}
	set()
	<-begun
	require.NoError(t, r.PauseSchedule(within(t), "x"))
	require.NoError(t, r.PauseSchedule(within(t), "x"), "twice")
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
	quiet()
	require.NoError(t, r.ResumeSchedule(within(t), "x"))
	<-begun
	require.NoError(t, r.PauseSchedule(within(t), "x"))
	require.NoError(t, r.ResumeSchedule(within(t), "x"), "while one runs")
	release <- true
	<-begun
	require.NoError(t, r.DeleteSchedule(within(t), "x"))
	release <- true
	await(t, "all have ended", func() bool { return r.Stats().Done == 4 })
	time.Sleep(time.Second)
	require.Empty(t, begun)
	require.Empty(t, r.schedules())
	set()
	<-begun
	require.NoError(t, r.DeleteSchedule(within(t), "x"))
	set() // anew, while one of the deleted runs
	release <- true
	<-begun
	require.NoError(t, r.DeleteSchedule(within(t), "x"))
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
	r.schedule("none", "@every 1s", job, durable.OnMissed(durable.RunNone))
	r.schedule("each", "@every 1s", job, durable.OnMissed(durable.RunEach(3)))
	time.Sleep(7 * period)
	began := time.Now()
	r.start()
	await(t, "all have run", func() bool {
		return len(r.ranOf("once")) >= 2 && len(r.ranOf("none")) >= 1 && len(r.ranOf("each")) >= 4
	})
	onceEach(t, r.ran())
	once, each := r.ranOf("once"), r.ranOf("each")
	require.Greater(t, once[1].Occurrence.Sub(once[0].Occurrence), 4*period, "one for all")
	require.Greater(t, r.ranOf("none")[0].Occurrence, began.Add(-2*period), "what was missed is left out")
	require.Greater(t, each[1].Occurrence.Sub(each[0].Occurrence), 2*period, "the first is the one that waited")
	require.Greater(t, each[1].Occurrence, each[0].at.Add(-5*period), "the last ones follow")
	made := 0
	for _, run := range each[1:] {
		if run.Occurrence.Before(each[0].at) {
			made++
		}
	}
	require.Positive(t, made)
	require.LessOrEqual(t, made, 3)
}

// An occurrence that comes due while one runs waits for its end, or is left out. Two never run at one
// time.
func scheduleOverlap(t *testing.T, s Store) {
	var wait, skip crowd
	slow := sleeps(1300 * time.Millisecond)
	r := open(t, s.Open(t)).handle("wait", wait.around(slow)).handle("skip", skip.around(slow)).start()
	r.schedule("wait", "@every 1s", durable.Job{Kind: "wait"})
	r.schedule("skip", "@every 1s", durable.Job{Kind: "skip"}, durable.SkipOverlap())
	await(t, "some have run", func() bool { return len(r.ranOf("wait")) >= 4 && len(r.ranOf("skip")) >= 3 })
	require.Equal(t, []int64{1, 1}, []int64{wait.most.Load(), skip.most.Load()})
	skipped, waited := r.ranOf("skip"), r.ranOf("wait")
	for i := 1; i < 3; i++ {
		require.GreaterOrEqual(t, skipped[i].Occurrence.Sub(skipped[i-1].Occurrence), 2*time.Second, "one is left out")
		require.True(t, skipped[i].Due.Equal(skipped[i].Occurrence), "and the next is on time")
	}
	late := 0
	for i := 1; i < 4; i++ {
		if waited[i].Due.After(waited[i].Occurrence) {
			late++
		}
	}
	require.NotZero(t, late, "one that waited is late")
}

// The start and the end of a schedule, and its jitter.
func scheduleSpan(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e).handle(kind, nil).start()
	start := engineNow(t, e).Add(8300 * time.Millisecond).Truncate(time.Microsecond) // after all is stored
	end := start.Add(time.Second)
	r.schedule("span", "@every 500ms", durable.Job{Kind: kind}, durable.StartAt(start), durable.EndAt(end), all)
	for i := range 20 {
		r.schedule(fmt.Sprint("jitter", i), "@every 1s", durable.Job{Kind: kind}, durable.Jitter(500*time.Millisecond), durable.StartAt(start), durable.EndAt(end))
	}
	require.True(t, r.schedules()["span"].Start.Equal(start) && r.schedules()["span"].End.Equal(end))
	runs := r.awaitRuns(22)
	time.Sleep(time.Second)
	require.Len(t, r.ran(), 22)
	delays := map[time.Duration]bool{}
	for _, run := range runs {
		if run.Schedule == "span" {
			require.Contains(t, []time.Duration{0, 500 * time.Millisecond}, run.Occurrence.Sub(start))
			continue
		}
		require.True(t, run.Occurrence.Equal(start))
		d := run.Due.Sub(start)
		require.True(t, d >= 0 && d < 500*time.Millisecond, "%v", d)
		delays[d] = true
	}
	require.Greater(t, len(delays), 10)
	require.True(t, r.schedules()["span"].Next.IsZero(), "it has come to its end")
}

// A schedule that there cannot be is an error that says what is wrong, and nothing is
// written.
func badSchedule(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	good := durable.Job{Kind: kind}
	for what, err := range map[string]error{
		"empty":                r.Schedule(within(t), "x", "", good),
		"name is empty":        r.Schedule(within(t), "", "@daily", good),
		"not printable":        r.Schedule(within(t), "a\nb", "@daily", good),
		"the key has":          r.Schedule(within(t), string(make([]byte, driver.MaxKey)), "@daily", good),
		"61":                   r.Schedule(within(t), "x", "61 * * * *", good),
		"zone \"Mars/Base\"":   r.Schedule(within(t), "x", "CRON_TZ=Mars/Base 0 8 * * *", good),
		"there is no time":     r.Schedule(within(t), "x", "0 0 30 2 *", good),
		"no time left":         r.Schedule(within(t), "x", "@daily", good, durable.EndAt(time.Now().Add(-time.Hour))),
		"the kind is empty":    r.Schedule(within(t), "x", "@daily", durable.Job{}),
		"Priority 9 is":        r.Schedule(within(t), "x", "@daily", durable.Job{Kind: kind, Priority: 9}),
		"OnMissed(-2)":         r.Schedule(within(t), "x", "@daily", good, durable.OnMissed(-2)),
		"Jitter(-1ns)":         r.Schedule(within(t), "x", "@daily", good, durable.Jitter(-1)),
		"beyond the year 9999": r.Schedule(within(t), "x", "@daily", good, durable.StartAt(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))),
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
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
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
					err = r.Schedule(within(t), "x", fmt.Sprintf("@every %dms", 20+20*rand.N(3)), job)
				}
				if err != nil && !errors.Is(err, durable.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, rigs[0].Schedule(within(t), "x", "@every 100ms", job, all))
	require.NoError(t, rigs[0].ResumeSchedule(within(t), "x"))
	n := len(ran(rigs...))
	t.Logf("%d runs beside the changes", n)
	await(t, "it goes on", func() bool { return len(ran(rigs...)) >= n+5 })
	onceEach(t, ran(rigs...))
	require.NoError(t, rigs[0].DeleteSchedule(within(t), "x"))
	empty(t, rigs[0])
}

// Two processes with one schedule run each occurrence once, on the grid, over restarts.
func scheduleShared(t *testing.T, s Store) {
	const period = 400 * time.Millisecond
	start := func(e driver.Engine) *rig {
		r := open(t, e).handle(kind, nil)
		for range 2 {
			r.schedule("tick", "@every 400ms", durable.Job{Kind: kind, Payload: []byte("p")})
		}
		return r.start()
	}
	a, b := start(s.Open(t)), start(s.Open(t))
	await(t, "five occurrences", func() bool { return len(ran(a, b)) >= 5 })
	a.close()
	b.close()
	c := start(s.Open(t))
	c.awaitRuns(3)
	all := ran(a, b, c)
	onceEach(t, all)
	for _, run := range all {
		require.Zero(t, run.Occurrence.UnixMicro()%period.Microseconds())
		require.Equal(t, "p", string(run.Job.Payload))
	}
	await(t, "one waits", func() bool {
		waiting := c.matching(durable.Filter{})
		for _, info := range waiting {
			require.Equal(t, "every/tick", info.Job.Key)
		}
		return len(waiting) <= 1 // the one that has run may be there for a moment
	})
}

// An occurrence that fails is tried again, and the next comes after it has died. After one was
// canceled the schedule stands still.
func scheduleFailed(t *testing.T, s Store) {
	var fail atomic.Bool
	fail.Store(true)
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return 50 * time.Millisecond })).
		handle(kind, func(context.Context, *durable.Attempt) error {
			if fail.Load() {
				return errTest
			}
			return nil
		})
	r.schedule("x", "@every 300ms", durable.Job{Kind: kind, MaxAttempts: 2})
	r.start()
	await(t, "two have died", func() bool { return r.Stats().Dead >= 2 })
	fail.Store(false)
	n := len(r.ran())
	r.awaitRuns(n + 3)
	await(t, "one is canceled between two", func() bool {
		ok, err := r.CancelKey(within(t), "every/x")
		require.NoError(t, err)
		return ok
	})
	n = len(r.ran())
	time.Sleep(1200 * time.Millisecond)
	require.Len(t, r.ran(), n, "it stands still")
}

// store stores a schedule, and an occurrence of it that is due after d, as a release with other
// plans does.
func (r *rig) store(e driver.Engine, name, plan, occurrence string, d time.Duration) durable.Ref {
	r.t.Helper()
	s := driver.Schedule{Name: name, Revision: engineNow(r.t, e).UnixMicro(), Definition: plan}
	require.NoError(r.t, e.SetSchedule(within(r.t), 0, s, func(time.Time, *driver.Record) (*driver.Record, error) {
		rec, err := durable.Job{Kind: kind, After: d}.Record(engineNow(r.t, e))
		rec.Key, rec.Schedule = driver.OccurrenceKey(name), name
		rec.Occurrence = strings.ReplaceAll(occurrence, "REV", fmt.Sprint(s.Revision))
		rec.Occurrence = strings.ReplaceAll(rec.Occurrence, "AT", fmt.Sprint(rec.Due.UnixMicro()))
		return &rec, err
	}))
	ref, err := e.Lookup(within(r.t), driver.OccurrenceKey(name))
	require.NoError(r.t, err)
	return ref
}

// Earlier releases had schedules whose times were code, and stored placeholders where they did
// not know them. What is stored of such a series ends with a line in the log: the occurrence runs,
// the placeholder does not. A call of Schedule makes it go on. An occurrence whose spec cannot be
// read is left to a newer release, unless a call of Schedule has replaced it.
func scheduleOfAnother(t *testing.T, s Store) {
	const inCode, occurrence = `{"job":{"kind":"k","max":25}}`, `{"rev":REV,"at":AT}`
	const newer = `{"spec":"@moon","job":{"kind":"k","max":25}}`
	var log bytes.Buffer
	e := s.Open(t)
	r := open(t, e, durable.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).handle(kind, nil)
	refs := map[string]durable.Ref{
		"ends":    r.store(e, "ends", inCode, occurrence, 0),
		"older":   r.store(e, "older", inCode, "", 0),
		"pass":    r.store(e, "pass", inCode, `{"rev":REV,"at":AT,"pass":true}`, 0),
		"due":     r.store(e, "due", inCode, occurrence, 0),
		"far":     r.store(e, "far", inCode, occurrence, time.Hour),
		"newer":   r.store(e, "newer", newer, `{"spec":"@moon","rev":REV,"at":AT}`, 0),
		"changed": r.store(e, "changed", newer, `{"spec":"@moon","rev":REV,"at":AT}`, 0),
	}
	require.ErrorIs(t, r.ResumeSchedule(within(t), "ends"), durable.ErrInvalid)
	require.ErrorIs(t, r.ResumeSchedule(within(t), "newer"), durable.ErrInvalid)
	goOn := []string{"due", "far", "changed"}
	for _, name := range goOn {
		r.schedule(name, "@every 300ms", durable.Job{Kind: kind})
	}
	r.start()
	await(t, "those that go on have run", func() bool {
		return !slices.ContainsFunc(goOn, func(name string) bool { return len(r.ranOf(name)) < 3 })
	})
	await(t, "the others have ended", func() bool {
		all := r.schedules()
		return all["ends"].Next.IsZero() && all["older"].Next.IsZero() && all["pass"].Next.IsZero()
	})
	r.drain()
	onceEach(t, r.ran())
	for _, name := range []string{"ends", "older"} {
		require.Len(t, r.ranOf(name), 1, name)
		require.Equal(t, refs[name], r.ranOf(name)[0].Ref)
	}
	require.Empty(t, r.ranOf("pass"))
	require.Empty(t, r.ranOf("newer"))
	for _, name := range goOn {
		require.Equal(t, name == "due", r.ranOf(name)[0].Ref == refs[name], "%s: what waits is replaced, unless it may run", name)
		for _, run := range r.ranOf(name)[1:] {
			require.Zero(t, run.Occurrence.UnixMicro()%(300*time.Millisecond).Microseconds())
		}
	}
	require.Equal(t, refs["newer"], r.schedules()["newer"].Ref)
	for _, name := range []string{"ends", "older", "pass"} {
		line := `level=ERROR msg="durable: a schedule ends; no occurrence can follow" name=` + name
		require.Equal(t, 1, strings.Count(log.String(), line), "%s: %s", name, &log)
	}
	require.Equal(t, 1, strings.Count(log.String(), `level=WARN msg="durable: cannot read the spec of a schedule; other workers run its jobs" name=newer`), "%s", &log)
	require.NoError(t, r.DeleteSchedule(within(t), "newer"))
}
