package enginetest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// apart returns by how much the clocks of processes may differ. A Queue knows its engine's clock at least as well as the
// answer at its Open was quick.
func apart(rigs ...*rig) (most time.Duration) {
	for _, r := range rigs {
		most = max(most, 500*time.Millisecond+r.opened)
	}
	return most
}

// cooled returns when each stored pause of a queue ends, or has ended: the next change removes one that has, and a slow
// machine may not see it before.
func (r *rig) cooled() (until []time.Time) {
	for _, p := range readFlowControl(r.t, r.engine).Pauses() {
		require.False(r.t, p.Until.IsZero())
		until = append(until, p.Until)
	}
	return until
}

// requireBeganAfter checks that runs of some processes have begun at a time by the engine's clock, or later.
func requireBeganAfter(until time.Time, runs []run, rigs ...*rig) {
	r, asked := rigs[0], time.Now()
	offset := r.now().Sub(asked) // or more by the time that the answer takes: never less
	for _, x := range runs {
		require.WithinRange(r.t, x.at.Add(offset), until.Add(-apart(rigs...)), until.Add(patience), "it begins within the pause")
	}
}

// After PauseFor has returned no job is claimed until the pause ends, by the engine's clock.
func pauseForClaims(t *testing.T, s Store) {
	r, e := open(t, s.Open(t)), s.Open(t)
	w := newCrashing(t, e, "w", func(c *driver.WorkConfig) { c.Lease = time.Minute })
	h := w.take(r.add(durable.Job{Kind: kind, Lane: "l"})[0])
	const d = 2 * time.Second
	asked := r.now()
	r.ok(r.PauseFor(within(t), durable.Pausable{Kind: kind, Lane: "l"}, d))
	until := r.cooled()[0]
	require.WithinRange(t, until, asked.Add(d-apart(r)), r.now().Add(d+apart(r)))
	v := w.claim(h, false)
	for ; v.Status != driver.Granted; v = w.claim(h, true) {
		require.Equal(t, driver.Throttled, v.Status)
		require.Zero(t, v.Limit)
		require.LessOrEqual(t, v.After, driver.RetryInterval)
		require.True(t, engineNow(t, e).Before(until.Add(patience)), "it ends by itself")
		breathe()
	}
	require.False(t, engineNow(t, e).Before(until.Add(-apart(r))), "it is claimed before the end")
	require.Equal(t, 1, v.Attempt)
	require.ErrorIs(t, r.Resume(within(t), durable.Pausable{Kind: kind, Lane: "l"}), durable.ErrNotFound, "it has ended")
	r.pause(durable.Pausable{Kind: "other"})
	require.Len(t, readFlowControl(t, e).Pauses(), 1, "the next change removes it")
}

// While a pause has not ended no job begins, in any process; then all that waited run, without a notice.
func pauseForEnds(t *testing.T, s Store) {
	a, b := open(t, s.Open(t), steady).handle(kind, nil).start(), open(t, s.Open(t), steady).handle(kind, nil).start()
	for _, what := range []durable.Pausable{{Kind: kind}, {Lane: "l"}} {
		n := attempts(a, b)
		a.ok(a.PauseFor(within(t), what, time.Second))
		a.ok(b.PauseFor(within(t), what, 3*time.Second)) // the later end counts
		a.ok(a.PauseFor(within(t), what, time.Millisecond))
		until := a.cooled()
		require.Len(t, until, 1)
		refs := append(a.add(times(100, durable.Job{Kind: kind, Lane: "l"})...), b.add(times(100, durable.Job{Kind: kind, Lane: "l"})...)...)
		a.awaitGone(refs...)
		runs := ran(a, b)
		require.Len(t, runs, n+len(refs))
		slices.SortFunc(runs, func(x, y run) int { return x.at.Compare(y.at) })
		requireBeganAfter(until[0], runs[n:], a, b)
		await(t, "it has ended", func() bool {
			paused, err := a.Paused(within(t))
			a.ok(err)
			return len(paused) == 0
		})
	}
}

// No job of the kind begins, in any process, from when a cooldown is stored until it ends. Then all go on, and
// the attempt that asked for it does not count.
func cooldown(t *testing.T, s Store) {
	const d, jobs = 3 * time.Second, 20
	first := make(chan error, 1)
	first <- durable.Cooldown(d, errTest)
	h := func(context.Context, *durable.Attempt) error {
		select {
		case err := <-first:
			return err
		default:
			return nil
		}
	}
	a, b := open(t, s.Open(t), steady).handle(kind, h).handle("other", nil).start(), open(t, s.Open(t), steady).handle(kind, h).start()
	asked := a.now()
	ref := a.add(durable.Job{Kind: kind, MaxAttempts: 2})[0]
	var until []time.Time
	await(t, "it is stored", func() bool { until = a.cooled(); return len(until) > 0 })
	require.WithinRange(t, until[0], asked.Add(d-apart(a, b)), a.now().Add(d+apart(a, b)))
	refs := append(a.add(times(jobs/2, durable.Job{Kind: kind})...), b.add(times(jobs/2, durable.Job{Kind: kind, Lane: "l"})...)...)
	a.awaitGone(a.add(durable.Job{Kind: "other"})[0])
	if info, err := a.Get(within(t), ref); err == nil && info.State == durable.Waiting {
		require.Equal(t, errTest.Error(), info.LastError)
	}
	a.awaitGone(append(refs, ref)...)
	runs := slices.DeleteFunc(ran(a, b), func(x run) bool { return x.Job.Kind != kind })
	slices.SortFunc(runs, func(x, y run) int { return x.at.Compare(y.at) })
	require.Len(t, runs, jobs+2)
	require.Equal(t, ref, runs[0].Ref)
	requireBeganAfter(until[0], runs[1:], a, b)
	for _, x := range runs {
		require.Equal(t, 1, x.Number, "the attempt does not count")
	}
	await(t, "it is counted as a snooze", func() bool { return a.Stats().Snoozed+b.Stats().Snoozed == 1 })
	require.Zero(t, a.Stats().Failed+b.Stats().Failed)
}

// requirePaused checks that there is one pause, without an end.
func (r *rig) requirePaused(what durable.Pausable) {
	paused, err := r.Paused(within(r.t))
	r.ok(err)
	require.Len(r.t, paused, 1)
	require.Equal(r.t, durable.Pause{Pausable: what, Since: paused[0].Since}, paused[0], "an operator's pause stays")
}

// Of cooldowns that overlap the latest end counts, whichever is stored first. Resume ends it, and its job goes on
// at once. A Pause of the same jobs stays.
func cooldownsOverlap(t *testing.T, s Store) {
	d := make(chan time.Duration)
	h := func(_ context.Context, a *durable.Attempt) error {
		if a.Job.Lane == "l" {
			return durable.Cooldown(<-d, errTest)
		}
		return nil
	}
	a, b := open(t, s.Open(t), steady).handle(kind, h), open(t, s.Open(t), steady).handle(kind, h)
	a.start()
	b.start()
	what := durable.Pausable{Kind: kind, Lane: "l"}
	for i, order := range [][]time.Duration{{2 * time.Hour, time.Hour}, {time.Hour, 2 * time.Hour}} {
		n := attempts(a, b)
		refs := a.add(times(2, durable.Job{Kind: kind, Lane: "l"})...)
		await(t, "both run", func() bool { return attempts(a, b) == n+2 })
		for k, x := range order {
			d <- x
			await(t, "it is stored", func() bool { return a.Stats().Snoozed+b.Stats().Snoozed == int64(4*i+k+1) })
		}
		until := a.cooled()
		require.Len(t, until, 1)
		require.WithinRange(t, until[0], a.now().Add(2*time.Hour-patience), a.now().Add(2*time.Hour+apart(a, b)))
		a.awaitGone(a.add(durable.Job{Kind: kind})[0]) // of no lane
		if i == 1 {
			a.pause(what)
			a.requirePaused(what)
		}
		a.resume(what)
		n += 3
		await(t, "both run again", func() bool { return attempts(a, b) == n+2 })
		a.pause(what)
		a.ok(a.PauseFor(within(t), what, time.Millisecond))
		d <- time.Millisecond
		d <- time.Hour
		await(t, "both are stored", func() bool { return a.Stats().Snoozed+b.Stats().Snoozed == int64(4*i+4) })
		a.requirePaused(what)
		n = attempts(a, b)
		time.Sleep(1200 * time.Millisecond)
		require.Equal(t, n, attempts(a, b))
		for _, ref := range refs {
			ok, err := a.Cancel(within(t), ref)
			a.ok(err)
			require.True(t, ok, "it waits")
		}
		a.resume(what)
	}
}

// unnotified is an engine whose workers get no notice of changed limits and pauses: they know of one up to a second later.
type unnotified struct{ driver.Engine }

func (e unnotified) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	notify := c.Notify
	c.Notify = func(n driver.Notice) {
		n.FlowControl = false
		notify(n)
	}
	return e.Engine.Work(ctx, c)
}

// A cooldown is stored though the worker of its handler still knows a pause of the same jobs that another process
// has resumed: one that was a cooldown of the worker's own, one with an end, or one without.
func cooldownAfterResume(t *testing.T, s Store) {
	release := make(chan bool)
	a, b := open(t, unnotified{s.Open(t)}, steady), open(t, s.Open(t))
	a.handle(kind, func(context.Context, *durable.Attempt) error {
		<-release
		time.Sleep(time.Nanosecond) // in a bubble, too, it is no whole microsecond
		return durable.Cooldown(time.Hour, errTest)
	}).start()
	what := durable.Pausable{Kind: kind}
	const known = 1200 * time.Millisecond // a worker knows a pause after this, or the test shows nothing
	for _, pause := range []func(){
		func() {
			release <- true
			await(t, "it is stored", func() bool { return a.Stats().Snoozed == 1 })
		},
		func() { b.ok(b.PauseFor(within(t), what, 2*time.Hour)); time.Sleep(known) },
		func() { b.pause(what); time.Sleep(known) },
	} {
		n := attempts(a)
		refs := a.add(times(2, durable.Job{Kind: kind})...)
		await(t, "both run", func() bool { return attempts(a) == n+2 })
		pause()
		b.resume(what)
		ended := a.Stats().Snoozed
		release <- true
		await(t, "its end is stored", func() bool { return a.Stats().Snoozed > ended })
		until := b.cooled()
		require.Len(t, until, 1, "the cooldown is stored")
		require.WithinRange(t, until[0], b.now().Add(time.Hour-patience), b.now().Add(time.Hour+apart(a, b)))
		for _, ref := range refs {
			await(t, "it waits", func() bool {
				select {
				case release <- true: // to the one that still runs
				default:
				}
				return b.get(ref).State == durable.Waiting
			})
		}
		require.ElementsMatch(t, refs, b.listed(durable.Filter{State: durable.Waiting}, 1))
		a.cancelAll(refs)
		b.resume(what)
	}
}

// A cooldown is stored though the job of its handler was canceled, or the attempt was cut off, as its worker ends.
func cooldownOfTheInterrupted(t *testing.T, s Store) {
	begun := make(chan bool, 1)
	h := func(ctx context.Context, _ *durable.Attempt) error {
		begun <- true
		<-ctx.Done()
		return durable.Cooldown(time.Hour, ctx.Err())
	}
	a, b := open(t, s.Open(t), steady, durable.WithGrace(time.Millisecond)).handle(kind, h).start(), open(t, s.Open(t), steady)
	ref := a.add(durable.Job{Kind: kind})[0]
	<-begun
	_, err := a.CancelRunning(within(t), ref)
	a.ok(err)
	a.awaitGone(ref)
	require.Len(t, b.cooled(), 1)
	b.resume(durable.Pausable{Kind: kind})

	for _, job := range []durable.Job{{Kind: kind}, {Kind: kind, Key: "k", FreeWhenBegun: true}} {
		ref = a.add(job)[0]
		<-begun
		a.drain()
		require.Len(t, b.cooled(), 1)
		info := b.get(ref)
		require.Equal(t, durable.Waiting, info.State)
		require.Zero(t, info.Attempt)
		b.cancel(ref, true, "it waits")
		b.resume(durable.Pausable{Kind: kind})
		a.start()
	}
}

// A job that asks for a cooldown in its only attempt has it again, with its signal, and gives its permit to other lanes.
func cooldownKeepsTheJob(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady)
	r.limit("one", durable.Limit{Kind: kind, Running: 1})
	first := true
	r.handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if a.Job.Lane == "l" && first {
			first = false
			return fmt.Errorf("wrapped: %w", durable.RetryAfter(time.Hour, durable.Cooldown(2*time.Second, errTest)))
		}
		return nil
	}).start()
	ref := r.add(durable.Job{Kind: kind, Lane: "l", MaxAttempts: 1, Signals: true, Key: "k", After: time.Hour})[0]
	require.True(t, r.is(r.Signal(within(t), "k", []byte("x"))))
	await(t, "it is stored", func() bool { return len(r.cooled()) == 1 })
	until := r.cooled()[0]
	r.awaitGone(r.add(durable.Job{Kind: kind, Lane: "other"})[0])
	r.awaitGone(ref)
	runs := slices.DeleteFunc(r.ran(), func(x run) bool { return x.Ref != ref })
	require.Equal(t, []int{1, 1}, numbers(runs))
	require.Equal(t, "x", string(runs[1].Signal))
	requireBeganAfter(until, runs[1:], r)
}
