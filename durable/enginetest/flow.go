package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// taken returns the number of permits taken of all limits.
func (r *rig) taken() (n int) {
	all, err := r.engine.Usage(within(r.t))
	r.ok(err)
	for _, u := range all {
		n += u.Taken
	}
	return n
}

// crowd counts the handlers that run at a time.
type crowd struct{ inside, most atomic.Int64 }

// around returns a handler that is counted while it runs.
func (c *crowd) around(f handler) handler {
	return func(ctx context.Context, a *durable.Attempt) error {
		n := c.inside.Add(1)
		defer c.inside.Add(-1)
		for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
		}
		return f(ctx, a)
	}
}

// exact is what a Delivery is claimed exactly with.
func exact(h *driver.Delivery) []*driver.Delivery {
	h.Exact = true
	return []*driver.Delivery{h}
}

// A claim takes a permit with it, or nothing. Its end gives it back, once, whichever end; a worker that
// takes over has the permit of the dead one; and a claim that is asked for once more has one permit.
func limitClaims(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	r.limit("two", durable.Limit{Kind: kind, Running: 2})
	a := newCrashing(t, r.engine, "a")
	hs := a.takeAll(r.add(times(4, durable.Job{Kind: kind})...))
	require.Equal(t, driver.Throttled, a.claim(hs[0], false).Status, "not asked exactly")
	require.Equal(t, 1, a.granted(hs[0]), "a refusal is no attempt")
	a.granted(hs[0]) // asked once more
	require.Equal(t, 1, r.taken())
	a.granted(hs[1])
	v := a.claim(hs[2], true)
	require.Equal(t, driver.Throttled, v.Status)
	a.granted(hs[1]) // asked once more, of two that have all the permits
	require.Equal(t, readFlowControl(t, r.engine).Limits()[0].ID, v.Limit)
	require.Positive(t, v.After)
	require.Equal(t, durable.Waiting, r.get(hs[2].Ref).State)

	a.end(hs[0], driver.Done)
	require.Equal(t, 1, r.taken())
	r.pause(durable.Pausable{Kind: kind})
	v = a.claim(hs[2], true)
	require.Equal(t, driver.Throttled, v.Status, "paused")
	require.Zero(t, v.Limit)
	r.resume(durable.Pausable{Kind: kind})
	await(t, "it is known that it is paused no longer", func() bool {
		readFlowControl(t, r.engine) // as a Queue does
		return a.claim(hs[2], true).Status == driver.Granted
	})
	a.release(hs[2], time.Hour)
	require.Equal(t, 1, r.taken(), "given back")
	a.end(hs[1], driver.Retry)
	require.Equal(t, 0, r.taken())

	a.granted(hs[3])
	b := newCrashing(t, s.Open(t), "b")
	a.stop() // it sends no more heartbeats
	h := b.take(hs[3].Ref)
	await(t, "taken over", func() bool { return b.claim(h, true).Status == driver.Granted })
	require.Equal(t, 1, r.taken(), "the permit goes with the job")
	b.end(h, driver.DeadLetter)
	require.Equal(t, 0, r.taken())
}

// readFlowControl returns the limits and pauses that an engine has stored, which it then knows.
func readFlowControl(t testing.TB, e driver.Engine) *driver.FlowControl {
	f, err := e.FlowControl(within(t))
	require.NoError(t, err)
	return f
}

// Limits and pauses are stored on a condition, so that of two changes at one time none is
// lost, and are there after a restart.
func flowControlStored(t *testing.T, s Store) {
	rigs := []*rig{open(t, s.Open(t)), open(t, s.Open(t)), open(t, s.Open(t))}
	atOnce(3, func(i int) {
		for k := range 5 {
			assert.NoError(t, rigs[i].SetLimit(within(t), fmt.Sprintf("l%d-%d", i, k), durable.Limit{Running: 1 + k, PerLane: true}))
			assert.NoError(t, rigs[i].Pause(within(t), durable.Pausable{Lane: fmt.Sprint(i), Kind: fmt.Sprint(k)}))
		}
	})
	s.Restart(t)
	r := open(t, s.Open(t))
	var names []string
	for i, err := range r.Limits(within(t)) {
		require.NoError(t, err)
		names = append(names, i.Name)
	}
	require.Len(t, names, 15)
	require.True(t, slices.IsSorted(names))
	paused, err := r.Paused(within(t))
	require.NoError(t, err)
	require.Len(t, paused, 15)
	r.resume(paused[7].Pausable)
	require.ErrorIs(t, r.Resume(within(t), paused[7].Pausable), durable.ErrNotFound)
	r.unlimit("l0-0")
	require.ErrorIs(t, r.DeleteLimit(within(t), "l0-0"), durable.ErrNotFound)

	was := readFlowControl(t, r.engine)
	r.unlimit("l0-1")
	now := readFlowControl(t, r.engine)
	late := driver.NewFlowControl(now.Revision()+1, was.Limits(), was.Pauses())
	require.ErrorIs(t, r.engine.SetFlowControl(within(t), was.Revision(), late), driver.ErrChanged)
	require.Equal(t, now.Revision(), readFlowControl(t, r.engine).Revision())
}

// A change to the revision that was read stores nothing: it confirms the reading, or returns ErrChanged if that is
// old. The same holds where nothing was ever stored.
func confirms(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	e, ctx := r.engine, within(t)
	none := readFlowControl(t, e)
	r.ok(e.SetFlowControl(ctx, none.Revision(), none))
	never := driver.Schedule{Name: "s"}
	r.ok(e.SetSchedule(ctx, 0, never, nil))
	_, err := e.Schedule(ctx, "s")
	require.ErrorIs(t, err, driver.ErrNotFound)
	require.Empty(t, r.schedules())

	r.pause(durable.Pausable{Lane: "l"})
	r.schedule("s", "@daily", durable.Job{Kind: kind})
	flow := readFlowControl(t, e)
	schedule, err := e.Schedule(ctx, "s")
	r.ok(err)
	next := r.lookup(driver.OccurrenceKey("s"))
	require.ErrorIs(t, e.SetFlowControl(ctx, none.Revision(), none), driver.ErrChanged)
	require.ErrorIs(t, e.SetSchedule(ctx, 0, never, nil), driver.ErrChanged)
	r.ok(e.SetFlowControl(ctx, flow.Revision(), flow))
	r.ok(e.SetSchedule(ctx, schedule.Revision, schedule, nil))
	require.Equal(t, flow.Encode(), readFlowControl(t, e).Encode())
	again, err := e.Schedule(ctx, "s")
	r.ok(err)
	require.Equal(t, schedule, again)
	require.Equal(t, next.Ref, r.lookup(driver.OccurrenceKey("s")).Ref, "the occurrence stays")

	r.resume(durable.Pausable{Lane: "l"})
	r.ok(r.DeleteSchedule(ctx, "s"))
	require.ErrorIs(t, e.SetFlowControl(ctx, flow.Revision(), flow), driver.ErrChanged)
	require.ErrorIs(t, e.SetSchedule(ctx, schedule.Revision, schedule, nil), driver.ErrChanged)
	require.ErrorIs(t, r.PauseSchedule(ctx, "s"), durable.ErrNotFound)
	require.ErrorIs(t, r.DeleteSchedule(ctx, "s"), durable.ErrNotFound)
}

// An error says what is wrong with a limit or a pause.
func badLimits(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	set := func(l durable.Limit) error { return r.SetLimit(within(t), "n", l) }
	for says, err := range map[string]error{
		"set Running or Rate":  set(durable.Limit{}),
		"set Running or Rate;": set(durable.Limit{Kind: kind, PerLane: true}),
		"Running -1":           set(durable.Limit{Running: -1}),
		"Running 9":            set(durable.Limit{Running: math.MaxInt}),
		"Rate NaN":             set(durable.Limit{Rate: math.NaN(), Burst: 1}),
		"Rate +Inf":            set(durable.Limit{Rate: math.Inf(1), Burst: 1}),
		"Rate -1":              set(durable.Limit{Rate: -1, Burst: 1}),
		"Burst is 0":           set(durable.Limit{Rate: 1}),
		"Burst -2":             set(durable.Limit{Rate: 1, Burst: -2}),
		"without a Rate":       set(durable.Limit{Running: 1, Burst: 1}),
		"longer than a year":   set(durable.Limit{Rate: 1e-9, Burst: 1}),
		"the kind \"\\n\"":     set(durable.Limit{Kind: "\n", Running: 1}),
		"name is empty":        r.SetLimit(within(t), "", durable.Limit{Running: 1}),
		"name is not":          r.SetLimit(within(t), "a\x00b", durable.Limit{Running: 1}),
		"the kind \"\\x01\"":   r.Pause(within(t), durable.Pausable{Kind: "\x01"}),
		"the lane \"\\x01\"":   r.Pause(within(t), durable.Pausable{Lane: "\x01"}),
	} {
		require.ErrorIs(t, err, durable.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
	require.ErrorIs(t, r.Resume(within(t), durable.Pausable{}), durable.ErrNotFound)
	for range r.Limits(within(t)) {
		require.Fail(t, "nothing was to be stored")
	}
}

// No more run at once than a limit lets, of all workers together, and as many do.
func limitRunning(t *testing.T, s Store) {
	var c crowd
	late := time.Now().Add(time.Minute) // on a busy machine three seldom meet within 30 ms
	meet := func(context.Context, *durable.Attempt) error {
		for time.Sleep(30 * time.Millisecond); c.most.Load() < 3 && time.Now().Before(late); time.Sleep(time.Millisecond) {
		}
		return nil
	}
	var all []*rig
	for range 3 {
		all = append(all, open(t, s.Open(t), steady).handle(kind, c.around(meet)))
	}
	all[0].limit("three", durable.Limit{Kind: kind, Running: 3})
	for _, r := range all {
		r.start()
	}
	for range 90 { // one by one, so that not all are handed to one worker
		all[0].add(durable.Job{Kind: kind})
	}
	ranOnce(t, 90, all...)
	require.Equal(t, int64(3), c.most.Load())
	for _, a := range ran(all...) {
		require.Equal(t, 1, a.Number)
	}
}

// Under a limit PerLane each lane has its own permits, and a job without a lane is not covered.
func limitPerLane(t *testing.T, s Store) {
	lanes := map[string]*crowd{"": {}, "a": {}, "b": {}}
	r := open(t, s.Open(t)).handle(kind, lanes[""].around(func(ctx context.Context, a *durable.Attempt) error {
		return lanes[a.Job.Lane].around(sleeps(10*time.Millisecond))(ctx, a)
	}))
	r.limit("one each", durable.Limit{PerLane: true, Running: 1})
	r.start()
	n := 0
	await(t, "of two lanes two run at once", func() bool { // a slow engine may not have them meet at first
		for range 10 {
			r.add(durable.Job{Kind: kind, Lane: "a"}, durable.Job{Kind: kind, Lane: "b"})
		}
		n += 20
		r.awaitRuns(n)
		return lanes[""].most.Load() == 2
	})
	require.Equal(t, int64(1), lanes["a"].most.Load())
	require.Equal(t, int64(1), lanes["b"].most.Load())

	release := make(chan struct{})
	r2 := open(t, s.Open(t)).handle("free", waits(release)).start()
	r2.add(times(5, durable.Job{Kind: "free"})...)
	r2.awaitRuns(5) // all at once
	close(release)
	empty(t, r2)
}

// Never more begin than Burst + Rate * t, and what waits for a token begins about when that
// comes, without a permit or an attempt.
func limitRate(t *testing.T, s Store) {
	const rate, burst, jobs = 40, 5, 125
	a, b := open(t, s.Open(t), steady).handle(kind, nil), open(t, s.Open(t), steady).handle(kind, nil)
	a.limit("rate", durable.Limit{Kind: kind, Rate: rate, Burst: burst})
	began := a.now()
	a.start()
	b.start()
	a.add(times(jobs, durable.Job{Kind: kind})...)
	runs := awaitRuns(t, jobs, a, b)
	slices.SortFunc(runs, func(x, y run) int { return x.at.Compare(y.at) })
	asked := time.Now()
	offset := a.now().Sub(asked) // of the clocks, or more by the time that the answer takes: never less
	for i, r := range runs {
		require.Equal(t, 1, r.Number)
		since := r.at.Add(offset).Sub(began) + 20*time.Millisecond
		require.LessOrEqual(t, float64(i+1), burst+rate*since.Seconds()+1, "after %v", since)
	}
	empty(t, a)
}

// While it is paused nothing of a kind, a lane, or the queue begins, whoever has it; what
// runs goes on, and all that waited runs when it is resumed.
func pauses(t *testing.T, s Store) {
	a, b := open(t, s.Open(t), steady), open(t, s.Open(t), steady)
	release := make(chan struct{})
	for _, r := range []*rig{a, b} {
		r.handle("long", waits(release)).handle(kind, nil).handle("other", nil).start()
	}
	a.add(durable.Job{Kind: "long"})
	await(t, "it runs", func() bool { return attempts(a, b) == 1 })
	for _, what := range []durable.Pausable{{Kind: kind}, {Lane: "l"}, {Kind: kind, Lane: "l"}, {}} {
		a.pause(what)
		a.pause(what) // it is paused already
		n, at := attempts(a, b), time.Now()
		ref := b.add(durable.Job{Kind: kind, Lane: "l"})[0]
		if what != (durable.Pausable{}) {
			a.add(durable.Job{Kind: "other"})
			await(t, "another runs", func() bool { return attempts(a, b) == n+1 })
			n++
		}
		time.Sleep(time.Until(at.Add(1200 * time.Millisecond)))
		require.Equal(t, n, attempts(a, b), "%v is paused", what)
		require.Equal(t, durable.Waiting, b.get(ref).State)
		require.Zero(t, b.get(ref).Attempt)
		b.resume(what)
		await(t, "it has run", func() bool { return attempts(a, b) == n+1 })
		a.awaitGone(ref)
	}
	close(release)
	empty(t, a)
}

// A lane with many jobs does not have the one of another wait until they are done: not within
// a worker, and not of two workers.
func lanesTakeTurns(t *testing.T, s Store) {
	const many = 600
	a, b := open(t, s.Open(t)).handle(kind, sleeps(5*time.Millisecond)), open(t, s.Open(t)).handle(kind, sleeps(5*time.Millisecond))
	a.limit("two", durable.Limit{Kind: kind, Running: 2})
	a.start()
	b.start()
	for round := 1; ; round++ { // a busy machine may hand out the one late, but not each time
		n := attempts(a, b)
		a.add(times(many, durable.Job{Kind: kind, Lane: "many"})...)
		awaitRuns(t, n+100, a, b)
		ref := a.add(durable.Job{Kind: kind, Lane: "one"})[0]
		before := attempts(a, b)
		a.awaitGone(ref)
		runs := ran(a, b)
		slices.SortFunc(runs, func(x, y run) int { return x.at.Compare(y.at) })
		turn := slices.IndexFunc(runs, func(r run) bool { return r.Ref == ref }) // more may run until it is seen to be gone
		if turn-before < 250 {
			return
		}
		require.Less(t, round, 5, "%d of the other lane have run meanwhile", turn-before)
	}
}

// A limit that is raised, lowered or removed while jobs run and wait holds as it is then.
func limitChanged(t *testing.T, s Store) {
	var c crowd
	h := c.around(sleeps(100 * time.Millisecond))
	a, b := open(t, s.Open(t), steady).handle(kind, h), open(t, s.Open(t), steady).handle(kind, h)
	a.limit("l", durable.Limit{Kind: kind, Running: 4})
	a.start()
	b.start()
	n := 0
	more := func() {
		a.add(times(60, durable.Job{Kind: kind})...)
		n += 60
	}
	meet := func(what string, they func() bool) { // a slow machine may run many before so many run at once
		await(t, what, func() bool {
			if attempts(a, b) == n {
				more()
			}
			return they()
		})
	}
	meet("4 run", func() bool { return c.most.Load() == 4 })
	a.limit("l", durable.Limit{Kind: kind, Running: 1})
	more()
	await(t, "one has a permit", func() bool { return a.taken() <= 1 && c.inside.Load() <= 1 })
	c.most.Store(0)
	awaitRuns(t, attempts(a, b)+3, a, b)
	require.LessOrEqual(t, c.most.Load(), int64(1))
	a.unlimit("l")
	meet("nothing limits them any more", func() bool { return c.most.Load() > 4 })
	awaitRuns(t, n, a, b)
	empty(t, a)
	require.Equal(t, 0, a.taken())
}

// diesWith sets a limit with two permits, and kills a worker when two of the jobs run. It returns their
// Refs.
func diesWith(t *testing.T, s Store, two durable.Limit, jobs ...durable.Job) []durable.Ref {
	m := newMortal(s.Open(t))
	hangs := func(ctx context.Context, _ *durable.Attempt) error { <-ctx.Done(); return ctx.Err() }
	dead := open(t, m).handle(kind, hangs).handle("alone", hangs).handle("paused", hangs)
	dead.limit("two", two)
	dead.start()
	refs := dead.add(jobs...)
	dead.awaitRuns(2)
	m.kill()
	<-dead.done
	return refs
}

// The permits of a worker that has died are free after its lease, and never are more taken
// than there are.
func limitDeath(t *testing.T, s Store) {
	refs := diesWith(t, s, durable.Limit{Kind: kind, PerLane: true, Running: 2}, times(8, durable.Job{Kind: kind, Lane: "l"})...)
	var c crowd
	r := open(t, s.Open(t)).handle(kind, c.around(sleeps(20*time.Millisecond))).start()
	await(t, "all have run", func() bool {
		require.LessOrEqual(t, r.taken(), 2)
		return attempts(r) >= 8
	})
	r.awaitGone(refs...)
	require.LessOrEqual(t, c.most.Load(), int64(2))
	require.Equal(t, 0, r.taken())
}

// A dead worker's permit is free after its lease, though no other worker has a handler for the kind
// of its job, or that is paused: others under the same limit do not wait for that.
func limitOrphan(t *testing.T, s Store) {
	refs := diesWith(t, s, durable.Limit{Running: 2}, durable.Job{Kind: "alone"}, durable.Job{Kind: "paused"})
	r := open(t, s.Open(t)).handle(kind, nil).handle("paused", nil)
	r.pause(durable.Pausable{Kind: "paused"})
	r.start()
	r.add(times(4, durable.Job{Kind: kind})...)
	r.awaitRuns(4)
	r.resume(durable.Pausable{Kind: "paused"})
	r.awaitGone(refs[1])
	open(t, s.Open(t)).handle("alone", nil).start().awaitGone(refs[0])
	await(t, "no permit is taken", func() bool { return r.taken() == 0 })
}

// CancelRunning ends the handler's context, on whichever node; what the handler returns
// decides. It leaves alone what does not run.
func cancelRunning(t *testing.T, s Store) {
	causes := make(chan error, 10)
	a := open(t, s.Open(t))
	b := open(t, s.Open(t), steady).handle(kind, func(ctx context.Context, at *durable.Attempt) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		if string(at.Job.Payload) == "done" {
			return nil
		}
		return ctx.Err()
	}).start()
	for i, payload := range []string{"done", "canceled"} {
		ref := b.add(durable.Job{Kind: kind, Key: "k", Payload: []byte(payload)})[0]
		b.awaitRuns(i + 1)
		await(t, "it is canceled while it runs", func() bool { return a.is(a.CancelRunning(within(t), ref)) })
		await(t, "its context has ended", func() bool { return len(causes) == 1 })
		require.ErrorIs(t, <-causes, durable.ErrCanceled)
		b.awaitGone(ref)
		await(t, "it is counted", func() bool { return b.Stats().Done+b.Stats().Stopped == int64(i+1) })
		ok, err := a.CancelRunning(within(t), ref)
		require.True(t, !ok && (err == nil || errors.Is(err, durable.ErrNotFound)), "it has ended: %v %v", ok, err)
	}
	require.Equal(t, []int64{1, 1}, []int64{b.Stats().Done, b.Stats().Stopped})
	ref := b.add(durable.Job{Kind: kind, After: time.Hour, Payload: []byte("w")})[0]
	require.False(t, a.is(a.CancelRunning(within(t), ref)), "it waits")
	_, err := a.CancelRunning(within(t), "nonsense")
	require.ErrorIs(t, err, durable.ErrNotFound)
	require.Len(t, b.ran(), 2)
}

// A job that was put off, as where many wait for a limit, is handed out again as soon as a limit
// or a pause is changed, by whichever process, and the engine has read that.
func limitRecalls(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	e := s.Open(t)
	w := newCrashing(t, e, "a")
	ref := r.add(durable.Job{Kind: kind, Lane: "l"})[0]
	h := w.take(ref)
	for _, change := range []func(){
		func() { r.limit("l", durable.Limit{Kind: kind, Running: 1}) },
		func() { r.pause(durable.Pausable{Lane: "other"}) },
		func() { r.resume(durable.Pausable{Lane: "other"}) },
		func() { r.unlimit("l") },
	} {
		w.release(h, time.Hour)
		change()
		readFlowControl(t, e) // as a Queue does each second, and when it is notified
		h = w.take(ref)
	}
	require.Equal(t, driver.Granted, w.claim(h, false).Status)
}

// A job that a worker has deferred is handed out again, too, if that worker ends before it has learned of
// the change.
func limitRecallsOfTheGone(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind, Lane: "l"})[0]
	for i, change := range []func(){
		func() { r.limit("l", durable.Limit{Kind: kind, Running: 1}) },
		func() { r.unlimit("l") },
	} {
		e := s.Open(t)
		readFlowControl(t, e)
		w := newCrashing(t, e, fmt.Sprint("gone", i))
		h := w.take(ref)
		w.stop()
		change()
		w.release(h, time.Hour)
		require.NoError(t, w.Close(within(t)))
	}
	newCrashing(t, s.Open(t), "last").take(ref)
}

// The jobs that wait for a limit are listed: how many, and when the next one goes. If the limit is
// raised, its tokens come at the new rate from then on, and not when the old ones would have come.
func limitRaised(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	r.limit("l", durable.Limit{Kind: kind, Rate: 1.0 / 3600, Burst: 10})
	r.start()
	r.add(times(15, durable.Job{Kind: kind})...)
	await(t, "the burst is used up, and five wait", func() bool {
		st := r.Stats()
		return attempts(r) == 10 && st.Limited == 5 && len(st.Limits) == 1 && st.Limits[0].Waiting == 5 && !st.Limits[0].Next.IsZero()
	})
	for i, err := range r.Limits(within(t)) {
		require.NoError(t, err)
		require.Equal(t, "l", i.Name)
		require.Equal(t, int64(5), i.Waiting)
		require.InDelta(t, time.Hour, float64(time.Until(i.Next)), float64(10*time.Minute))
	}
	r.limit("l", durable.Limit{Kind: kind, Rate: 100, Burst: 1})
	r.awaitRuns(15)
}

// A job that waits for a token, alone in its lane, waits for the time of that, and does not ask
// again and again.
func limitAlone(t *testing.T, s Store) {
	var asked atomic.Int64
	r := open(t, guarded{Engine: s.Open(t), guard: func(method string, call func() error) error {
		if method == "Claim" {
			asked.Add(1)
		}
		return call()
	}}).handle(kind, nil)
	r.limit("l", durable.Limit{Kind: kind, PerLane: true, Rate: 1.0 / 3600, Burst: 1})
	r.start()
	r.awaitGone(r.add(durable.Job{Kind: kind, Lane: "l"})[0])
	r.add(durable.Job{Kind: kind, Lane: "l"})
	await(t, "it waits", func() bool { return r.Stats().Limited == 1 })
	before, began := asked.Load(), time.Now()
	time.Sleep(4 * time.Second)
	require.LessOrEqual(t, asked.Load()-before, int64(time.Since(began)/(2*time.Second)))
	require.Equal(t, int64(1), r.Stats().Limited, "it is counted as one that waits for a limit")
}

// A job that waits when Pause returns is not claimed after that: also not by a call that was under
// way, and where another Pause has stored it that has not returned yet.
func pausedTwice(t *testing.T, s Store) {
	rigs := []*rig{open(t, s.Open(t)), open(t, s.Open(t))}
	e := s.Open(t)
	w := newCrashing(t, e, "w")
	what := durable.Pausable{Kind: kind}
	for round := range 16 {
		const jobs = 20
		refs := rigs[0].add(times(jobs, durable.Job{Kind: kind})...)
		held := w.takeAll(refs)
		var mu sync.Mutex
		var mine []driver.Completion
		waits := map[durable.Ref]bool{} // when one has returned
		atOnce(jobs+2, func(i int) {
			if i < jobs {
				if w.Claim(within(t), held[i:i+1])[0].Status == driver.Granted {
					mu.Lock()
					defer mu.Unlock()
					mine = append(mine, driver.Completion{Delivery: held[i], End: driver.Done})
				}
				return
			}
			r := rigs[i-jobs]
			if round%2 == 0 {
				assert.NoError(t, r.Pause(within(t), what))
			} else {
				assert.NoError(t, r.PauseFor(within(t), what, time.Hour))
			}
			for _, ref := range refs {
				info, err := r.Get(within(t), ref)
				assert.NoError(t, err)
				mu.Lock()
				waits[ref] = waits[ref] || info.State == durable.Waiting
				mu.Unlock()
			}
		})
		for _, out := range mine {
			require.False(t, waits[out.Delivery.Ref], "it was claimed after a Pause had returned")
		}
		require.NoError(t, errors.Join(w.Finish(within(t), mine)...))
		_, errs := e.Cancel(within(t), refs)
		require.NoError(t, errors.Join(errs...))
		rigs[0].resume(what)
	}
}

// Lanes take turns, however early the jobs of one are due, and those of a lane begin in the
// order in which they are.
func lanesInOrder(t *testing.T, s Store) {
	const lanes, each = 4, 5
	release := make(chan struct{})
	r := open(t, s.Open(t), steady).handle(kind, waits(release))
	r.limit("one", durable.Limit{Kind: kind, Running: 1})
	r.start()
	r.add(durable.Job{Kind: kind})
	r.awaitRuns(1) // has the permit until all others wait
	var jobs []durable.Job
	now := r.now()
	for i := range lanes * each { // all of the first lane are due before the second
		at := now.Add(time.Second + time.Duration(i)*10*time.Millisecond)
		jobs = append(jobs, durable.Job{Kind: kind, Lane: fmt.Sprint("lane", i/each), At: at})
	}
	rand.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	r.add(jobs...)
	await(t, "all wait", func() bool { return r.Stats().Limited == lanes*each })
	close(release)
	runs := r.awaitRuns(1 + lanes*each)[1:]
	last := map[string]time.Time{}
	for i := 0; i < len(runs); i += lanes {
		turn := map[string]bool{}
		for _, one := range runs[i : i+lanes] {
			turn[one.Job.Lane] = true
			require.Less(t, last[one.Job.Lane], one.Due, "within the lane, at %d", i)
			last[one.Job.Lane] = one.Due
		}
		require.Len(t, turn, lanes, "lanes in turn %d", i/lanes)
	}
}

// A permit of a worker that is slow to give it back is free after its lease, and not before. The
// worker gives no permit back that another job has by then. A worker that renews its lease keeps its
// permit.
func limitSlowReturn(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	r.limit("one", durable.Limit{Kind: kind, Running: 1})
	next := func(w *crashing) *driver.Delivery { return w.take(r.add(durable.Job{Kind: kind})[0]) }
	began := time.Now() // of its lease, at the earliest
	slow := newCrashing(t, s.Open(t), "slow")
	first := next(slow)
	slow.granted(first)
	slow.stop()
	lives := newCrashing(t, s.Open(t), "lives").beating()
	second := next(lives)
	await(t, "the permit is free", func() bool { return lives.claim(second, true).Status == driver.Granted })
	lives.stop()
	require.GreaterOrEqual(t, time.Since(began), slow.lease-slow.lease/20, "it was free before the lease was over")
	require.Equal(t, 1, r.taken())

	await(t, "the slow one hears what became of its end", func() bool {
		err := slow.Finish(within(t), []driver.Completion{{Delivery: first, End: driver.Done}})[0]
		return err == nil || errors.Is(err, durable.ErrLeaseLost)
	})
	require.Equal(t, 1, r.taken(), "the permit is another's")
	waits := newCrashing(t, s.Open(t), "waits").beating()
	third := next(waits)
	for end := time.Now().Add(lives.lease + lives.lease/2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		v := waits.claim(third, true)
		if v.Status == driver.Granted && (lives.late.Load() || errors.Is(lives.Heartbeat(within(t)), durable.ErrLeaseLost)) {
			return // the machine is too busy for the lease
		}
		require.Equal(t, driver.Throttled, v.Status, "the worker that has the permit lives")
	}
	lives.end(second, driver.Done)
	await(t, "the permit is free", func() bool { return waits.claim(third, true).Status == driver.Granted })
	require.Equal(t, 1, r.taken())
}

// A claim that took a token ahead of its time, and whose answer was lost, does not begin sooner
// for that.
func limitRateAnswerLost(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	const gap = 200 * time.Millisecond
	r.limit("rate", durable.Limit{Kind: kind, Rate: float64(time.Second) / float64(gap), Burst: 1})
	w := newCrashing(t, r.engine, "w")
	refs := r.add(times(20, durable.Job{Kind: kind})...)
	ahead := 0
	for _, h := range w.takeAll(refs) {
		var v driver.ClaimResult
		await(t, "its token comes", func() bool { v = w.claim(h, true); return v.Status == driver.Granted })
		again, now := w.claim(h, true), r.now()
		require.Equal(t, driver.Granted, again.Status)
		if v.At.After(now) { // a token's time may have come between
			ahead++
			require.False(t, again.At.Before(v.At), "%v before its token", v.At.Sub(again.At))
		}
		w.end(h, driver.Done)
		if ahead == 3 {
			return
		}
	}
	t.Log("given ahead of their time, as far as this machine is fast enough to see:", ahead)
}
