package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

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
