package enginetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// Jobs run though others add to their key without a pause: one that is pushed back is due no later than
// MaxWait says, and one that is due is not replaced any more.
func addedWithoutPause(t *testing.T, s Store) {
	jobs := map[string]durable.Job{
		"later":       {OnKey: durable.Later, After: 200 * time.Millisecond, MaxWait: 400 * time.Millisecond},
		"later, free": {OnKey: durable.Later, After: 200 * time.Millisecond, MaxWait: 400 * time.Millisecond, FreeWhenBegun: true},
		"now":         {OnKey: durable.Replace},
		"now, free":   {OnKey: durable.Replace, FreeWhenBegun: true},
	}
	const runs = 4
	r := open(t, s.Open(t)).handle(kind, nil).start()
	rigs := []*rig{open(t, s.Open(t)), open(t, s.Open(t))}
	stop := make(chan struct{})
	var adding sync.WaitGroup
	until := func(f func(n int)) {
		adding.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					f(n)
					breathe()
				}
			}
		})
	}
	defer func() {
		close(stop)
		adding.Wait()
	}()
	began := time.Now()
	for key, job := range jobs {
		for i := range 4 {
			until(func(n int) {
				j := job
				j.Kind, j.Key, j.Payload = kind, key, strconv.AppendInt(nil, int64(n), 10)
				_, err := rigs[i%2].Add(within(t), j)
				if !errors.Is(err, durable.ErrExists) && !errors.Is(err, durable.ErrUncertain) {
					assert.NoError(t, err) // uncertain: a busy machine stood still between the Add's clock and the store's
				}
			})
		}
	}
	until(func(n int) { // what it takes to add a job and run it, beside all others
		_, err := rigs[0].Add(within(t), durable.Job{Kind: kind, Lane: "plain"})
		assert.NoError(t, err)
		for len(runsOf(r, "", "plain")) <= n && !t.Failed() {
			breathe()
		}
	})
	for key := range jobs {
		await(t, fmt.Sprintf("%d runs of %q", runs, key), func() bool { return len(runsOf(r, key, "")) >= runs })
	}
	plain := longestGap(began, runsOf(r, "", "plain"))
	for key, job := range jobs {
		gap := longestGap(began, runsOf(r, key, "")[:runs])
		t.Logf("%q: %v between two runs; plain jobs: %v", key, gap, plain)
		require.Less(t, gap, job.MaxWait+time.Second+20*plain, key)
	}
}

// runsOf returns the runs of jobs with a key and a lane.
func runsOf(r *rig, key, lane string) []run {
	return slices.DeleteFunc(r.ran(), func(run run) bool { return run.Job.Key != key || run.Job.Lane != lane })
}

// longestGap returns the longest time between two runs, or the begin and the first.
func longestGap(began time.Time, runs []run) (gap time.Duration) {
	for _, run := range runs {
		gap, began = max(gap, run.at.Sub(began)), run.at
	}
	return gap
}

// The value of an Add goes into a job that is due. That keeps its Ref and its time.
func dueKeepsItsTurn(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	for _, j := range []durable.Job{
		{OnKey: durable.Replace}, {OnKey: durable.Replace, After: time.Hour}, {OnKey: durable.Later, After: time.Hour},
		{OnKey: durable.Later, After: time.Hour, MaxWait: time.Microsecond}, {OnKey: durable.Later, After: time.Hour, MaxWait: 2 * time.Hour},
	} {
		ref := r.add(durable.Job{Kind: kind, Key: "k", Meta: map[string]string{"m": "1"}, MaxAttempts: 1})[0]
		due := r.get(ref).Due
		time.Sleep(10 * time.Millisecond)
		var found durable.Ref
		j.Kind, j.Key, j.Payload, j.Found = kind, "k", []byte("new"), &found
		j.Lane, j.Priority, j.Meta, j.MaxAttempts, j.Timeout = "lane", durable.Low, map[string]string{"m": "2"}, 7, time.Minute
		require.Equal(t, ref, r.add(j)[0])
		require.Equal(t, ref, found)
		i := r.lookup("k")
		require.Equal(t, ref, i.Ref)
		require.Equal(t, due, i.Due)
		require.Equal(t, due, i.Job.At)
		require.Equal(t, "new", string(i.Job.Payload))
		require.Equal(t, "lane", i.Job.Lane)
		require.Equal(t, durable.Low, i.Job.Priority)
		require.Equal(t, j.Meta, i.Job.Meta)
		require.Equal(t, 7, i.Job.MaxAttempts)
		require.Equal(t, time.Minute, i.Job.Timeout)
		require.Len(t, r.matching(durable.Filter{Meta: j.Meta}), 1)
		j.Payload = []byte("newer") // the second waits for a while, in case the job begins
		require.Equal(t, ref, r.add(j)[0])
		require.Equal(t, "newer", string(r.lookup("k").Job.Payload))
		r.cancel(ref, true, "it waits")
		empty(t, r)
	}

	ref := r.add(durable.Job{Kind: kind, Key: "k"})[0]
	due := r.get(ref).Due
	time.Sleep(10 * time.Millisecond)
	r.add(durable.Job{Kind: kind, Key: "k", OnKey: durable.Replace, Payload: []byte("new"), After: time.Hour})
	run := r.handle(kind, nil).start().awaitRuns(1)[0]
	require.Equal(t, ref, run.Ref)
	require.Equal(t, due, run.Due)
	require.Equal(t, 1, run.Number)
	require.Equal(t, "new", string(run.Job.Payload))
	empty(t, r)
}

// A job that waits in a paused lane runs once a job of another lane has gone into it.
func dueLeavesItsLane(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	require.NoError(t, r.Pause(within(t), durable.Pausable{Lane: "paused"}))
	r.start()
	ref := r.add(durable.Job{Kind: kind, Key: "k", Lane: "paused"})[0]
	await(t, "the job waits for the end of the pause", func() bool { return r.Stats().Limited == 1 })
	r.add(durable.Job{Kind: kind, Key: "k", Lane: "other", OnKey: durable.Replace})
	run := r.awaitRuns(1)[0]
	require.Equal(t, ref, run.Ref)
	require.Equal(t, "other", run.Job.Lane)
	require.NoError(t, r.Resume(within(t), durable.Pausable{Lane: "paused"}))
	empty(t, r)
}

// Of two jobs of one key and one call the last has the key, also if both have to wait, since another has just gone into
// the job that is due.
func dueTakesTheLast(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	r.add(durable.Job{Kind: kind, Key: "k"})
	value := func(i int) durable.Job {
		return durable.Job{Kind: kind, Key: "k", OnKey: durable.Replace, Payload: strconv.AppendInt(nil, int64(i), 10)}
	}
	for i := range 6 {
		r.add(value(3 * i))
		r.add(value(3*i+1), value(3*i+2))
		require.Equal(t, strconv.Itoa(3*i+2), string(r.lookup("k").Job.Payload))
	}
	r.cancelKey("k", true)
	empty(t, r)
}

// Of the Adds of one call that follow one which is due, none pushes that back.
func dueKeepsItsTurnInOneCall(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	for _, on := range []durable.OnKey{durable.Replace, durable.Later} {
		first := make([]durable.Ref, 3)
		keyed := func(i int, after time.Duration) durable.Job {
			return durable.Job{Kind: kind, Key: "k", OnKey: on, After: after, Payload: strconv.AppendInt(nil, int64(i), 10), Found: &first[i]}
		}
		refs := r.add(keyed(0, time.Hour), keyed(1, 0), keyed(2, time.Hour))
		i := r.lookup("k")
		require.Equal(t, refs[1], i.Ref)
		require.Equal(t, refs[1:], []durable.Ref{i.Ref, i.Ref})
		require.Equal(t, []durable.Ref{"", refs[0], refs[1]}, first)
		require.Less(t, time.Until(i.Due), 30*time.Minute)
		require.Equal(t, "2", string(i.Job.Payload))
		r.awaitGone(refs[0])
		r.cancelKey("k", true)
	}
	empty(t, r)
}

// Many Adds of one call, and a repeated one, leave one job, with the value that came last.
func dueTakesManyValues(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind, Key: "k"})[0]
	var jobs []durable.Job
	for i := range 20 {
		jobs = append(jobs, durable.Job{Kind: kind, Key: "k", OnKey: []durable.OnKey{durable.Replace, durable.Later}[i%2], Payload: strconv.AppendInt(nil, int64(i), 10)})
	}
	for _, got := range r.add(jobs...) {
		require.Equal(t, ref, got)
	}
	require.Equal(t, "19", string(r.lookup("k").Job.Payload))
	r.cancelKey("k", true)
	empty(t, r)
}
