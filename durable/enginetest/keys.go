package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// A key is held from Add until its job is done, canceled or dead: while it waits, runs,
// and waits for another attempt.
func keys(t *testing.T, s Store) {
	proceed := make(chan error)
	r := open(t, s.Open(t), backoff(300*time.Millisecond)).handle(kind, answers(proceed)).start()
	now, far := durable.Job{Kind: kind, Key: "k"}, keyed(durable.Refuse, "")
	taken := func() { r.refuses(now, durable.ErrExists) }
	runs := func(n int, end error) {
		r.awaitRuns(n)
		taken()
		proceed <- end
	}

	// Canceled by Ref, and by key.
	ref := r.add(far)[0]
	taken()
	r.add(durable.Job{Kind: kind, Key: "other", After: time.Hour})
	r.cancel(ref, true, "")
	ref = r.add(far)[0]
	taken()
	r.cancelKey("k", true)
	r.cancelKey("k", false)
	r.isGone(ref)

	// Running, waiting for the next attempt, running, done.
	r.add(now)
	runs(1, errTest)
	taken()
	runs(2, nil)

	// Dead; redriven while another has the key, and when that has gone.
	dead := r.addWhenFree(now)
	runs(3, durable.Discard(errTest))
	ref = r.addWhenFree(far)
	require.ErrorIs(t, r.Redrive(within(t), dead), durable.ErrExists)
	r.cancel(ref, true, "")
	r.redrive(dead)
	runs(4, nil)

	// Rescheduled, it is held still.
	r.reschedule(r.addWhenFree(far), time.Now().Add(2*time.Hour), true)
	taken()
	r.cancelKey("k", true)
	r.add(far)
}

// addWhenFree adds a job as soon as no other has its key.
func (c *calls) addWhenFree(j durable.Job) (ref durable.Ref) {
	await(c.t, "the key is free", func() bool {
		var err error
		ref, err = c.Add(within(c.t), j)
		require.True(c.t, err == nil || errors.Is(err, durable.ErrExists), "%v", err)
		return err == nil
	})
	return ref
}

// Of many who add a key at one time, one does.
func keyRace(t *testing.T, s Store) {
	rigs := []*rig{open(t, s.Open(t)), open(t, s.Open(t)), open(t, s.Open(t))}
	for round := range 10 {
		var won atomic.Int64
		atOnce(24, func(i int) {
			_, err := rigs[i%3].Add(within(t), durable.Job{Kind: kind, Key: fmt.Sprint(round), After: time.Hour})
			if err == nil {
				won.Add(1)
			} else {
				assert.ErrorIs(t, err, durable.ErrExists)
			}
		})
		require.Equal(t, int64(1), won.Load())
	}
}

// A key that is taken and left all the time has one job at a time, and each runs.
func keyTurns(t *testing.T, s Store) {
	var c crowd
	a := open(t, s.Open(t), steady).handle(kind, c.around(sleeps(time.Millisecond))).start()
	b := open(t, s.Open(t), steady).handle(kind, c.around(sleeps(time.Millisecond))).start()
	added := 0
	for end := time.Now().Add(2 * time.Second); added < 6 || time.Now().Before(end); added++ {
		a.addWhenFree(durable.Job{Kind: kind, Key: "turn"})
	}
	await(t, "all ran", func() bool { return attempts(a, b) == added && c.inside.Load() == 0 })
	require.Equal(t, int64(1), c.most.Load())
	empty(t, b)
}

// keyed returns a job that is added to the key "k" and is due in an hour.
func keyed(on durable.OnKey, value string) durable.Job {
	return durable.Job{Kind: kind, Key: "k", OnKey: on, Payload: []byte(value), After: time.Hour}
}

// A job that waits under a key is replaced, pushed back, or stays, and Found is its Ref.
func onKey(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	waits := func(ref durable.Ref, value string) {
		i := r.lookup("k")
		require.Equal(t, ref, i.Ref)
		require.Equal(t, value, string(i.Job.Payload))
	}
	var found durable.Ref
	add := func(j durable.Job) durable.Ref {
		j.Found = &found
		return r.add(j)[0]
	}
	r.lacks("k")
	found = "x"
	first := add(keyed(durable.Replace, "1"))
	require.Empty(t, found)

	second := add(keyed(durable.Replace, "2"))
	require.Equal(t, first, found)
	waits(second, "2")
	require.NotEqual(t, first, second)
	r.isGone(first)
	r.cancel(first, false, "it was replaced")

	require.Equal(t, second, add(keyed(durable.Keep, "3")))
	require.Equal(t, second, found)
	r.refuses(keyed(durable.Refuse, "4"), durable.ErrExists)
	waits(second, "2")
	r.refuses(durable.Job{Kind: kind, OnKey: durable.Keep}, durable.ErrInvalid)
	r.refuses(durable.Job{Kind: kind, Key: "k", OnKey: durable.Replace, MaxWait: time.Hour}, durable.ErrInvalid)

	// All of one call: the last has the key.
	refs := r.add(keyed(durable.Replace, "5"), keyed(durable.Replace, "6"), keyed(durable.Keep, "7"))
	waits(refs[1], "6")
	require.Equal(t, refs[1], refs[2])
	empties(t, r)
	for _, on := range []durable.OnKey{durable.Replace, durable.Later, durable.Keep} {
		refs, err := r.AddMany(within(t), keyed(on, "8"), keyed(durable.Refuse, "9"))
		require.ErrorIs(t, err, durable.ErrExists)
		waits(refs[0], "8")
		require.Empty(t, refs[1])
		empties(t, r)
	}
}

// empties cancels the job that waits under "k", and checks that no job is left.
func empties(t *testing.T, r *rig) {
	r.cancelKey("k", true)
	empty(t, r)
}

// A job that is pushed back is due later each time, but no later than MaxWait after the first Add. A
// job that replaces it begins anew.
func pushedBack(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	due := func() time.Time {
		i := r.lookup("k")
		require.Equal(t, i.Due, i.Job.At)
		return i.Due
	}
	j := keyed(durable.Later, "")
	r.add(j)
	before := due()
	time.Sleep(20 * time.Millisecond)
	r.add(j)
	require.Greater(t, due(), before)
	j.MaxWait, j.After = 90*time.Minute, 2*time.Hour
	r.add(j)
	last := due()
	require.WithinDuration(t, before.Add(30*time.Minute), last, time.Second)
	time.Sleep(20 * time.Millisecond)
	j.After = 3 * time.Hour
	r.add(j)
	require.Equal(t, last, due())

	r.add(keyed(durable.Replace, "anew"))
	time.Sleep(20 * time.Millisecond)
	r.add(j)
	require.Greater(t, due(), last)
	j.MaxWait = time.Microsecond
	require.NotEmpty(t, r.add(j)[0]) // MaxWait is over: it is due when it was added
	require.WithinDuration(t, last.Add(-90*time.Minute), due(), patience)
	empties(t, r)
}

// A job that was tried begins the wait anew that MaxWait bounds: a job that pushes it back
// is not due at once.
func pushedBackAfterFailure(t *testing.T, s Store) {
	r := open(t, s.Open(t), backoff(time.Hour)).handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) == "snoozed" {
			return durable.Snooze(time.Hour)
		}
		return errTest
	}).start()
	const most = 2 * time.Second
	for n, how := range []string{"failed", "snoozed"} {
		ref := r.add(durable.Job{Kind: kind, Key: "k", Payload: []byte(how)})[0]
		r.awaitRuns(n + 1)
		await(t, "it has ended", func() bool { return r.get(ref).State != durable.Running })
		time.Sleep(most)
		r.pause(durable.Pausable{Kind: kind}) // it does not begin before the cancel, however late that comes
		before := r.now()
		j := keyed(durable.Later, "")
		j.MaxWait = most
		r.add(j)
		require.GreaterOrEqual(t, r.lookup("k").Due.Sub(before), most/2, how)
		r.cancelKey("k", true)
		r.resume(durable.Pausable{Kind: kind})
	}
	empty(t, r)
}

// With FreeWhenBegun a key is free when its job begins. A job that is added then waits, and
// supersedes the next attempt of the other.
func freeWhenBegun(t *testing.T, s Store) {
	proceed := make(chan error)
	r := open(t, s.Open(t), backoff(time.Hour), durable.WithConcurrency(4)).handle(kind, answers(proceed)).start()
	job := func(value string, after time.Duration) durable.Job {
		return durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true, Payload: []byte(value), After: after}
	}
	one := r.add(job("1", 0))[0]
	r.awaitRuns(1)
	two := r.add(job("2", time.Hour))[0]
	r.refuses(job("3", time.Hour), durable.ErrExists)
	require.Equal(t, "k", r.get(one).Job.Key)
	require.True(t, r.get(one).Job.FreeWhenBegun)
	proceed <- errTest // it is superseded
	r.awaitGone(one)
	require.Equal(t, two, r.lookup("k").Ref)

	// With nobody after it, it takes the key again.
	r.reschedule(two, time.Now(), true)
	r.awaitRuns(2)
	r.lacks("k")
	proceed <- errTest
	await(t, "it waits for its next attempt", func() bool {
		i, err := r.Lookup(within(t), "k")
		return err == nil && i.Ref == two
	})
	four := job("4", 0)
	four.OnKey = durable.Replace
	r.add(four)
	require.Equal(t, "4", string(r.awaitRuns(3)[2].Job.Payload))
	proceed <- nil

	// Without FreeWhenBegun the running job has the key, whatever OnKey says.
	five := durable.Job{Kind: kind, Key: "k"}
	r.add(five)
	r.awaitRuns(4)
	for _, five.OnKey = range []durable.OnKey{durable.Refuse, durable.Replace, durable.Later, durable.Keep} {
		r.refuses(five, durable.ErrExists)
	}
	proceed <- nil
	empty(t, r)
}

// A signal makes its job due now by the engine's clock, though the caller's idea of that is an hour ahead, as after a
// step back.
func signalAfterStep(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	r.add(durable.Job{Kind: kind, Key: "k", Signals: true, After: 2 * time.Hour})
	require.True(t, r.is(r.engine.Signal(within(t), "k", nil, r.now().Add(time.Hour).Truncate(time.Microsecond))))
	require.WithinDuration(t, r.now(), r.lookup("k").Due, patience)
	r.start().awaitRuns(1)
	empty(t, r)
}

// A waiting job with Signals takes one signal, and its next attempts have it.
func signal(t *testing.T, s Store) {
	proceed := make(chan error)
	r := open(t, s.Open(t), backoff(time.Millisecond)).handle(kind, answers(proceed)).start()
	signals := func(key, payload string) bool { return r.is(r.Signal(within(t), key, []byte(payload))) }
	require.False(t, signals("k", "1"))
	r.add(durable.Job{Kind: kind, Key: "deaf", After: time.Hour})
	require.False(t, signals("deaf", "1"))
	r.cancelKey("deaf", true)
	_, err := r.Signal(within(t), "k", make([]byte, durable.MaxPayload+1))
	require.ErrorIs(t, err, durable.ErrInvalid)

	r.add(durable.Job{Kind: "nobody's", Key: "once", Signals: true, After: time.Hour})
	require.True(t, signals("once", "1"))
	require.False(t, signals("once", "2"))
	r.cancelKey("once", true)

	ref := r.add(durable.Job{Kind: kind, Key: "k", Signals: true, After: time.Hour})[0]
	require.True(t, signals("k", ""))
	require.False(t, signals("k", "second"))
	run := r.awaitRuns(1)[0]
	require.Equal(t, ref, run.Ref)
	require.True(t, run.Signaled)
	require.Empty(t, run.Signal)
	require.False(t, signals("k", "it runs"))
	r.refuses(keyed(durable.Replace, "the key is taken"), durable.ErrExists)
	proceed <- errTest
	require.True(t, r.awaitRuns(2)[1].Signaled)
	proceed <- nil
	r.awaitGone(ref)

	r.add(durable.Job{Kind: kind, Key: "k", Signals: true, After: 50 * time.Millisecond, Payload: []byte("p")})
	require.False(t, r.awaitRuns(3)[2].Signaled)
	proceed <- errTest
	await(t, "it takes one before its next attempt, or that has begun", func() bool { return attempts(r) > 3 || signals("k", "late") })
	r.awaitRuns(4)
	proceed <- nil
	empty(t, r)
}

// A waiting job that has expired does not have its key any more: no signal reaches it, and no Add meets it. It
// dies when its turn comes.
func expiredHolder(t *testing.T, s Store) {
	r := open(t, s.Open(t), backoff(0))
	expired := func(j durable.Job) durable.Ref {
		j.Kind, j.Key, j.Signals = kind, "k", true
		for {
			j.Expires = r.now().Add(100 * time.Millisecond)
			ref, err := r.Add(within(t), j)
			if errors.Is(err, durable.ErrInvalid) { // it has expired before Add was called
				continue
			}
			r.ok(err)
			return ref
		}
	}
	var dead []durable.Ref
	for _, on := range []durable.OnKey{durable.Refuse, durable.Replace, durable.Later, durable.Keep} {
		dead = append(dead, expired(durable.Job{FreeWhenBegun: on == durable.Keep}))
		time.Sleep(200 * time.Millisecond)
		require.False(t, r.is(r.Signal(within(t), "k", nil)), "it has expired")
		_, err := r.Lookup(within(t), "k")
		require.ErrorIs(t, err, durable.ErrNotFound)
		found, next := durable.Ref("x"), keyed(on, "next")
		if next.Found = &found; on == durable.Later {
			next.MaxWait = time.Millisecond
			next.After = 0
		}
		ref := r.add(next)[0]
		require.NotEqual(t, dead[len(dead)-1], ref)
		require.Empty(t, found)
		require.Equal(t, ref, r.lookup("k").Ref)
		r.cancelKey("k", true)
		r.cancelKey("k", false) // the expired one is found by its key no more
	}
	killed := r.add(keyed(durable.Refuse, "killed"))[0]
	r.handle(kind, fails(durable.Discard(errTest))).start()
	r.reschedule(killed, time.Now(), true)
	state := func(ref durable.Ref) {
		await(t, "it is dead", func() bool { return r.get(ref).State == durable.Dead })
	}
	state(killed)
	for _, ref := range dead {
		state(ref)
		require.Equal(t, durable.ErrExpired.Error(), r.get(ref).LastError)
	}
	require.Equal(t, 1, attempts(r))
	r.drain()
	expired(durable.Job{})
	time.Sleep(200 * time.Millisecond)
	r.cancelKey("k", true)
	dead = append(dead, expired(durable.Job{}))
	time.Sleep(200 * time.Millisecond)
	r.redrive(killed)
	require.Equal(t, killed, r.lookup("k").Ref)
	r.cancelKey("k", true)
	r.start()
	for _, ref := range dead {
		state(ref)
		r.delete(ref)
	}
	empty(t, r)
}

// A job that has a signal passes it on to the job that replaces it, which is due as soon, if that takes signals.
func signalReplaced(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	for n, next := range []durable.Job{{OnKey: durable.Replace}, {OnKey: durable.Later}, {OnKey: durable.Later, MaxWait: 30 * time.Minute}} {
		next.Kind, next.Key, next.Signals, next.After = kind, fmt.Sprint(n), true, time.Hour
		first := next
		first.OnKey, first.MaxWait = durable.Refuse, 0
		r.add(first)
		require.True(t, r.is(r.Signal(within(t), next.Key, []byte("payload"))))
		for range 2 {
			ref := r.add(next)[0]
			i := r.lookup(next.Key)
			require.Equal(t, ref, i.Ref)
			require.WithinDuration(t, time.Now(), i.Due, patience)
			require.False(t, r.is(r.Signal(within(t), next.Key, nil)), "it has one")
		}
	}
	// One that takes none goes into the job, which is due, without the signal.
	deaf := keyed(durable.Refuse, "")
	deaf.Signals = true
	r.add(deaf)
	require.True(t, r.is(r.Signal(within(t), "k", nil)))
	deaf.Signals, deaf.OnKey = false, durable.Replace
	r.add(deaf)
	require.WithinDuration(t, time.Now(), r.lookup("k").Due, patience)
	r.cancelKey("k", true)

	r.handle(kind, nil).start()
	for _, run := range r.awaitRuns(3) {
		require.True(t, run.Signaled)
		require.Equal(t, "payload", string(run.Signal))
	}
	empty(t, r)
}

// A job that has replaced one that waits for its next attempt, and has its signal, is due before its own time. Once
// it was replaced, or has run, it has ended: no Cancel ends it again.
func signalReplacedAfterFailure(t *testing.T, s Store) {
	r := open(t, s.Open(t), backoff(time.Hour))
	r.handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if string(a.Job.Payload) == "fails" {
			return errTest
		}
		return nil
	}).start()
	first := keyed(durable.Refuse, "fails")
	first.Signals = true
	failed := r.add(first)[0]
	require.True(t, r.is(r.Signal(within(t), "k", []byte("payload"))))
	await(t, "it waits for its next attempt", func() bool { i := r.get(failed); return i.State == durable.Waiting && i.Attempt == 1 })
	next := keyed(durable.Replace, "runs")
	next.Signals, next.After = true, 2*time.Hour
	replaced := r.add(next)[0]
	require.WithinDuration(t, time.Now().Add(time.Hour), r.get(replaced).Due, 10*time.Minute)
	ref := r.add(next)[0]
	r.cancel(replaced, false, "it was replaced")
	r.reschedule(ref, time.Now(), true)
	require.Equal(t, "payload", string(r.awaitRuns(2)[1].Signal))
	r.awaitGone(ref)
	for _, ended := range []durable.Ref{failed, replaced, ref} {
		r.cancel(ended, false, "it has ended")
		require.False(t, r.moves(ended, time.Now()), "it has ended")
	}
	r.lacks("k")
	empty(t, r)
}

// If a job replaces another while that is claimed, one of the two wins: never both, never neither.
func replaceAgainstClaim(t *testing.T, s Store) {
	r, c := open(t, s.Open(t)), open(t, s.Open(t))
	w := newCrashing(t, r.engine, "w", func(c *driver.WorkConfig) { c.Lease, c.Ahead = time.Minute, time.Second })
	var l lead
	for n := range races() / 4 {
		key := strconv.Itoa(n)
		ref := r.add(durable.Job{Kind: kind, Key: key, FreeWhenBegun: n%2 == 0})[0]
		held := exact(w.take(ref))
		var found durable.Ref
		rec, err := driver.NewRecord(durable.Job{Kind: kind, Key: key, OnKey: durable.Replace, After: time.Hour, Found: &found}, c.now())
		require.NoError(t, err)
		var claims int
		var refs []durable.Ref
		var errs []error
		l.race(func() int {
			claims = len(endGranted(t, w, held, nil))
			return claims
		}, func() int {
			refs, errs = c.engine.Insert(within(t), []driver.Record{rec})
			return count(found != "")
		})
		if claims == 1 {
			require.Empty(t, found)
		} else {
			require.NoError(t, errs[0])
			require.Equal(t, ref, found)
		}
		if errs[0] == nil {
			c.cancel(refs[0], true, "it waits")
		} else {
			require.ErrorIs(t, errs[0], durable.ErrExists)
		}
	}
	l.bothWin(t)
	empty(t, r)
}

// Around the deadline the one attempt has a signal, or Signal returned false. If a cancel overlaps,
// no attempt begins, or the one that begins has the signal.
func signalAgainstDeadline(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	c := open(t, s.Open(t))
	const n = 60
	length := time.Second
	for round := 0; ; round++ {
		signaled, canceled := signalWithin(t, r, c, fmt.Sprint(round, "."), n, length)
		if signaled > 0 && signaled < n && canceled > 0 {
			break
		}
		require.Less(t, round, 8, "%d signaled, %d canceled", signaled, canceled)
		length *= 2
	}
	empty(t, r)
}

// signalWithin adds jobs that are due within a time, signals each at about that time, and cancels
// each fourth. Where the engine does not store them in time, it waits for their end, and has signaled
// none.
func signalWithin(t *testing.T, r, c *rig, name string, n int, length time.Duration) (signaled, canceled int) {
	jobs := spread(n, length, length/time.Duration(n))
	for i := range jobs {
		jobs[i].Key, jobs[i].Signals = name+strconv.Itoa(i), true
	}
	before := attempts(r)
	began := time.Now()
	refs, err := r.AddMany(within(t), jobs...)
	if errors.Is(err, context.DeadlineExceeded) {
		for _, job := range jobs {
			await(t, "what was stored has ended", func() bool {
				_, err := r.Lookup(within(t), job.Key)
				return errors.Is(err, durable.ErrNotFound)
			})
		}
		return 0, 0
	}
	r.ok(err)
	came, gone := make([]bool, n), make([]bool, n)
	about := func(i, off int) { time.Sleep(jobs[i].After - time.Since(began) + time.Duration(off)*time.Millisecond) }
	atOnce(n+n/4, func(i int) {
		if i < n {
			about(i, i%16-8)
			ok, err := c.Signal(within(t), jobs[i].Key, []byte(jobs[i].Key))
			assert.NoError(t, err)
			came[i] = ok
			return
		}
		i = 4 * (i - n)
		about(i, i%16-12)
		ok, err := c.Cancel(within(t), refs[i])
		assert.NoError(t, err)
		gone[i] = ok
	})
	signaled, canceled = count(came...), count(gone...)
	await(t, "all ran or were canceled", func() bool { return attempts(r)-before+canceled >= n })
	time.Sleep(r.again())
	seen := map[durable.Ref]run{}
	for _, run := range r.ran()[before:] {
		require.NotContains(t, seen, run.Ref, "twice")
		seen[run.Ref] = run
	}
	for i, ref := range refs {
		run, ran := seen[ref]
		require.NotEqual(t, gone[i], ran, "canceled %v, ran %v", gone[i], ran)
		if ran {
			require.Equal(t, came[i], run.Signaled)
			require.True(t, !run.Signaled || string(run.Signal) == jobs[i].Key)
		}
	}
	t.Logf("%d signaled, %d canceled of %d within %v", signaled, canceled, n, length)
	return signaled, canceled
}

// While values are added under one key all the time, a run that begins after the last Add has the
// last value, and each run has a later value than the run before it.
func lastValue(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, sleeps(5*time.Millisecond))
	r.limit("one", durable.Limit{PerLane: true, Running: 1})
	r.start()
	c := open(t, s.Open(t))
	var last durable.Ref
	values, pause := 0, time.Duration(0)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) || attempts(r) < 3 || values < attempts(r)+3; values++ {
		last = c.add(durable.Job{
			Kind: kind, Key: "k", Lane: "k", OnKey: durable.Later, MaxWait: 300 * time.Millisecond, After: 100 * time.Millisecond,
			FreeWhenBegun: true, Payload: strconv.AppendInt(nil, int64(values), 10),
		})[0]
		breathe()
		if time.Now().After(end) && attempts(r) < 3 { // a job that is replaced all the time may come to no claim
			pause += 100 * time.Millisecond
			time.Sleep(pause)
		}
	}
	r.awaitGone(last)
	before := -1
	for _, run := range r.ran() {
		value := atoi(t, run.Job.Payload)
		require.Greater(t, value, before)
		before = value
	}
	require.Equal(t, values-1, before)
	require.Less(t, attempts(r), values)
	empty(t, r)
}

// A job that many replace at once, and that nobody claims, is no reason for ErrExists.
func keyReplacedByMany(t *testing.T, s Store) {
	rigs := []*rig{open(t, s.Open(t)), open(t, s.Open(t)), open(t, s.Open(t))}
	atOnce(12, func(i int) {
		on := []durable.OnKey{durable.Replace, durable.Later}[i%2]
		for range 15 {
			_, err := rigs[i%3].Add(within(t), keyed(on, ""))
			assert.NoError(t, err)
		}
	})
	rigs[0].cancelKey("k", true)
	empty(t, rigs[0])
}

// claimedKey returns a job that a worker has claimed, and that has freed the key "k" by that.
func claimedKey(r *rig, w *crashing) (durable.Ref, *driver.Delivery) {
	ref := r.add(durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true})[0]
	h := w.take(ref)
	w.granted(h)
	return ref, h
}

// Of two jobs of one key whose attempts fail, the one that was added later waits for another attempt,
// whichever fails first. The other has ended by then, also if the later one has run meanwhile, but not
// if the later one was canceled before it began.
func newerStays(t *testing.T, s Store) {
	ends := map[string]chan error{"1": make(chan error), "2": make(chan error)}
	r := open(t, s.Open(t), backoff(time.Hour), durable.WithConcurrency(4)).handle(kind, func(_ context.Context, a *durable.Attempt) error {
		return <-ends[string(a.Job.Payload)]
	}).start()
	runs := 0
	begin := func(value string) durable.Ref {
		ref := r.add(durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true, Payload: []byte(value)})[0]
		runs++
		r.awaitRuns(runs)
		return ref
	}
	has := func(ref durable.Ref) {
		await(t, "it waits under the key", func() bool {
			i, err := r.Lookup(within(t), "k")
			return err == nil && i.Ref == ref && i.State == durable.Waiting
		})
	}
	for _, first := range []string{"1", "2"} {
		one, two := begin("1"), begin("2")
		for _, value := range []string{first, map[string]string{"1": "2", "2": "1"}[first]} {
			ends[value] <- errTest
			if value == "1" {
				r.awaitGone(one)
			} else {
				has(two)
			}
		}
		has(two)
		r.cancelKey("k", true)
	}

	one, two := begin("1"), begin("2")
	ends["2"] <- nil
	r.awaitGone(two)
	ends["1"] <- errTest
	r.awaitGone(one)
	r.lacks("k")

	one = begin("1")
	later := keyed(durable.Replace, "2")
	r.add(later)
	r.add(later)
	r.cancelKey("k", true)
	ends["1"] <- errTest
	has(one)
	r.cancelKey("k", true)
	empty(t, r)
}

// The same of two that are cut off in one call.
func newerStaysAfterGrace(t *testing.T, s Store) {
	for range 4 {
		r := open(t, s.Open(t), durable.WithGrace(time.Millisecond), durable.WithConcurrency(4)).handle(kind, func(ctx context.Context, _ *durable.Attempt) error {
			<-ctx.Done()
			return errTest
		}).start()
		var refs []durable.Ref
		for n := range 3 {
			refs = append(refs, r.add(durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true})[0])
			r.awaitRuns(n + 1)
		}
		r.drain()
		c := open(t, s.Open(t))
		c.awaitGone(refs[:2]...)
		i := c.lookup("k")
		require.Equal(t, refs[2], i.Ref)
		require.Equal(t, durable.Waiting, i.State)
		require.Zero(t, i.Attempt)
		empties(t, c)
	}
}

// If the process of an attempt that has freed its key dies, or hands the job back, and a newer job of
// the key was stored since, the job ends: it does not run after the newer one. Limited jobs free their permits.
func newerAfterTakeover(t *testing.T, s Store) {
	for _, limited := range []bool{false, true} {
		r := open(t, s.Open(t)).handle(kind, nil)
		if limited {
			r.limit("one", durable.Limit{PerLane: true, Running: 1})
		}
		e := s.Open(t)
		w := newCrashing(t, e, fmt.Sprint("dies-", limited))
		job := durable.Job{Kind: kind, Key: "k", Lane: "k", FreeWhenBegun: true}
		one := r.add(job)[0]
		w.granted(w.take(one))
		w.stop()
		two := r.add(job)[0]
		r.start()
		if !limited { // else it waits for the permit of the dead
			r.awaitRuns(1)
		}
		require.NoError(t, w.Close(within(t)))
		require.NoError(t, e.Close())
		r.awaitGone(one, two)
		for _, run := range r.ran() {
			require.Equal(t, two, run.Ref)
		}
		if limited {
			await(t, "no permit is taken", func() bool { return r.taken() == 0 })
			r.unlimit("one")
		}
		empty(t, r)
		r.drain()
	}
}

// If the process of an attempt that has freed its key dies, a job that waits under the key by then
// stays, and runs alone.
func keyLeftByTheDead(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	e := s.Open(t)
	w := newCrashing(t, e, "dies")
	one, _ := claimedKey(r, w)
	w.stop()
	require.NoError(t, e.Close())
	var found durable.Ref
	two := r.add(durable.Job{Kind: kind, Key: "k", OnKey: durable.Replace, Found: &found})[0]
	require.Empty(t, found)
	r.handle(kind, nil).start()
	require.Equal(t, two, r.awaitRuns(1)[0].Ref)
	r.awaitGone(one)
	for _, run := range r.ran() {
		require.Equal(t, two, run.Ref)
	}
	empty(t, r)
}

// A job that has left its key and whose attempt is cut off takes the key again, or is superseded by the
// job that waits under the key.
func keyAfterGrace(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithGrace(time.Millisecond)).handle(kind, func(ctx context.Context, _ *durable.Attempt) error {
		<-ctx.Done()
		return errTest
	}).start()
	refs := r.add(durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true}, durable.Job{Kind: kind, Key: "l", FreeWhenBegun: true})
	r.awaitRuns(2)
	c := open(t, s.Open(t))
	// The key is not free while an attempt that has lost its lease waits for the next one.
	newer := c.addWhenFree(durable.Job{Kind: kind, Key: "l", FreeWhenBegun: true, After: time.Hour})
	r.drain()
	require.Equal(t, refs[0], c.lookup("k").Ref)
	require.Zero(t, c.lookup("k").Attempt)
	c.awaitGone(refs[1])
	require.Equal(t, newer, c.lookup("l").Ref)
	for _, key := range []string{"k", "l"} {
		c.cancelKey(key, true)
	}
	empty(t, c)
}

// A job that is handed back before its attempt has begun takes its key again, unless another job has
// the key by then.
func keyAfterRelease(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, s.Open(t))
	for _, another := range []bool{false, true} {
		w := newCrashing(t, e, "w")
		one, h := claimedKey(r, w)
		w.stop()
		has := one
		if another {
			has = r.add(keyed(durable.Refuse, ""))[0]
		}
		w.release(h, 0)
		require.NoError(t, w.Close(within(t)))
		i := r.lookup("k")
		require.Equal(t, has, i.Ref)
		require.Equal(t, durable.Waiting, i.State)
		require.Zero(t, i.Attempt, "a claim that is given back does not count")
		r.cancelAll(slices.Compact([]durable.Ref{one, has}))
	}
	empty(t, r)
}

// If two jobs of one key are handed back in one call, both wait, and one of them has the key.
func keyAfterReleaseOfTwo(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	w := newCrashing(t, s.Open(t), "w").beating()
	var refs []durable.Ref
	var held []*driver.Delivery
	for range 2 {
		ref, h := claimedKey(r, w)
		refs, held = append(refs, ref), append(held, h)
	}
	require.NoError(t, w.Release(within(t), held, 0))
	require.Contains(t, refs, r.lookup("k").Ref)
	r.cancelAll(refs)
	empty(t, r)
}
