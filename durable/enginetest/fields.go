package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// full is a job that has all there is.
func full() durable.Job {
	return durable.Job{
		Kind: kind, Payload: []byte("p"), Key: "k", MaxAttempts: 3, Lane: "Ärzte & Söhne", Priority: durable.High,
		Meta: map[string]string{"trace": "00-ab", "tag \"x\"": "a\n\u00e9", "empty": ""}, Timeout: time.Hour,
		Expires: time.Now().Add(24 * time.Hour).Truncate(time.Microsecond),
	}
}

// sameJob compares all but times that depend on when the job was added.
func sameJob(t *testing.T, want, got durable.Job) {
	t.Helper()
	require.True(t, want.Expires.Equal(got.Expires), "%v, %v", want.Expires, got.Expires)
	want.At, want.After, want.Expires, got.At, got.Expires = time.Time{}, 0, time.Time{}, time.Time{}, time.Time{}
	require.Equal(t, want, got)
}

// A job keeps its fields: while it waits, over an attempt and a change of its time, and
// when it is dead.
func fields(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			return durable.RetryAfter(0, errTest)
		}
		return durable.Discard(errTest)
	})
	job := full()
	job.After = time.Hour
	ref := r.add(job)[0]
	sameJob(t, job, r.get(ref).Job)
	r.reschedule(ref, time.Now(), true)
	sameJob(t, job, r.get(ref).Job)
	r.start()
	for _, run := range r.awaitRuns(2) {
		sameJob(t, job, run.Job)
	}
	sameJob(t, job, r.awaitDead(ref).Job)
	job.Expires = time.Time{} // what is redriven is to run
	require.NoError(t, r.Redrive(within(t), ref))
	sameJob(t, job, r.awaitRuns(3)[2].Job)
	plain := r.add(durable.Job{Kind: "other", Payload: []byte("q"), After: time.Hour})[0]
	sameJob(t, durable.Job{Kind: "other", Payload: []byte("q"), MaxAttempts: 25}, r.get(plain).Job)
}

// Of what is due the higher class begins first, and the lower ones do not starve.
func priorities(t *testing.T, s Store) {
	const each = 70
	r := open(t, s.Open(t), durable.WithConcurrency(1))
	release := make(chan struct{})
	r.handle("first", waits(release)).handle(kind, nil).start()
	r.add(durable.Job{Kind: "first"})
	r.awaitRuns(1)
	for _, p := range []durable.Priority{durable.Low, durable.Normal, durable.High} {
		r.add(times(each, durable.Job{Kind: kind, Priority: p, MaxAttempts: 1 + int(p+1)})...)
	}
	// All are due and wait for the one place; of those that are to be claimed ahead some are.
	await(t, "all are held", func() bool { return r.Stats().Held == 3*each+1 })
	time.Sleep(time.Second)
	close(release)
	runs := r.awaitRuns(3*each + 1)[1:]
	n := map[durable.Priority]int{}
	last := map[durable.Priority]int{}
	for i, run := range runs {
		n[run.Job.Priority]++
		last[run.Job.Priority] = i
		switch i + 1 {
		case each:
			require.GreaterOrEqual(t, n[durable.High], each/2, "%v", n) // seven in eight, but for what a slow machine had not claimed
			require.NotZero(t, n[durable.Normal], "one in eight is of a lower class")
			require.NotZero(t, n[durable.Low], "one in 64 is of the lowest")
		case 2 * each:
			require.Equal(t, each, n[durable.High], "%v", n)
		}
	}
	require.Less(t, last[durable.High], last[durable.Normal])
	require.Less(t, last[durable.Normal], last[durable.Low])
	empty(t, r)
}

// The context of an attempt that takes longer than its job's Timeout ends, with that as
// cause. It is an attempt like any other.
func timeout(t *testing.T, s Store) {
	causes := make(chan error, 10)
	r := open(t, s.Open(t)).handle(kind, func(ctx context.Context, a *durable.Attempt) error {
		if _, ok := ctx.Deadline(); ok != (a.Job.Timeout > 0) {
			err := errors.New("the deadline is not that of the job")
			causes <- err
			return durable.Discard(err)
		}
		if a.Number == 2 {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return durable.RetryAfter(0, ctx.Err())
	}).start()
	ref := r.add(durable.Job{Kind: kind, Timeout: 50 * time.Millisecond})[0]
	require.ErrorIs(t, <-causes, durable.ErrTimeout)
	r.awaitGone(ref)
	runs := r.ran()
	require.Len(t, runs, 2)
	require.Equal(t, 2, runs[1].Number)
}

// A job that has not begun when it expires never begins: it is listed as dead, with its key free
// and no attempt counted. It runs when it is redriven.
func expires(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e).handle(kind, nil)
	now := engineNow(t, e)
	ref := r.add(durable.Job{Kind: kind, Key: "k", Expires: now.Add(2 * time.Second)})[0]
	once := r.add(durable.Job{Kind: kind, MaxAttempts: 1, Expires: now.Add(2 * time.Second)})[0]
	later := r.add(durable.Job{Kind: kind, Expires: now.Add(time.Hour)})[0]
	await(t, "they expire", func() bool { return engineNow(t, e).After(now.Add(2 * time.Second)) })
	r.start()
	for _, x := range []durable.Ref{ref, once} {
		info := r.awaitDead(x)
		require.Contains(t, info.LastError, durable.ErrExpired.Error())
		require.Equal(t, 0, info.Attempt)
		require.Len(t, info.Errors, 1)
		require.Equal(t, durable.Failure{At: info.Errors[0].At, Error: info.LastError}, info.Errors[0])
	}
	r.awaitGone(later)
	require.Len(t, r.ran(), 1, "what has not expired")
	await(t, "both are counted", func() bool { return r.Stats().Expired == 2 })
	require.Zero(t, r.Stats().Dead)
	other := r.add(durable.Job{Kind: kind, Key: "k"})[0]
	r.awaitGone(other)
	require.NoError(t, r.Redrive(within(t), ref))
	r.awaitGone(ref)
	require.Equal(t, 1, r.ran()[2].Number)
}

// A job that is snoozed comes again, and that is no attempt: the last error stays, and
// MaxAttempts does not bound it.
func snooze(t *testing.T, s Store) {
	var mu sync.Mutex
	answers := []error{durable.RetryAfter(0, errTest), durable.Snooze(300 * time.Millisecond),
		fmt.Errorf("not yet: %w", durable.Snooze(-1)), durable.Snooze(0), errTest}
	r := open(t, s.Open(t)).handle(kind, func(context.Context, *durable.Attempt) error {
		mu.Lock()
		defer mu.Unlock()
		err := answers[0]
		answers = answers[1:]
		return err
	}).start()
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 2})[0]
	runs := r.awaitRuns(3)
	require.GreaterOrEqual(t, runs[2].Due.Sub(runs[1].Due), 300*time.Millisecond)
	info := r.awaitDead(ref)
	require.True(t, strings.Contains(info.LastError, errTest.Error()))
	require.Equal(t, 2, info.Attempt)
	var numbers []int
	for _, run := range r.ran() {
		numbers = append(numbers, run.Number)
	}
	require.Equal(t, []int{1, 2, 2, 2, 2}, numbers)
	await(t, "its death is counted", func() bool { return r.Stats().Dead > 0 })
	require.Equal(t, []int64{3, 1}, []int64{r.Stats().Snoozed, r.Stats().Failed})
}

// A job with the largest values of each type is kept, with these or as good ones, and runs.
func largest(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			return durable.RetryAfter(0, errTest)
		}
		return nil
	}).start()
	for _, job := range []durable.Job{{Timeout: math.MaxInt64}, {MaxAttempts: math.MaxInt}, {MaxAttempts: math.MaxInt32}} {
		n := len(r.ran())
		job.Kind = kind
		r.awaitGone(r.add(job)[0])
		runs := r.ran()[n:]
		require.Len(t, runs, 2, "%+v", job)
		require.Greater(t, runs[0].Job.Timeout, job.Timeout-time.Microsecond)
		require.GreaterOrEqual(t, runs[0].Job.MaxAttempts, min(max(job.MaxAttempts, 25), math.MaxInt32))
	}
}

// Nothing is found by a text that no job and no schedule can have, and that is no error: a
// database may refuse such texts.
func impossibleTexts(t *testing.T, s Store) {
	r, ctx := open(t, s.Open(t)), within(t)
	r.add(durable.Job{Kind: kind, After: time.Hour, Lane: "l", Meta: map[string]string{"m": "x"}})
	for _, text := range []string{"\x00", "\xff", "a\x00b", strings.Repeat("x", 1<<20)} {
		ok, err := r.CancelKey(ctx, text)
		require.NoError(t, err)
		require.False(t, ok)
		require.ErrorIs(t, r.PauseSchedule(ctx, text), durable.ErrNotFound)
		require.ErrorIs(t, r.DeleteSchedule(ctx, text), durable.ErrNotFound)
		_, err = r.RunNow(ctx, text)
		require.ErrorIs(t, err, durable.ErrNotFound)
		for _, f := range []durable.Filter{{Kind: text}, {Lane: text}, {Meta: map[string]string{text: "x"}}, {Meta: map[string]string{"m": text}}} {
			infos, next, err := r.List(ctx, f, "", 10)
			require.NoError(t, err)
			require.Empty(t, infos)
			require.Empty(t, next)
			for range r.All(ctx, f) {
				require.Fail(t, "neither a job nor an error was to come")
			}
		}
	}
}
