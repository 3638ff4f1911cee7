package enginetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// Reschedule earlier, later, into the window, and while it is held; by one Ref, often.
func reschedule(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e, durable.WithAhead(400*time.Millisecond)).handle(kind, nil).start()
	move := func(ref durable.Ref, in time.Duration, want bool) time.Time {
		t.Helper()
		at := engineNow(t, e).Add(in)
		same, ok, err := r.Reschedule(within(t), ref, at)
		require.NoError(t, err)
		require.Equal(t, want, ok)
		require.Equal(t, ref, same)
		return at
	}
	var before []run // of the worker before this one
	runs := func(ref durable.Ref) (of []run) {
		for _, run := range append(before, r.ran()...) {
			if run.Ref == ref {
				of = append(of, run)
			}
		}
		return of
	}
	how := map[durable.Ref]string{}
	ranAt := func(ref durable.Ref, at time.Time, what string) {
		t.Helper()
		how[ref] = what
		await(t, what, func() bool { return len(runs(ref)) > 0 })
		due := runs(ref)[0].Due
		require.False(t, due.Before(at.Truncate(time.Microsecond)), "%s: %v is before %v", what, due, at)
		require.WithinDuration(t, at, due, patience, what)
	}
	hour := durable.Job{Kind: kind, After: time.Hour, Payload: []byte("p"), MaxAttempts: 7}

	ref := r.add(hour)[0]
	at := move(ref, 600*time.Millisecond, true)
	ranAt(ref, at, "earlier")
	move(ref, time.Hour, false)

	for moved, after := false, 3*time.Second; !moved; after *= 2 { // in time, also where that takes long
		ref = r.add(durable.Job{Kind: kind, After: after})[0]
		at = engineNow(t, e).Add(after + time.Second)
		_, ok, err := r.Reschedule(within(t), ref, at)
		require.NoError(t, err)
		require.True(t, ok || !engineNow(t, e).Before(at.Add(-2*time.Second)), "it was early enough")
		moved = ok
	}
	ranAt(ref, at, "later")

	ref = r.add(hour)[0]
	for range 5 {
		move(ref, 2*time.Hour, true)
		move(ref, 30*time.Second, true)
	}
	info := r.get(ref)
	require.Equal(t, "p", string(info.Job.Payload))
	require.Equal(t, 7, info.Job.MaxAttempts)
	now := engineNow(t, e)
	move(ref, -time.Second, true)
	ranAt(ref, now.Add(-100*time.Millisecond), "into the past is now")

	r.close()
	before = r.ran()
	e = s.Open(t)
	r = open(t, e, holding()...).handle(kind, nil).start()
	ref = r.whileHeld(func(ref durable.Ref) bool {
		at = engineNow(t, e).Add(1200 * time.Millisecond)
		_, ok, err := r.Reschedule(within(t), ref, at)
		require.NoError(t, err)
		return ok
	})
	ranAt(ref, at, "while held")
	time.Sleep(again)
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
			if err != nil {
				return false
			}
			_, ok, err := r.Reschedule(within(t), ref, time.Now())
			require.NoError(t, err)
			due = i.Due
			return ok
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
	var moved atomic.Int64
	var wg sync.WaitGroup
	for i, ref := range r.add(spread(n, 500*time.Millisecond, 5*time.Millisecond)...) {
		wg.Go(func() {
			time.Sleep(350*time.Millisecond + time.Duration(i)*5*time.Millisecond)
			_, ok, err := mover.Reschedule(within(t), ref, time.Now().Add(time.Duration(i%3)*700*time.Millisecond))
			if err != nil {
				t.Error(err)
			}
			if ok {
				moved.Add(1)
			}
		})
	}
	wg.Wait()
	r.awaitRuns(n)
	time.Sleep(again)
	seen := eachOnce(t, 0, r)
	require.Len(t, seen, n)
	t.Logf("%d moved", moved.Load())
	empty(t, r)
}

// A job that waits for its next attempt can be moved, and keeps its count.
func moveRetry(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return time.Hour })).
		handle(kind, fails(errTest)).start()
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 2})[0]
	r.awaitRuns(1)
	await(t, "moved", func() bool {
		_, ok, err := r.Reschedule(within(t), ref, time.Now().Add(time.Second))
		require.NoError(t, err)
		return ok
	})
	require.Equal(t, 2, r.awaitRuns(2)[1].Number)
	r.awaitDead(ref)
}
