package enginetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

func errorIs(err, target error) bool { return errors.Is(err, target) }

// A job runs once, at its time, with what was stored, and is gone.
func insertRunGone(t *testing.T, s Store) {
	known := make(chan struct{}) // however long Get takes, the job is there
	r := open(t, s.Open(t)).handle(kind, waits(known)).start()
	job := durable.Job{Kind: kind, Payload: []byte("p\x00\xff"), After: 500 * time.Millisecond, MaxAttempts: 3}
	added := time.Now()
	ref := r.add(job)[0]
	info, err := r.Get(within(t), ref)
	close(known)
	require.NoError(t, err)
	require.Equal(t, ref, info.Ref)
	require.Equal(t, job.Payload, info.Job.Payload)
	require.Equal(t, 3, info.Job.MaxAttempts)
	require.Contains(t, []durable.State{durable.Waiting, durable.Running}, info.State)
	require.WithinDuration(t, added.Add(job.After), info.Due, patience)
	run := r.awaitRuns(1)[0]
	require.Equal(t, ref, run.Ref)
	require.Equal(t, 1, run.Number)
	require.Equal(t, job.Payload, run.Job.Payload)
	require.True(t, info.Due.Equal(run.Due), "%v, %v", info.Due, run.Due)
	require.True(t, info.Due.Equal(info.Job.At), "%v, %v", info.Due, info.Job.At)
	r.awaitGone(ref)
	r.cancel(ref, false, "canceled what is done")
	time.Sleep(again)
	require.Len(t, r.ran(), 1)
	r.cancel(ref, false, "canceled what was done long ago")
}

// Jobs of one call are all stored, and each runs once.
func batch(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	const n = 1100 // more than one commit takes
	jobs := spread(n, 0, time.Millisecond)
	for i := range jobs {
		jobs[i].Payload = fmt.Append(nil, i)
	}
	refs := r.add(jobs...)
	want := map[durable.Ref]string{}
	for i, ref := range refs {
		want[ref] = fmt.Sprint(i)
	}
	require.Len(t, want, n, "Refs differ")
	r.awaitRuns(n)
	time.Sleep(lease)
	empty(t, r)
	require.Len(t, eachOnce(t, 0, r), n)
	for _, run := range r.ran() {
		require.Equal(t, want[run.Ref], string(run.Job.Payload))
	}
}

// A job that is cut off by the grace of Run has had no attempt, also if it was its only one: another
// worker begins it at once. One whose handler returns nil is done.
func grace(t *testing.T, s Store) {
	first := open(t, s.Open(t), durable.WithLease(patience), durable.WithGrace(lease))
	first.handle(kind, func(ctx context.Context, a *durable.Attempt) error {
		<-ctx.Done()
		if string(a.Job.Payload) == "done" {
			return nil
		}
		if err := context.Cause(ctx); !errorIs(err, durable.ErrClosed) {
			t.Errorf("the context has ended with %v", err)
		}
		return durable.Discard(context.Cause(ctx)) // whatever it says
	})
	first.start()
	refs := first.add(durable.Job{Kind: kind, MaxAttempts: 1}, durable.Job{Kind: kind}, durable.Job{Kind: kind, Payload: []byte("done")})
	first.awaitRuns(3)
	stopped := time.Now()
	first.drain()
	require.GreaterOrEqual(t, time.Since(stopped), lease)
	st := first.Stats()
	require.Equal(t, []int64{1, 0, 0}, []int64{st.Done, st.Failed, st.Dead})
	second := open(t, s.Open(t), durable.WithLease(patience)).handle(kind, nil).start()
	for _, run := range second.awaitRuns(2) {
		require.Contains(t, refs[:2], run.Ref)
		require.Equal(t, 1, run.Number, "the attempt that was cut off counts")
		require.Less(t, run.at.Sub(stopped), patience, "before the lease is over")
	}
	for _, ref := range refs {
		second.awaitGone(ref)
	}
	require.Len(t, second.ran(), 2)
}

// empty checks that nothing is kept.
func empty(t *testing.T, r *rig) {
	t.Helper()
	await(t, "nothing is kept", func() bool {
		infos := r.matching(durable.Filter{})
		if len(infos) > 0 {
			t.Logf("still there: %+v", infos[0])
			time.Sleep(50 * time.Millisecond)
		}
		return len(infos) == 0
	})
}

// record returns a record as a Queue makes it.
func record(id string, due, born time.Time) driver.Record {
	due, born = due.Truncate(time.Microsecond), born.Truncate(time.Microsecond)
	return driver.Record{ID: id, Kind: kind, At: due, MaxAttempts: 3, Due: due, Born: born}
}

// An insert that is repeated, since its answer was lost, stores one job. If the job may have
// ended and been forgotten by then, the insert is refused.
func repeatedInsert(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e).handle(kind, nil).start()
	for _, after := range []time.Duration{0, 700 * time.Millisecond, 4 * time.Second} {
		now := engineNow(t, e)
		rec := record(fmt.Sprintf("r%d", after.Milliseconds()), now.Add(after), now)
		keyed := record(fmt.Sprintf("k%d", after.Milliseconds()), now.Add(after), now)
		keyed.Key = fmt.Sprintf("key%d", after.Milliseconds())
		var first durable.Ref
		for i := range 3 {
			refs, errs := e.Insert(within(t), []driver.Record{rec, keyed})
			if i == 0 {
				require.NoError(t, errors.Join(errs...))
				first = refs[0]
			}
			if errs[0] == nil {
				require.Equal(t, first, refs[0])
			}
			for _, err := range errs {
				if err != nil {
					require.ErrorIs(t, err, durable.ErrUncertain)
					require.Greater(t, engineNow(t, e).Sub(now), after, "it has not run yet")
				}
			}
		}
	}
	r.awaitRuns(6)
	time.Sleep(again)
	require.Len(t, r.ran(), 6)
	empty(t, r)
}

func engineNow(t testing.TB, e driver.Engine) time.Time {
	now, off, err := e.Now(within(t))
	require.NoError(t, err)
	require.GreaterOrEqual(t, off, time.Duration(0))
	return now
}

// A job that is stored when its time has long passed runs now, or is refused; it does not
// vanish.
func lateInsert(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e).handle(kind, nil).start()
	r.add(durable.Job{Kind: kind})
	r.awaitRuns(1)
	time.Sleep(3 * time.Second) // the first one's bucket may be closed by now
	now := engineNow(t, e)
	accepted := 1
	for i, ago := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, time.Minute, 48 * time.Hour} {
		then := now.Add(-ago)
		_, errs := e.Insert(within(t), []driver.Record{record(fmt.Sprintf("late%d", i), then, then)})
		if errs[0] == nil {
			accepted++
		} else {
			require.ErrorIs(t, errs[0], durable.ErrUncertain)
		}
	}
	t.Logf("%d of 6 accepted", accepted-1)
	r.awaitRuns(accepted)
	time.Sleep(again)
	require.Len(t, r.ran(), accepted)
	empty(t, r)
}

// The limits hold, and what is beyond them is refused by name, with nothing written.
func badInput(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	good := durable.Job{Kind: strings.Repeat("k", driver.MaxKind), Payload: make([]byte, durable.MaxPayload), Key: strings.Repeat("ü", driver.MaxKey/2), At: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
	bad := map[string]durable.Job{
		"kind is empty":             {},
		"not printable":             {Kind: "a\nb"},
		"the kind has":              {Kind: strings.Repeat("k", driver.MaxKind+1)},
		"kind \"\\xff\" is":         {Kind: "\xff"},
		"the key has":               {Kind: kind, Key: strings.Repeat("k", driver.MaxKey+1)},
		"the key \"\\x00\"":         {Kind: kind, Key: "\x00"},
		"the prefix of schedules":   {Kind: kind, Key: "every/x"},
		"the payload has":           {Kind: kind, Payload: make([]byte, durable.MaxPayload+1)},
		"is negative":               {Kind: kind, MaxAttempts: -1},
		"At and After are both set": {Kind: kind, At: time.Now(), After: 1},
		"beyond the year":           {Kind: kind, At: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"the lane has":              {Kind: kind, Lane: strings.Repeat("l", driver.MaxLane+1)},
		"the lane \"\\n\"":          {Kind: kind, Lane: "\n"},
		"Priority 2 is":             {Kind: kind, Priority: 2},
		"Timeout -1ns":              {Kind: kind, Timeout: -1},
		"is not after the due time": {Kind: kind, After: time.Hour, Expires: time.Now().Add(time.Minute)},
		"the name \"\" in":          {Kind: kind, Meta: map[string]string{"": "x"}},
		"value of \"x\" in":         {Kind: kind, Meta: map[string]string{"x": "\x00"}},
		"Meta has 4097":             {Kind: kind, Meta: map[string]string{"x": strings.Repeat("y", durable.MaxMeta)}},
	}
	for what, job := range bad {
		refs, err := r.AddMany(within(t), durable.Job{Kind: kind}, job)
		require.ErrorIs(t, err, durable.ErrInvalid, what)
		require.ErrorContains(t, err, what)
		require.ErrorContains(t, err, "job 1")
		require.Equal(t, []durable.Ref{"", ""}, refs)
	}
	empty(t, r)
	ref := r.add(good)[0]
	info := r.get(ref)
	require.Equal(t, good.Payload, info.Job.Payload)
	require.Equal(t, good.Kind, info.Job.Kind)
	require.Equal(t, good.Key, info.Job.Key)
	require.True(t, good.At.Equal(info.Due), info.Due)
	_, _, err := r.Reschedule(within(t), ref, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	require.ErrorIs(t, err, durable.ErrInvalid)
	r.cancel(ref, true, "")
}

// A Ref that is none is told from one whose job has ended.
func unknownRef(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind, After: time.Hour})[0]
	wrong := []durable.Ref{"", "x", "0.0.0.0.0", "../../etc", ref + "x", ref[:len(ref)-1], "." + ref}
	for _, w := range wrong {
		ok, err := r.Cancel(within(t), w)
		require.ErrorIs(t, err, durable.ErrNotFound, "%q", w)
		require.False(t, ok)
		_, ok, err = r.Reschedule(within(t), w, time.Now())
		require.ErrorIs(t, err, durable.ErrNotFound, "%q", w)
		require.False(t, ok)
		_, err = r.Get(within(t), w)
		require.ErrorIs(t, err, durable.ErrNotFound, "%q", w)
		require.ErrorIs(t, r.Redrive(within(t), w), durable.ErrNotFound, "%q", w)
		require.ErrorIs(t, r.Delete(within(t), w), durable.ErrNotFound, "%q", w)
	}
	require.ErrorIs(t, r.Redrive(within(t), ref), durable.ErrNotFound, "it is not dead")
	require.ErrorIs(t, r.Delete(within(t), ref), durable.ErrNotFound, "it is not dead")
	r.get(ref)
}

// A context that has ended stores nothing; a closed Queue says so.
func ended(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.Add(ctx, durable.Job{Kind: kind})
	require.ErrorIs(t, err, context.Canceled)
	empty(t, r)
	ref := r.add(durable.Job{Kind: kind, After: time.Hour})[0]
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	_, err = r.Add(within(t), durable.Job{Kind: kind})
	require.ErrorIs(t, err, durable.ErrClosed)
	_, err = r.Cancel(within(t), ref)
	require.ErrorIs(t, err, durable.ErrClosed)
	require.ErrorIs(t, r.Delete(within(t), ref), durable.ErrClosed)
	r2 := open(t, s.Open(t))
	r2.get(ref)
}

// The jobs that were accepted survive the end of what serves the store, also those that
// ran.
func restart(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	jobs := spread(300, 0, 10*time.Millisecond)
	jobs[0].Key = "key"
	refs := r.add(jobs...)
	r.cancel(refs[299], true, "")
	r.close()
	s.Restart(t)
	r = open(t, s.Open(t)).handle(kind, nil).start()
	r.awaitRuns(299)
	time.Sleep(lease)
	empty(t, r)
	seen := eachOnce(t, 0, r)
	require.Len(t, seen, 299)
	require.False(t, seen[refs[299]], "canceled before, and ran after the restart")
}

// Two workers share what is due, and no job runs on both.
func twoWorkers(t *testing.T, s Store) {
	a := open(t, s.Open(t), durable.WithConcurrency(8)).handle(kind, sleeps(time.Millisecond)).start()
	b := open(t, s.Open(t), durable.WithConcurrency(8)).handle(kind, sleeps(time.Millisecond)).start()
	const n = 300
	all := 0
	for round := 0; round < 10 && (len(a.ran()) == 0 || len(b.ran()) == 0); round++ { // one may be late to begin
		adder := []*rig{a, b}[round%2] // whose worker may hear of the jobs first, and take them all
		adder.add(spread(n, 500*time.Millisecond, time.Millisecond)...)
		all += n
		await(t, "all ran", func() bool { return len(eachOnce(t, 0, a, b)) >= all })
	}
	time.Sleep(lease)
	seen := eachOnce(t, 0, a, b)
	require.Len(t, seen, all)
	t.Logf("%d and %d", len(a.ran()), len(b.ran()))
	require.NotEmpty(t, a.ran())
	require.NotEmpty(t, b.ran())
	empty(t, a)
}

// All lists the jobs that a Filter selects: by state, kind, lane, and all of the tags that it has. Get
// says the same.
func list(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	var want []durable.Ref
	for i := range 60 {
		job := durable.Job{Kind: kind, After: time.Duration(i) * time.Hour, Lane: fmt.Sprint("lane", i%3), Payload: fmt.Append(nil, i),
			Meta: map[string]string{"n": fmt.Sprint(i), "half": fmt.Sprint(i % 2)}}
		if i < 15 {
			job.After = 10 * time.Second
		}
		if i%10 == 9 {
			job.Kind = "other"
		}
		want = append(want, r.add(job)...)
	}
	r.add(durable.Job{Kind: kind, After: time.Hour})
	for _, c := range []struct {
		n int
		f durable.Filter
	}{
		{61, durable.Filter{}},
		{61, durable.Filter{State: durable.Waiting}},
		{0, durable.Filter{State: durable.Dead}},
		{6, durable.Filter{Kind: "other"}},
		{20, durable.Filter{Lane: "lane1"}},
		{1, durable.Filter{Meta: map[string]string{"n": "7"}}},
		{30, durable.Filter{Meta: map[string]string{"half": "0"}}},
		{10, durable.Filter{Meta: map[string]string{"half": "0"}, Lane: "lane2", Kind: kind, State: durable.Waiting}},
		{0, durable.Filter{Meta: map[string]string{"half": "0", "n": "7"}}},
		{0, durable.Filter{Meta: map[string]string{"none": ""}}},
		{0, durable.Filter{Meta: map[string]string{"half": "0"}, State: durable.Dead}},
	} {
		require.Len(t, r.matching(c.f), c.n, "%+v", c.f)
	}
	for _, info := range r.matching(durable.Filter{Lane: "lane0"}) {
		require.Equal(t, info, r.get(info.Ref))
		require.Equal(t, want[atoi(t, info.Job.Payload)], info.Ref)
	}
	for range r.All(within(t), durable.Filter{}) {
		break // and the rest is not asked for
	}
}

func atoi(t testing.TB, b []byte) (n int) {
	_, err := fmt.Sscan(string(b), &n)
	require.NoError(t, err)
	return n
}
