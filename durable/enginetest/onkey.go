package enginetest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// keyed returns a job that is added to the key "k" and is due in an hour.
func keyed(on durable.OnKey, value string) durable.Job {
	return durable.Job{Kind: kind, Key: "k", OnKey: on, Payload: []byte(value), After: time.Hour}
}

// A job that waits under a key is replaced, pushed back, or stays, and Found is its Ref.
func onKey(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	waits := func(value string) durable.Info {
		t.Helper()
		i, err := r.Lookup(within(t), "k")
		require.NoError(t, err)
		require.Equal(t, value, string(i.Job.Payload))
		return i
	}
	var found durable.Ref
	add := func(j durable.Job) durable.Ref {
		t.Helper()
		j.Found = &found
		return r.add(j)[0]
	}
	_, err := r.Lookup(within(t), "k")
	require.ErrorIs(t, err, durable.ErrNotFound)
	found = "x"
	first := add(keyed(durable.Replace, "1"))
	require.Empty(t, found)

	second := add(keyed(durable.Replace, "2"))
	require.Equal(t, first, found)
	require.Equal(t, second, waits("2").Ref)
	require.NotEqual(t, first, second)
	_, err = r.Get(within(t), first)
	require.ErrorIs(t, err, durable.ErrNotFound)
	r.cancel(first, false, "it was replaced")

	require.Equal(t, second, add(keyed(durable.Keep, "3")))
	require.Equal(t, second, found)
	waits("2")

	found = ""
	_, err = r.Add(within(t), keyed(durable.Refuse, "4"))
	require.ErrorIs(t, err, durable.ErrExists)
	waits("2")

	_, err = r.Add(within(t), durable.Job{Kind: kind, OnKey: durable.Keep})
	require.ErrorIs(t, err, durable.ErrInvalid)
	_, err = r.Add(within(t), durable.Job{Kind: kind, Key: "k", OnKey: durable.Replace, MaxWait: time.Hour})
	require.ErrorIs(t, err, durable.ErrInvalid)

	// All of one call: the last has the key.
	refs := r.add(keyed(durable.Replace, "5"), keyed(durable.Replace, "6"), keyed(durable.Keep, "7"))
	require.Equal(t, refs[1], waits("6").Ref)
	require.Equal(t, refs[1], refs[2])
	empties(t, r)
}

// A repeated Insert sets Found to "" rather than leave an old value there.
func foundAgain(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e)
	now := engineNow(t, e)
	var found durable.Ref
	rec, err := driver.NewRecord(driver.Record{Kind: kind, Key: "k", OnKey: driver.KeyReplace, At: now.Add(time.Hour), Found: &found}, now)
	require.NoError(t, err)
	for range 2 {
		found = "of another Add"
		refs, errs := e.Insert(within(t), []driver.Record{rec})
		require.NoError(t, errs[0])
		require.NotEmpty(t, refs[0])
		require.Empty(t, found)
	}
	empties(t, r)
}

// empties cancels the job that waits under "k", and checks that no job is left.
func empties(t *testing.T, r *rig) {
	t.Helper()
	ok, err := r.CancelKey(within(t), "k")
	require.NoError(t, err)
	require.True(t, ok)
	empty(t, r)
}

// A job that is pushed back is due later each time, but no later than MaxWait after the first Add. A
// job that replaces it begins anew.
func pushedBack(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	due := func() time.Time {
		i, err := r.Lookup(within(t), "k")
		require.NoError(t, err)
		require.Equal(t, i.Due, i.Job.At)
		return i.Due
	}
	j := keyed(durable.Later, "")
	r.add(j)
	before := due()
	time.Sleep(20 * time.Millisecond)
	r.add(j)
	require.Greater(t, due(), before)
	j.MaxWait = 90 * time.Minute
	j.After = 2 * time.Hour
	r.add(j)
	last := due()
	require.WithinDuration(t, before.Add(30*time.Minute), last, time.Second)
	time.Sleep(20 * time.Millisecond)
	j.After = 3 * time.Hour
	r.add(j)
	require.Equal(t, last, due())
	j.MaxWait = time.Microsecond
	refs := r.add(j) // it is over: due when it was added
	require.WithinDuration(t, last.Add(-90*time.Minute), due(), time.Minute)
	require.NotEmpty(t, refs[0])

	r.add(keyed(durable.Replace, "anew"))
	time.Sleep(20 * time.Millisecond)
	j.MaxWait = 90 * time.Minute
	r.add(j)
	require.Greater(t, due(), last)
	empties(t, r)
}

// With FreeWhenBegun a key is free when its job begins. A job that is added then waits, and
// supersedes the next attempt of the other.
func freeWhenBegun(t *testing.T, s Store) {
	proceed := make(chan error)
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return time.Hour }), durable.WithConcurrency(4)).
		handle(kind, func(context.Context, *durable.Attempt) error { return <-proceed }).start()
	job := func(value string, after time.Duration) durable.Job {
		return durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true, Payload: []byte(value), After: after}
	}
	one := r.add(job("1", 0))[0]
	r.awaitRuns(1)
	two := r.add(job("2", time.Hour))[0]
	_, err := r.Add(within(t), job("3", time.Hour))
	require.ErrorIs(t, err, durable.ErrExists)
	i, err := r.Get(within(t), one)
	require.NoError(t, err)
	require.Equal(t, "k", i.Job.Key)
	require.True(t, i.Job.FreeWhenBegun)
	proceed <- errTest // it is superseded
	r.awaitGone(one)
	i, err = r.Lookup(within(t), "k")
	require.NoError(t, err)
	require.Equal(t, two, i.Ref)

	// With nobody after it, it takes the key again.
	_, ok, err := r.Reschedule(within(t), two, time.Now())
	require.NoError(t, err)
	require.True(t, ok)
	r.awaitRuns(2)
	_, err = r.Lookup(within(t), "k")
	require.ErrorIs(t, err, durable.ErrNotFound)
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
		_, err = r.Add(within(t), five)
		require.ErrorIs(t, err, durable.ErrExists)
	}
	proceed <- nil
	empty(t, r)
}

// A waiting job with Signals takes one signal, and its next attempts have it.
func signal(t *testing.T, s Store) {
	proceed := make(chan error)
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return time.Millisecond })).
		handle(kind, func(context.Context, *durable.Attempt) error { return <-proceed }).start()
	signal := func(key, payload string, want bool) {
		t.Helper()
		ok, err := r.Signal(within(t), key, []byte(payload))
		require.NoError(t, err)
		require.Equal(t, want, ok)
	}
	signal("k", "1", false)
	r.add(durable.Job{Kind: kind, Key: "deaf", After: time.Hour})
	signal("deaf", "1", false)
	_, err := r.CancelKey(within(t), "deaf")
	require.NoError(t, err)
	_, err = r.Signal(within(t), "k", make([]byte, durable.MaxPayload+1))
	require.ErrorIs(t, err, durable.ErrInvalid)

	r.add(durable.Job{Kind: "nobody's", Key: "once", Signals: true, After: time.Hour})
	signal("once", "1", true)
	signal("once", "2", false)
	ok, err := r.CancelKey(within(t), "once")
	require.NoError(t, err)
	require.True(t, ok)

	ref := r.add(durable.Job{Kind: kind, Key: "k", Signals: true, After: time.Hour})[0]
	signal("k", "", true)
	signal("k", "second", false)
	run := r.awaitRuns(1)[0]
	require.Equal(t, ref, run.Ref)
	require.True(t, run.Signaled)
	require.Empty(t, run.Signal)
	signal("k", "it runs", false)
	_, err = r.Add(within(t), keyed(durable.Replace, "the key is taken"))
	require.ErrorIs(t, err, durable.ErrExists)
	proceed <- errTest
	require.True(t, r.awaitRuns(2)[1].Signaled)
	proceed <- nil
	r.awaitGone(ref)

	r.add(durable.Job{Kind: kind, Key: "k", Signals: true, After: 50 * time.Millisecond, Payload: []byte("p")})
	require.False(t, r.awaitRuns(3)[2].Signaled)
	proceed <- errTest
	await(t, "it takes one before its next attempt, or that has begun", func() bool {
		if len(r.ran()) > 3 {
			return true
		}
		ok, err := r.Signal(within(t), "k", []byte("late"))
		require.NoError(t, err)
		return ok
	})
	r.awaitRuns(4)
	proceed <- nil
	empty(t, r)
}

// If a job replaces another while that is claimed, one of the two wins: never both, never neither.
func replaceAgainstClaim(t *testing.T, s Store) {
	e, other := s.Open(t), s.Open(t)
	r := open(t, e)
	w := newCrashing(t, e, "w", func(c *driver.WorkConfig) { c.Lease, c.Ahead = time.Minute, time.Second })
	claims, replaced := 0, 0
	var lead time.Duration // of the claim
	step, before := time.Millisecond/4, false
	for n := range races() / 4 {
		key := strconv.Itoa(n)
		ref := r.add(durable.Job{Kind: kind, Key: key, FreeWhenBegun: n%2 == 0})[0]
		held := exact(w.take(ref))
		now, _, err := other.Now(within(t))
		require.NoError(t, err)
		var found durable.Ref
		rec, err := driver.NewRecord(driver.Record{
			Kind: kind, Key: key, OnKey: driver.KeyReplace, At: now.Add(time.Hour), Found: &found,
		}, now)
		require.NoError(t, err)
		var mine bool
		var refs []durable.Ref
		var errs []error
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(-lead)
			mine = len(endGranted(t, w, held, nil)) == 1
		})
		wg.Go(func() {
			time.Sleep(lead)
			refs, errs = other.Insert(within(t), []driver.Record{rec})
		})
		wg.Wait()
		if mine {
			claims++
			require.Empty(t, found)
		} else {
			replaced++
			require.NoError(t, errs[0])
			require.Equal(t, ref, found)
		}
		if step = step * 3 / 2; mine != before {
			step = time.Millisecond / 4
		}
		if before = mine; mine {
			lead -= step
		} else {
			lead += step
		}
		if errs[0] == nil {
			oks, _ := other.Cancel(within(t), refs)
			require.True(t, oks[0])
		} else {
			require.ErrorIs(t, errs[0], durable.ErrExists)
		}
	}
	t.Logf("%d claims and %d replaced", claims, replaced)
	require.Positive(t, claims)
	require.Positive(t, replaced)
	empty(t, r)
}

// Around the deadline the one attempt has a signal, or Signal returned false. If a cancel overlaps,
// no attempt begins, or the one that begins has the signal.
func signalAgainstDeadline(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	c := open(t, s.Open(t))
	const n = 60
	span := time.Second
	for round := 0; ; round++ {
		signaled, canceled := signalWithin(t, r, c, fmt.Sprint(round, "."), n, span)
		if signaled > 0 && signaled < n && canceled > 0 {
			break
		}
		require.Less(t, round, 8, "%d signaled, %d canceled", signaled, canceled)
		span *= 2
	}
	empty(t, r)
}

// signalWithin adds jobs that are due within a span, signals each at about that time, and cancels
// each fourth.
func signalWithin(t *testing.T, r, c *rig, name string, n int, span time.Duration) (signaled, canceled int) {
	var jobs []durable.Job
	for i := range n {
		jobs = append(jobs, durable.Job{Kind: kind, Key: name + strconv.Itoa(i), Signals: true, After: span + time.Duration(i)*span/time.Duration(n)})
	}
	before := len(r.ran())
	began := time.Now()
	refs := r.add(jobs...)
	came, gone := make([]bool, n), make([]bool, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			time.Sleep(jobs[i].After - time.Since(began) + time.Duration(i%16-8)*time.Millisecond)
			ok, err := c.Signal(within(t), jobs[i].Key, []byte(jobs[i].Key))
			came[i] = ok
			if err != nil {
				t.Error(err)
			}
		})
		if i%4 != 0 {
			continue
		}
		wg.Go(func() {
			time.Sleep(jobs[i].After - time.Since(began) + time.Duration(i%16-12)*time.Millisecond)
			ok, err := c.Cancel(within(t), refs[i])
			gone[i] = ok
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		if came[i] {
			signaled++
		}
		if gone[i] {
			canceled++
		}
	}
	await(t, "all ran or were canceled", func() bool { return len(r.ran())-before+canceled >= n })
	time.Sleep(again)
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
			if run.Signaled {
				require.Equal(t, jobs[i].Key, string(run.Signal))
			}
		}
	}
	t.Logf("%d signaled, %d canceled of %d within %v", signaled, canceled, n, span)
	return signaled, canceled
}

// While values are added under one key all the time, a run that begins after the last Add has the
// last value, and each run has a later value than the run before it.
func lastValue(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, func(context.Context, *durable.Attempt) error {
		time.Sleep(5 * time.Millisecond)
		return nil
	})
	require.NoError(t, r.SetLimit(within(t), "one", durable.Limit{PerLane: true, Running: 1}))
	r.start()
	c := open(t, s.Open(t))
	var last durable.Ref
	values := 0
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end) || len(r.ran()) < 3 || values < len(r.ran())+3; values++ {
		last = c.add(durable.Job{
			Kind: kind, Key: "k", Lane: "k", OnKey: durable.Later, MaxWait: 300 * time.Millisecond, After: 100 * time.Millisecond,
			FreeWhenBegun: true, Payload: strconv.AppendInt(nil, int64(values), 10),
		})[0]
		breathe()
	}
	r.awaitGone(last)
	before := -1
	for _, run := range r.ran() {
		value, err := strconv.Atoi(string(run.Job.Payload))
		require.NoError(t, err)
		require.Greater(t, value, before)
		before = value
	}
	require.Equal(t, values-1, before)
	t.Logf("%d values, %d runs", values, len(r.ran()))
	require.Less(t, len(r.ran()), values)
	empty(t, r)
}

// If the process of an attempt that has freed its key dies, a job that waits under the key by then
// stays, and both run.
func keyLeftByTheDead(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, s.Open(t))
	one := r.add(durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true, Payload: []byte("1")})[0]
	claimAndDie(t, e, one)
	var found durable.Ref
	r.add(durable.Job{Kind: kind, Key: "k", OnKey: durable.Replace, Found: &found, Payload: []byte("2")})
	require.Empty(t, found)
	r.handle(kind, nil).start()
	var seen []string
	for _, run := range r.awaitRuns(2) {
		seen = append(seen, string(run.Job.Payload))
	}
	require.ElementsMatch(t, []string{"1", "2"}, seen)
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
	var newer durable.Ref
	await(t, "the key is free", func() bool { // it is not while an attempt that has lost its lease waits for the next one
		ref, err := c.Add(within(t), durable.Job{Kind: kind, Key: "l", FreeWhenBegun: true, After: time.Hour})
		newer = ref
		return err == nil
	})
	r.drain()
	i, err := c.Lookup(within(t), "k")
	require.NoError(t, err)
	require.Equal(t, refs[0], i.Ref)
	require.Zero(t, i.Attempt)
	c.awaitGone(refs[1])
	i, err = c.Lookup(within(t), "l")
	require.NoError(t, err)
	require.Equal(t, newer, i.Ref)
	for _, ref := range []durable.Ref{refs[0], newer} {
		c.cancel(ref, true, "it waits")
	}
	empty(t, c)
}

// A job that is handed back before its attempt has begun takes its key again, unless another job has
// the key by then.
func keyAfterRelease(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, s.Open(t))
	for _, another := range []bool{false, true} {
		job := durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true}
		one := r.add(job)[0]
		has := one
		w := newCrashing(t, e, "w")
		h, v := w.ask(one, true)
		require.Equal(t, driver.Granted, v.Status)
		w.stop()
		if another {
			job.After = time.Hour
			has = r.add(job)[0]
		}
		require.NoError(t, w.Release(within(t), []*driver.Delivery{h}, 0))
		require.NoError(t, w.Close(within(t)))
		i, err := r.Lookup(within(t), "k")
		require.NoError(t, err)
		require.Equal(t, has, i.Ref)
		require.Equal(t, durable.Waiting, i.State)
		r.cancel(one, true, "it waits")
		if another {
			r.cancel(has, true, "it waits")
		}
	}
	empty(t, r)
}

// If two jobs of one key are handed back in one call, both wait, and one of them has the key.
func keyAfterReleaseOfTwo(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, s.Open(t))
	w := newCrashing(t, e, "w").beating()
	var refs []durable.Ref
	var held []*driver.Delivery
	for range 2 {
		ref := r.add(durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true})[0]
		h, v := w.ask(ref, true)
		require.Equal(t, driver.Granted, v.Status)
		refs, held = append(refs, ref), append(held, h)
	}
	require.NoError(t, w.Release(within(t), held, 0))
	i, err := r.Lookup(within(t), "k")
	require.NoError(t, err)
	require.Contains(t, refs, i.Ref)
	for _, ref := range refs {
		r.cancel(ref, true, "it waits")
	}
	empty(t, r)
}

// claimAndDie makes an exact claim of a job, by an engine that then ends.
func claimAndDie(t *testing.T, e driver.Engine, ref durable.Ref) {
	t.Helper()
	w := newCrashing(t, e, "dies")
	_, v := w.ask(ref, true)
	require.Equal(t, driver.Granted, v.Status)
	w.stop()
	require.NoError(t, e.Close())
}
