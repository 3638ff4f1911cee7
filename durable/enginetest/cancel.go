package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// Cancel before, during and after hand-over, claim, run and end.
func cancel(t *testing.T, s Store) {
	release := make(chan struct{})
	r := open(t, s.Open(t), holding()...).handle(kind, nil).handle("waits", waits(release))
	far := r.add(durable.Job{Kind: kind, After: time.Hour})[0]
	r.cancel(far, true, "before it is handed out")
	r.cancel(far, false, "twice")
	r.start()
	soon := r.whileHeld(r.cancels)
	r.cancel(soon, false, "twice")
	await(t, "nothing is held", func() bool { return r.Stats().Held == 0 })

	run := r.add(durable.Job{Kind: "waits", After: 1200 * time.Millisecond})[0]
	await(t, "it is claimed", func() bool { return r.Stats().Claimed > 0 || r.Stats().Running > 0 })
	r.cancel(run, false, "claimed")
	await(t, "it runs", func() bool { return r.Stats().Running > 0 })
	r.cancel(run, false, "running")
	close(release)
	r.awaitGone(run)
	r.cancel(run, false, "done")
	time.Sleep(heldFor)
	for _, run := range r.ran() {
		require.NotContains(t, []durable.Ref{soon, far}, run.Ref)
	}
	empty(t, r)
}

func envInt(name string, normal int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return normal
}

// races returns how many races are run.
func races() int { return envInt("ENGINETEST_RACES", 200) }

// Of a Cancel and a Claim of one job at one time one wins: never both, never neither.
func cancelAgainstClaim(t *testing.T, s Store) {
	r, other := open(t, s.Open(t)), s.Open(t)
	w := newCrashing(t, r.engine, "w", func(c *driver.WorkConfig) { c.Lease, c.Ahead = time.Minute, time.Second })
	var l lead
	for jobs := range slices.Chunk(times(races(), durable.Job{Kind: kind}), 100) {
		raceEach(t, w, other, w.takeAll(r.add(jobs...)), &l)
	}
	l.bothWin(t)
	empty(t, r)
}

// raceEach claims in groups what is canceled one by one at the same time.
func raceEach(t *testing.T, w driver.Worker, e driver.Engine, held []*driver.Delivery, l *lead) {
	for group := range slices.Chunk(held, 5) {
		canceled, mine := make([]bool, len(group)), make([]bool, len(group))
		unsure := make([]bool, len(group)) // the answer was lost: it is canceled, or it was claimed
		l.race(func() int {
			for i, h := range group {
				oks, errs := e.Cancel(within(t), []durable.Ref{h.Ref})
				canceled[i], unsure[i] = oks[0], errors.Is(errs[0], durable.ErrUncertain)
				assert.True(t, unsure[i] || errs[0] == nil, errs[0])
			}
			return count(canceled...)
		}, func() int {
			for _, h := range endGranted(t, w, group, nil) {
				mine[slices.Index(group, h)] = true
			}
			return count(mine...)
		})
		for i := range group {
			require.True(t, canceled[i] != mine[i] || unsure[i], "canceled %v, claimed %v", canceled[i], mine[i])
		}
	}
}

// lead is the head start of the first of two that race. The winner of a race starts the next one
// later, so that both win some on any engine, and the races stay close.
type lead struct {
	by, step time.Duration
	first    bool   // The first has won the last race.
	wins     [2]int // Of the first, and of the second.
}

// race calls both at once; each returns how much it has won.
func (l *lead) race(first, second func() int) {
	won := [2]int{}
	atOnce(2, func(i int) {
		time.Sleep(l.by * time.Duration(2*i-1))
		won[i] = []func() int{first, second}[i]()
	})
	l.wins = [2]int{l.wins[0] + won[0], l.wins[1] + won[1]}
	ahead := won[0] >= won[1]
	if l.step = l.step * 3 / 2; l.step == 0 || ahead != l.first {
		l.step = time.Millisecond / 4
	}
	if l.first = ahead; ahead {
		l.by -= l.step
	} else {
		l.by += l.step
	}
}

// bothWin checks that each has won some races.
func (l *lead) bothWin(t *testing.T) {
	t.Log("won:", l.wins)
	require.NotContains(t, l.wins, 0)
}

// count returns how many are true.
func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}

// endGranted claims jobs, ends those that it is granted as done, and returns them. It asks again
// for those of the kinds that it can run, nil for all.
func endGranted(t *testing.T, w driver.Worker, hs []*driver.Delivery, kinds *driver.KindSet) (ended []*driver.Delivery) {
	var outs []driver.Completion
	for i, v := range w.Claim(context.Background(), hs) {
		if v.Status == driver.RetryLater && (kinds == nil || kinds.Has(hs[i].Record.Kind)) {
			v = claimPatiently(t, w, hs[i])
		}
		if v.Status == driver.Granted {
			ended = append(ended, hs[i])
			outs = append(outs, driver.Completion{Delivery: hs[i], End: driver.Done})
		}
	}
	assert.NoError(t, errors.Join(w.Finish(context.Background(), outs)...))
	return ended
}

func claimPatiently(t testing.TB, w driver.Worker, h *driver.Delivery) (v driver.ClaimResult) {
	await(t, "the claim is answered", func() bool {
		v = w.Claim(within(t), []*driver.Delivery{h})[0]
		return v.Status != driver.RetryLater
	})
	return v
}

// Jobs that are added some seconds ahead, and canceled at any time until they are due,
// run or were canceled: never both, never neither, wherever they are kept at that moment.
func cancelOnTheWay(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	c := open(t, s.Open(t))
	ran, canceled := 0, 0
	for ahead := 3 * time.Second; canceled == 0; ahead *= 4 { // a slow machine may be too late for all
		require.Less(t, ahead, patience, "all were too late")
		ran, canceled = cancelWithin(t, r, c, ahead, ran)
	}
	empty(t, r)
}

// cancelWithin adds jobs to r that are due so far ahead and twice as far, has c cancel half of
// them, and returns how many have run in all, of which so many before, and were canceled.
func cancelWithin(t *testing.T, r, c *rig, ahead time.Duration, before int) (int, int) {
	const n = 300
	refs := r.add(spread(n, ahead, ahead/n)...)
	canceled := map[durable.Ref]bool{}
	for i := 0; i < n; i += 2 {
		ref := refs[(i*7)%n] // near and far, some of them too late
		if c.cancels(ref) {
			canceled[ref] = true
		}
		time.Sleep(2 * ahead / n)
	}
	await(t, "all ran or were canceled", func() bool { return len(eachOnce(t, before, r))+len(canceled) >= n })
	time.Sleep(r.again())
	seen := eachOnce(t, before, r)
	for ref := range seen {
		require.False(t, canceled[ref], "canceled, and ran")
	}
	require.Equal(t, n, len(seen)+len(canceled))
	return attempts(r), len(canceled)
}

// Reschedule earlier, later, into the window, and while it is held; by one Ref, often.
func reschedule(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithAhead(400*time.Millisecond)).handle(kind, nil).start()
	move := func(ref durable.Ref, in time.Duration, want bool) time.Time {
		at := r.now().Add(in)
		r.reschedule(ref, at, want)
		return at
	}
	var before []run // of the worker before this one
	runs := func(ref durable.Ref) []run {
		return slices.DeleteFunc(append(r.ran(), before...), func(run run) bool { return run.Ref != ref })
	}
	how := map[durable.Ref]string{}
	ranAt := func(ref durable.Ref, at time.Time, what string) {
		how[ref] = what
		await(t, what, func() bool { return len(runs(ref)) > 0 })
		due := runs(ref)[0].Due
		require.False(t, due.Before(at.Truncate(time.Microsecond)), "%s: %v is before %v", what, due, at)
		require.WithinDuration(t, at, due, patience, what)
	}
	hour := durable.Job{Kind: kind, After: time.Hour, Payload: []byte("p"), MaxAttempts: 7}

	ref := r.add(hour)[0]
	ranAt(ref, move(ref, 600*time.Millisecond, true), "earlier")
	move(ref, time.Hour, false)

	var at time.Time
	for moved, after := false, 3*time.Second; !moved; after *= 2 { // in time, also where that takes long
		ref = r.add(durable.Job{Kind: kind, After: after})[0]
		at = r.now().Add(after + time.Second)
		moved = r.moves(ref, at)
		require.True(t, moved || !r.now().Before(at.Add(-2*time.Second)), "it was early enough")
	}
	ranAt(ref, at, "later")

	ref = r.add(hour)[0]
	for range 5 {
		move(ref, 2*time.Hour, true)
		move(ref, patience, true) // or it may run before the next move
	}
	info := r.get(ref)
	require.Equal(t, "p", string(info.Job.Payload))
	require.Equal(t, 7, info.Job.MaxAttempts)
	now := r.now()
	move(ref, -time.Second, true)
	ranAt(ref, now.Add(-100*time.Millisecond), "into the past is now")

	r.close()
	before = r.ran()
	r = open(t, s.Open(t), holding()...).handle(kind, nil).start()
	ref = r.whileHeld(func(ref durable.Ref) bool {
		at = r.now().Add(1200 * time.Millisecond)
		return r.moves(ref, at)
	})
	ranAt(ref, at, "while held")
	time.Sleep(r.again())
	for ref, what := range how {
		require.Len(t, runs(ref), 1, what)
	}
	ref = r.add(hour)[0]
	move(ref, 30*time.Minute, true)
	r.cancel(ref, true, "moved")
	move(ref, time.Minute, false)
	empty(t, r)
}

// A job that a worker holds until its time comes begins at once when it is moved to now.
func moveWhileFetched(t *testing.T, s Store) {
	r := open(t, s.Open(t), holding()...).handle(kind, nil).start()
	early := false
	for end := time.Now().Add(patience); !early && time.Now().Before(end); { // a busy machine may be too late some times
		var due time.Time
		ref := r.whileHeld(func(ref durable.Ref) bool {
			i, err := r.Get(within(t), ref)
			due = i.Due
			return err == nil && r.moves(ref, time.Now())
		})
		r.awaitGone(ref)
		for _, run := range r.ran() {
			early = early || run.Ref == ref && run.at.Before(due.Add(-heldFor/4))
		}
	}
	require.True(t, early, "it has waited for the time that it had before")
	empty(t, r)
}

// Moving a job that is being claimed either moves it or does not: it runs once.
func moveAgainstClaim(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithAhead(300*time.Millisecond)).handle(kind, nil).start()
	mover := open(t, s.Open(t))
	const n = 150
	refs := r.add(spread(n, 500*time.Millisecond, 5*time.Millisecond)...)
	atOnce(n, func(i int) {
		time.Sleep(350*time.Millisecond + time.Duration(i)*5*time.Millisecond)
		_, err := mover.Reschedule(within(t), refs[i], time.Now().Add(time.Duration(i%3)*700*time.Millisecond))
		assert.NoError(t, err)
	})
	ranOnce(t, n, r)
}

// A job that waits for its next attempt can be moved, and keeps its count. Cancel ends it: no more
// attempts begin.
func changeRetry(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithBackoff(func(failed int) time.Duration {
		if failed == 1 {
			return time.Hour
		}
		return 3 * time.Second
	})).handle(kind, fails(errTest)).start()
	ref := r.add(durable.Job{Kind: kind})[0]
	r.awaitRuns(1)
	await(t, "it is moved", func() bool { return r.moves(ref, time.Now()) })
	require.Equal(t, 2, r.awaitRuns(2)[1].Number)
	await(t, "it is canceled between attempts", func() bool { // a slow machine may miss some
		info := r.get(ref)
		return info.State == durable.Waiting && info.Attempt > 0 && r.cancels(ref)
	})
	n := attempts(r)
	time.Sleep(4 * time.Second)
	require.Len(t, r.ran(), n)
	empty(t, r)
}

// ledger is what is known of the jobs of a test.
type ledger struct {
	mu   sync.Mutex
	jobs map[durable.Ref]*fate
	lost int64 // Ends that came after another worker had taken over: that job is done twice.
}

// fate is what is known of a job.
type fate struct {
	accepted, canceled bool
	unsure             bool     // The answer of Cancel was lost: it may have been canceled.
	listed             bool     // It is kept at the end.
	done               int      // Handlers that returned nil.
	asked              []string // The calls of users and handlers, and the answers.
}

// of returns what is known of a job. The lock is held.
func (l *ledger) of(ref durable.Ref) *fate {
	if l.jobs[ref] == nil {
		l.jobs[ref] = &fate{}
	}
	return l.jobs[ref]
}

// accounts does everything at once for a while: two workers, adds, cancels, reschedules,
// failures, keys, redrives, a worker that comes and goes. At the end each accepted job is done,
// canceled, or listed, and no two of these. A job whose Cancel was uncertain may be canceled or not.
// No canceled job has begun an attempt after, and no job was done twice except where a lease was lost.
func accounts(t *testing.T, s Store) {
	l := &ledger{jobs: map[durable.Ref]*fate{}}
	start := func() *rig {
		return open(t, s.Open(t), durable.WithConcurrency(16),
			durable.WithBackoff(func(int) time.Duration { return rand.N(600 * time.Millisecond) })).
			handle(kind, func(_ context.Context, a *durable.Attempt) error { return l.begin(t, a) }).start()
	}
	a, b := start(), start()
	end := time.Now().Add(4 * time.Second)
	atOnce(4, func(i int) {
		if i < 3 {
			l.user(t, a, i, end)
			return
		}
		for time.Now().Before(end) {
			c := start()
			time.Sleep(700 * time.Millisecond)
			c.close()
			l.lost += c.Stats().LeaseLost
		}
	})
	await(t, "what is near has ended", func() bool {
		return !slices.ContainsFunc(a.matching(durable.Filter{}), func(info durable.Info) bool {
			return info.State != durable.Dead && time.Until(info.Due) < time.Minute
		})
	})
	for _, r := range []*rig{b, a} {
		r.drain()
		l.lost += r.Stats().LeaseLost
	}
	for _, info := range a.matching(durable.Filter{}) {
		l.of(info.Ref).listed = true
	}
	var done, canceled, listed int
	for ref, f := range l.jobs {
		require.True(t, f.accepted, "nobody has added %s: %+v", ref, f)
		ends := count(f.done > 0, f.canceled, f.listed)
		require.True(t, ends == 1 || ends == 0 && f.unsure, "%s: %+v", ref, f)
		l.lost -= int64(max(0, f.done-1))
		require.GreaterOrEqual(t, l.lost, int64(0), "done twice: %s: %+v", ref, f)
		done, canceled, listed = done+count(f.done > 0), canceled+count(f.canceled), listed+count(f.listed)
	}
	t.Logf("%d accepted, %d done, %d canceled, %d left", len(l.jobs), done, canceled, listed)
	require.Positive(t, done)
	require.True(t, canceled > 0 || len(l.jobs) < 100, "none was canceled")
}

// begin is the handler.
func (l *ledger) begin(t *testing.T, a *durable.Attempt) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.of(a.Ref)
	f.asked = append(f.asked, fmt.Sprint("begin ", a.Number))
	assert.False(t, f.canceled, "%s: canceled, and attempt %d begins", a.Ref, a.Number)
	switch n := rand.N(24); {
	case n == 0:
		return durable.Discard(errTest)
	case n < 7:
		return errTest
	}
	f.done++
	return nil
}

// note keeps a call and its answer, which may fail in the ways that a user must expect.
func (l *ledger) note(t *testing.T, ref durable.Ref, call string, ok bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.of(ref)
	f.asked = append(f.asked, fmt.Sprint(call, " ", ok, " ", err))
	expected := []error{nil, durable.ErrUncertain}
	switch call {
	case "Cancel":
		f.canceled = f.canceled || ok
		f.unsure = f.unsure || err != nil
	case "Redrive":
		expected = append(expected, durable.ErrNotFound, durable.ErrExists)
	}
	assert.True(t, slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }), "%s: %v", call, err)
}

// user adds and changes jobs until the end.
func (l *ledger) user(t *testing.T, r *rig, id int, end time.Time) {
	ctx := within(t)
	var mine []durable.Ref
	for n := 0; n < 10 || time.Now().Before(end); n++ { // enough also where each takes a second
		breathe()
		job := durable.Job{Kind: kind, After: rand.N(3 * time.Second), MaxAttempts: 1 + rand.N(4)}
		switch rand.N(10) {
		case 0:
			job.After = time.Hour
		case 1:
			job.Key = fmt.Sprint("key", rand.N(5))
		}
		added, err := r.Add(ctx, job) // the job may have begun before Add returns
		assert.True(t, err == nil || errors.Is(err, durable.ErrExists), "%v", err)
		if added != "" {
			mine = append(mine, added)
			l.mu.Lock()
			l.of(added).accepted = true
			l.mu.Unlock()
		}
		if len(mine) == 0 {
			continue
		}
		ref := mine[rand.N(len(mine))]
		switch rand.N(5) {
		case 0:
			ok, err := r.Cancel(ctx, ref)
			l.note(t, ref, "Cancel", ok, err)
		case 1:
			ok, err := r.Reschedule(ctx, ref, time.Now().Add(rand.N(2*time.Second)))
			l.note(t, ref, "Reschedule", ok, err)
		case 2:
			err := r.Redrive(ctx, ref)
			l.note(t, ref, "Redrive", err == nil, err)
		}
		time.Sleep(rand.N(8 * time.Millisecond))
	}
}
