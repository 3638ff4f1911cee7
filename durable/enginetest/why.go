package enginetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// plant has what plants a cause. Each has a kind of its own, so that all share a store.
type plant struct {
	*rig
	s    Store
	kind string
	held map[durable.Ref]*driver.Delivery
}

// causes plants each cause that keeps a job from running, and asks for it.
var causes = []struct {
	kind  string
	plant func(*plant)
}{
	{"not due", whyNotDue}, {"retry", whyRetry}, {"clock", whyClock}, {"expired", whyExpired},
	{"paused", whyPaused}, {"rate", whyRate}, {"full", whyFull}, {"lanes", whyLanes},
	{"nobody's", whyNoWorker}, {"of many", whyManyKinds}, {"busy", whyBusy}, {"soon", whySoon},
	{"claimed", whyClaimed}, {"lost", whyLost}, {kind, whyKey}, {"ended", whyEnded}, {"every", whySchedules},
}

// Each cause that keeps a job from running is the answer of Why, with its facts.
func why(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	for _, c := range causes {
		c.plant(&plant{rig: r, s: s, kind: c.kind, held: map[durable.Ref]*driver.Delivery{}})
	}
}

// worker returns a worker of the plant's kind that lives until the end of the test.
func (p *plant) worker(name string) *crashing {
	return newCrashing(p.t, p.engine, name, func(c *driver.WorkConfig) {
		c.Kinds, c.Lease = driver.NewKindSet([]string{p.kind}), time.Hour
	})
}

// due adds a job that is due.
func (p *plant) due(j durable.Job) durable.Ref {
	j.Kind = p.kind
	return p.add(j)[0]
}

// claimed adds a job, which the worker claims.
func (p *plant) claimed(w *crashing, j durable.Job) durable.Ref {
	ref := p.due(j)
	p.held[ref] = w.take(ref)
	w.granted(p.held[ref])
	return ref
}

// because checks the cause of a job, as soon as the engine knows it.
func (p *plant) because(cause durable.Cause, ref durable.Ref) durable.Reason {
	got := p.reason(cause, func(ctx context.Context) (durable.Reason, error) { return p.Why(ctx, ref) })
	require.Equal(p.t, ref, got.Job.Ref)
	return got
}

func (p *plant) reason(cause durable.Cause, ask func(context.Context) (durable.Reason, error)) (got durable.Reason) {
	await(p.t, "the cause is "+string(cause), func() bool {
		was, err := got.Cause, error(nil)
		got, err = ask(within(p.t))
		p.ok(err)
		if got.Cause != was {
			p.t.Logf("%s: %s", got.Cause, got.Text)
		}
		return got.Cause == cause
	})
	require.NotEmpty(p.t, got.Text)
	return got
}

// of returns the names of workers, and the kinds of each.
func of(workers []durable.WorkerInfo) (all []string) {
	for _, w := range workers {
		all = append(all, fmt.Sprint(w.Name, " ", w.Kinds))
	}
	return all
}

// on returns the Refs of running jobs, and the worker of each.
func on(running []durable.Info) (all []string) {
	for _, i := range running {
		all = append(all, fmt.Sprint(i.Ref, " on ", i.Worker))
	}
	return all
}

func whyNotDue(p *plant) {
	ref := p.due(durable.Job{After: time.Hour, Key: "of one that is not due"})
	due := p.get(ref).Due
	require.True(p.t, p.because(durable.CauseNotDue, ref).Until.Equal(due))
	p.reschedule(ref, due.Add(-30*time.Minute), true)
	require.True(p.t, p.because(durable.CauseNotDue, ref).Until.Equal(due.Add(-30*time.Minute)))
}

func whyRetry(p *plant) {
	w := p.worker("retries")
	ref := p.claimed(w, durable.Job{Key: "of one that has failed"})
	w.end(p.held[ref], driver.Retry)
	got := p.because(durable.CauseRetry, ref)
	require.Contains(p.t, got.Text, "failed: x.")
	require.Empty(p.t, got.Job.Worker)
	require.True(p.t, got.Until.Equal(p.get(ref).Due))
	p.reschedule(ref, p.now(), true)
	p.because(durable.CauseSoon, ref)
}

// behind is an engine whose clock is behind that of this machine.
type behind struct {
	driver.Engine
	by time.Duration
}

func (e behind) Now(ctx context.Context) (time.Time, time.Duration, error) {
	now, off, err := e.Engine.Now(ctx)
	return now.Add(-e.by), off, err
}

func whyClock(p *plant) {
	q, err := durable.Open(within(p.t), behind{p.s.Open(p.t), 2 * time.Hour})
	p.ok(err)
	defer q.Close()
	for after, want := range map[time.Duration]durable.Cause{0: durable.CauseClock, time.Hour: durable.CauseNotDue} {
		ref := p.due(durable.Job{After: after}) // maybe by a clock that is a moment ahead of this machine's
		got := p.reason(want, func(ctx context.Context) (durable.Reason, error) { return q.Why(ctx, ref) })
		require.True(p.t, got.Until.Equal(got.Job.Due))
		require.WithinDuration(p.t, time.Now().Add(-2*time.Hour), got.Now, patience)
	}
}

func whyExpired(p *plant) {
	refs, _ := p.addExpiring(time.Second, durable.Job{Kind: p.kind})
	p.because(durable.CauseExpired, refs[0])
}

func whyPaused(p *plant) {
	p.worker("paused")
	ref := p.due(durable.Job{Lane: "eu"})
	p.because(durable.CauseSoon, ref)
	for _, what := range []durable.Pausable{{}, {Kind: p.kind}, {Lane: "eu"}, {Kind: p.kind, Lane: "eu"}} {
		p.pause(durable.Pausable{Kind: "another"})
		p.pause(durable.Pausable{Kind: p.kind, Lane: "us"})
		p.pause(what)
		require.Equal(p.t, what, p.because(durable.CausePaused, ref).Pause.Pausable)
		p.resume(what)
		p.because(durable.CauseSoon, ref)
		p.resume(durable.Pausable{Kind: p.kind, Lane: "us"})
		p.resume(durable.Pausable{Kind: "another"})
	}
	what := durable.Pausable{Kind: p.kind}
	p.ok(p.PauseFor(within(p.t), what, time.Hour))
	reason := p.because(durable.CausePaused, ref)
	require.Equal(p.t, reason.Pause.Until, reason.Until)
	require.True(p.t, reason.Until.After(reason.Now))
	p.pause(durable.Pausable{}) // which has no end
	require.Zero(p.t, p.because(durable.CausePaused, ref).Until)
	p.resume(durable.Pausable{})
	p.resume(what)
}

func whyRate(p *plant) {
	p.limit("hourly", durable.Limit{Kind: p.kind, Rate: 1.0 / 3600, Burst: 1, Running: 1})
	w := p.worker("rated")
	first := p.claimed(w, durable.Job{})
	got := p.because(durable.CauseRate, p.due(durable.Job{}))
	require.Equal(p.t, "hourly", got.Limit.Name)
	require.WithinDuration(p.t, got.Now.Add(time.Hour), got.Until, patience)
	require.True(p.t, got.Until.Equal(got.Limit.Next))
	w.end(p.held[first], driver.Done)
	p.unlimit("hourly")
}

func whyFull(p *plant) {
	p.limit("two", durable.Limit{Kind: p.kind, Running: 2})
	p.limit("wide", durable.Limit{Running: 1000})
	w := p.worker("full")
	a, b := p.claimed(w, durable.Job{}), p.claimed(w, durable.Job{})
	next := p.due(durable.Job{})
	got := p.because(durable.CauseLimit, next)
	require.Equal(p.t, &durable.LimitInfo{Name: "two", Limit: durable.Limit{Kind: p.kind, Running: 2}, Taken: 2}, got.Limit)
	require.ElementsMatch(p.t, []string{string(a) + " on full", string(b) + " on full"}, on(got.Running))
	require.Zero(p.t, got.First)
	last := p.due(durable.Job{})
	require.Equal(p.t, 1, p.because(durable.CauseTurn, last).First)
	require.Equal(p.t, 2, p.because(durable.CauseTurn, p.due(durable.Job{Priority: durable.Low})).First)
	p.because(durable.CauseLimit, p.due(durable.Job{Priority: durable.High}))
	require.Equal(p.t, 2, p.because(durable.CauseTurn, last).First)
	p.because(durable.CauseLimit, p.due(durable.Job{Lane: "another", Priority: durable.High}))
	require.Equal(p.t, 2, p.because(durable.CauseTurn, last).First, "of its lane")
	w.end(p.held[a], driver.Done)
	p.because(durable.CauseBusy, next)
	p.unlimit("two")
	p.unlimit("wide")
}

func whyLanes(p *plant) {
	p.limit("each", durable.Limit{Kind: p.kind, PerLane: true, Running: 1})
	w := p.worker("lanes")
	first := p.claimed(w, durable.Job{Lane: "eu"})
	p.claimed(w, durable.Job{Lane: "us"})
	got := p.because(durable.CauseLimit, p.due(durable.Job{Lane: "eu"}))
	require.Equal(p.t, 1, got.Limit.Taken)
	require.Equal(p.t, []string{string(first) + " on lanes"}, on(got.Running))
	p.because(durable.CauseBusy, p.due(durable.Job{Lane: "asia"}))
	p.because(durable.CauseBusy, p.due(durable.Job{}))
	p.unlimit("each")
}

func whyNoWorker(p *plant) {
	other := plant{rig: p.rig, kind: "known"}
	other.worker("others")
	got := p.because(durable.CauseNoKind, p.due(durable.Job{}))
	require.Contains(p.t, of(got.Workers), "others [known]")
	require.Contains(p.t, got.Text, "others (kinds: known)")
}

// A worker stores only the first of many kinds.
func whyManyKinds(p *plant) {
	many := []string{p.kind}
	for i := range 2 * driver.ShownKinds {
		many = append(many, fmt.Sprintf("k%d", i))
	}
	ref, nobodys := p.due(durable.Job{}), p.add(durable.Job{Kind: "z"})[0]
	w := newCrashing(p.t, p.engine, "many", func(c *driver.WorkConfig) { c.Kinds, c.Lease = driver.NewKindSet(many), time.Hour })
	p.because(durable.CauseSoon, ref)
	p.because(durable.CauseNoKind, nobodys)
	w.stop()
	p.ok(w.Close(within(p.t))) // what it has a handler for is not known to the other plants
}

func whyBusy(p *plant) {
	w := p.worker("busy")
	has := p.claimed(w, durable.Job{})
	next := p.due(durable.Job{})
	got := p.because(durable.CauseBusy, next)
	require.Equal(p.t, []string{"busy [busy]"}, of(got.Workers))
	require.Equal(p.t, []string{string(has) + " on busy"}, on(got.Running))
	p.worker("idle")
	p.because(durable.CauseSoon, next)
}

func whySoon(p *plant) {
	ref := p.due(durable.Job{})
	p.because(durable.CauseNoKind, ref)
	w := p.worker("soon")
	w.take(ref)
	require.Equal(p.t, []string{"soon [soon]"}, of(p.because(durable.CauseSoon, ref).Workers))
}

func whyClaimed(p *plant) {
	meta := map[string]string{"tag": p.kind}
	ref := p.claimed(p.worker("claims"), durable.Job{Meta: meta, Timeout: time.Minute})
	got := p.because(durable.CauseRunning, ref)
	require.Equal(p.t, []string{"claims [claimed]"}, of(got.Workers))
	require.Equal(p.t, "claims", got.Job.Worker)
	require.Contains(p.t, got.Text, "attempt 1, with a Timeout of 1m0s.")
	for _, f := range []durable.Filter{{Kind: p.kind}, {Meta: meta}} {
		require.Equal(p.t, "claims", p.matching(f)[0].Worker)
		listed, _, err := p.List(within(p.t), f, "", 1)
		p.ok(err)
		require.Equal(p.t, "claims", listed[0].Worker)
	}
	require.WithinDuration(p.t, got.Now.Add(time.Hour), got.Until, patience)
}

func whyLost(p *plant) {
	w := newCrashing(p.t, p.engine, "lost", func(c *driver.WorkConfig) { c.Kinds = driver.NewKindSet([]string{p.kind}) })
	ref := p.claimed(w, durable.Job{})
	got := p.because(durable.CauseLost, ref)
	require.Equal(p.t, "lost", got.Job.Worker)
	require.False(p.t, got.Until.After(got.Now))
}

// A job that has freed its key, and was handed back, ends if a newer one has the key.
func whyKey(p *plant) {
	w := p.worker("keyed")
	one, h := claimedKey(p.rig, w)
	newer := p.add(keyed(durable.Refuse, ""))[0]
	w.release(h, 0)
	require.Equal(p.t, newer, p.because(durable.CauseKey, one).Holder)
	p.because(durable.CauseNotDue, newer)
}

func whyEnded(p *plant) {
	w := p.worker("ends")
	dead, done, canceled := p.claimed(w, durable.Job{}), p.claimed(w, durable.Job{}), p.due(durable.Job{After: time.Hour})
	w.end(p.held[dead], driver.DeadLetter)
	require.Contains(p.t, p.because(durable.CauseDead, dead).Text, "after 1 of 25 attempts: x.")
	w.end(p.held[done], driver.Done)
	p.cancel(canceled, true, "it waits")
	for _, ref := range []durable.Ref{done, canceled} {
		await(p.t, "it is gone", func() bool {
			_, err := p.Why(within(p.t), ref)
			return err != nil
		})
		_, err := p.Why(within(p.t), ref)
		require.ErrorIs(p.t, err, durable.ErrNotFound)
		require.ErrorContains(p.t, err, "was done, canceled or deleted")
	}
	for _, ref := range []durable.Ref{"", "no Ref"} {
		_, err := p.Why(within(p.t), ref)
		require.ErrorIs(p.t, err, durable.ErrNotFound)
	}
}

func whySchedules(p *plant) {
	because := func(cause durable.Cause) durable.Reason {
		return p.reason(cause, func(ctx context.Context) (durable.Reason, error) { return p.WhySchedule(ctx, "s") })
	}
	_, err := p.WhySchedule(within(p.t), "s")
	require.ErrorIs(p.t, err, durable.ErrNotFound)
	start := p.now().Add(time.Hour)
	p.schedule("s", "@every 1h", durable.Job{Kind: p.kind}, durable.StartAt(start))
	require.WithinDuration(p.t, start, because(durable.CauseNotDue).Until, time.Millisecond)
	p.ok(p.PauseSchedule(within(p.t), "s"))
	because(durable.CauseSchedulePaused)
	p.ok(p.ResumeSchedule(within(p.t), "s"))
	because(durable.CauseNotDue)
	p.cancelKey(driver.OccurrenceKey("s"), true)
	because(durable.CauseScheduleCanceled)
	err = durable.ErrInvalid
	for ahead := time.Second; errors.Is(err, durable.ErrInvalid); ahead *= 2 { // it has ended before it is stored
		soon := p.now().Add(ahead)
		err = p.SetSchedule(within(p.t), "s", "@every 1h", durable.Job{Kind: p.kind}, durable.StartAt(soon), durable.EndAt(soon.Add(time.Second)))
	}
	p.ok(err)
	because(durable.CauseNoKind)
	p.cancelKey(driver.OccurrenceKey("s"), true)
	because(durable.CauseScheduleEnded)
}
