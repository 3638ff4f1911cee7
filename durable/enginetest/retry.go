package enginetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// Failures are tried again after the backoff, and counted; the last one makes the job
// dead.
func retries(t *testing.T, s Store) {
	const pause = 300 * time.Millisecond
	r := open(t, s.Open(t), durable.WithBackoff(func(n int) time.Duration { return time.Duration(n) * pause })).
		handle(kind, fails(errTest)).start()
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 3, Payload: []byte("p")})[0]
	info := r.awaitDead(ref)
	runs := r.ran()
	require.Equal(t, []int{1, 2, 3}, numbers(runs))
	for i, run := range runs {
		require.Equal(t, ref, run.Ref)
		require.Equal(t, "p", string(run.Job.Payload))
		require.True(t, run.Job.At.Equal(runs[0].Job.At), "the first time is kept")
		if i > 0 {
			require.GreaterOrEqual(t, run.Due.Sub(runs[i-1].Due), time.Duration(i)*pause)
		}
	}
	require.Equal(t, 3, info.Attempt)
	require.Contains(t, info.LastError, errTest.Error())
	r.cancel(ref, false, "dead")
	r.reschedule(ref, time.Now(), false)
	await(t, "its death is counted", func() bool { return r.Stats().Dead > 0 }) // after it was written down
	st := r.Stats()
	require.Equal(t, []int64{3, 2, 1}, []int64{st.Attempts, st.Failed, st.Dead})
}

// awaitDead waits until a job is listed as dead.
func (c *calls) awaitDead(ref durable.Ref) (info durable.Info) {
	await(c.t, "it is dead", func() bool {
		var err error
		info, err = c.Get(within(c.t), ref)
		return err == nil && info.State == durable.Dead
	})
	listed := slices.DeleteFunc(c.matching(durable.Filter{State: durable.Dead}), func(i durable.Info) bool { return i.Ref != ref })
	require.Equal(c.t, []durable.Info{info}, listed)
	return info
}

// An error's text may have any bytes, and any length. The errors of the last ten attempts are kept,
// each with its time, cut short and without the stack of a panic. A job that is snoozed has not failed, and one that is redriven keeps
// what it has.
func failures(t *testing.T, s Store) {
	text := "a\x00b\xffc" + strings.Repeat("\u00e9", 10_000) // any bytes, and any length
	var count atomic.Int64
	r := open(t, s.Open(t)).handle(kind, func(context.Context, *durable.Attempt) error {
		n := count.Add(1)
		switch n {
		case 5:
			return durable.Snooze(0)
		case 13:
			return durable.RetryAfter(0, errors.New(text))
		case 14:
			panic("ouch")
		case -87:
			return errors.New(text)
		}
		return durable.RetryAfter(0, fmt.Errorf("failure %d", n))
	}).start()
	began := time.Now()
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 13})[0]
	info := r.awaitDead(ref)
	require.Len(t, info.Errors, 10)
	for i, f := range info.Errors {
		require.Equal(t, 4+i, f.Attempt)
		require.WithinDuration(t, began, f.At, patience)
		require.Equal(t, time.UTC, f.At.Location())
		if i > 0 {
			require.False(t, f.At.Before(info.Errors[i-1].At), "%v", info.Errors)
		}
	}
	require.Equal(t, "failure 4", info.Errors[0].Error)
	require.Equal(t, "failure 6", info.Errors[1].Error, "the fifth was snoozed")
	require.Equal(t, "a\uFFFDb\uFFFDc"+strings.Repeat("\u00e9", 251), info.Errors[8].Error)
	require.Equal(t, "panic: ouch", info.Errors[9].Error)
	require.Contains(t, info.LastError, "retry.go", "the stack is there")

	count.Store(-100)
	r.redrive(ref)
	var again durable.Info
	await(t, "it has failed again", func() bool {
		again = r.get(ref)
		return again.State == durable.Dead && strings.HasPrefix(again.LastError, "a\uFFFDb\uFFFDc\u00e9\u00e9")
	})
	require.Less(t, len(again.LastError), len(text))
	require.Equal(t, 13, again.Errors[9].Attempt)
	require.Equal(t, 4, again.Errors[0].Attempt)
}

// RetryAfter sets the time of the next attempt, Discard ends it, and Redrive has a dead
// job run again, with all its attempts and under the same Ref. It may die again.
func redrive(t *testing.T, s Store) {
	next := make(chan error, 10)
	r := open(t, s.Open(t), backoff(time.Hour)).handle(kind, answers(next)).start()
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 2})[0]
	next <- durable.RetryAfter(400*time.Millisecond, errTest)
	next <- durable.Discard(errTest)
	runs := r.awaitRuns(2)
	require.GreaterOrEqual(t, runs[1].Due.Sub(runs[0].Due), 400*time.Millisecond)
	for round := range 2 {
		r.awaitDead(ref)
		r.redrive(ref)
		require.ErrorIs(t, r.Redrive(within(t), ref), durable.ErrNotFound, "it is not dead any more")
		next <- durable.RetryAfter(0, errTest)
		next <- durable.Discard(errTest)
		r.awaitRuns(4 + 2*round)
	}
	r.awaitDead(ref)
	r.redrive(ref)
	next <- nil
	r.awaitGone(ref)
	empty(t, r)
	time.Sleep(r.lease)
	require.Equal(t, []int{1, 2, 1, 2, 1, 2, 1}, numbers(r.ran()))
	for _, run := range r.ran() {
		require.Equal(t, ref, run.Ref)
	}
	require.ErrorIs(t, r.Redrive(within(t), ref), durable.ErrNotFound)
}

// A redriven job can be canceled and rescheduled by its old Ref.
func redriveCancel(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithAhead(100*time.Millisecond)).
		handle(kind, fails(durable.Discard(errTest))).start()
	ref := r.add(durable.Job{Kind: kind, Key: "k"})[0]
	r.awaitDead(ref)
	r.drain()
	r.redrive(ref)
	r.reschedule(ref, time.Now().Add(time.Hour), true)
	require.Equal(t, durable.Waiting, r.get(ref).State)
	require.Greater(t, time.Until(r.get(ref).Due), 30*time.Minute)
	r.cancel(ref, true, "redriven")
	r.cancel(ref, false, "twice")
	empty(t, r)
	r.add(durable.Job{Kind: kind, Key: "k"})
}

// A deleted job is listed no more, and can be neither deleted again nor redriven. One that
// waits cannot be deleted, nor one that was redriven, which may die again and be deleted then.
func deleteDead(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, fails(durable.Discard(errTest))).start()
	waits := r.add(durable.Job{Kind: kind, After: time.Hour})[0]
	require.ErrorIs(t, r.Delete(within(t), waits), durable.ErrNotFound)
	ref := r.add(durable.Job{Kind: kind, Key: "k", Payload: []byte("p")})[0]
	r.awaitDead(ref)
	r.redrive(ref)
	r.awaitRuns(2)
	r.awaitDead(ref)
	r.delete(ref)
	r.isGone(ref)
	r.isNotDead(ref)
	r.cancel(waits, true, "it was not deleted")
	empty(t, r)
	again := r.add(durable.Job{Kind: kind, Key: "k"})[0]
	r.awaitDead(again)
	r.delete(again)
	time.Sleep(r.lease)
	empty(t, r)
	require.Len(t, r.ran(), 3)
}

// Of Delete and Redrive at one time one wins, and the other finds the job dead no more:
// what was redriven runs, and what was deleted does not.
func deleteAgainstRedrive(t *testing.T, s Store) {
	died := open(t, s.Open(t)).handle(kind, fails(durable.Discard(errTest))).start()
	refs := died.add(times(60, durable.Job{Kind: kind})...)
	for _, ref := range refs {
		died.awaitDead(ref)
	}
	died.drain()
	redriven := map[durable.Ref]bool{}
	var l lead
	for _, ref := range refs {
		var deleted, again error
		l.race(func() int { deleted = died.Delete(within(t), ref); return count(deleted == nil) },
			func() int { again = died.Redrive(within(t), ref); return count(again == nil) })
		redriven[ref] = again == nil
		require.True(t, redriven[ref] != (deleted == nil), "one has won")
		require.ErrorIs(t, errors.Join(deleted, again), durable.ErrNotFound, "the other has lost")
	}
	before := attempts(died)
	died.start()
	for _, ref := range refs {
		if redriven[ref] {
			died.awaitDead(ref)
		}
	}
	for _, run := range died.ran()[before:] {
		require.True(t, redriven[run.Ref], "deleted, and has run")
	}
}

// A payload that is not what the handler takes is dead at once; one that is arrives.
func jsonPayload(t *testing.T, s Store) {
	type order struct{ N int }
	r := open(t, s.Open(t))
	got := make(chan int, 1)
	durable.HandleJSON(r.Queue, kind, func(_ context.Context, _ *durable.Attempt, o order) error {
		got <- o.N
		return nil
	})
	r.start()
	bad := r.add(durable.Job{Kind: kind, Payload: []byte(`{"N": "x"}`)}, durable.Job{Kind: kind, Payload: []byte(`{"N": 7}`)})[0]
	require.Equal(t, 7, <-got)
	require.Contains(t, r.awaitDead(bad).LastError, "is not the JSON that the handler")
}

// A dead job is forgotten when its retention is over.
func retention(t *testing.T, s Store) {
	var r *rig
	var ref durable.Ref
	for keep, found := 6*time.Second, false; !found; keep *= 2 { // long enough to be seen
		require.Less(t, keep, patience, "it is never there")
		r = open(t, s.Open(t), durable.WithRetention(keep)).
			handle(kind, fails(durable.Discard(errTest))).start()
		ref = r.add(durable.Job{Kind: kind})[0]
		await(t, "it dies", func() bool { return r.Stats().Dead == 1 })
		info, err := r.Get(within(t), ref)
		if found = err == nil; found {
			require.Equal(t, durable.Dead, info.State)
			break
		}
		require.ErrorIs(t, err, durable.ErrNotFound)
		r.drain()
	}
	r.awaitGone(ref)
	require.ErrorIs(t, r.Redrive(within(t), ref), durable.ErrNotFound)
	empty(t, r)
}
