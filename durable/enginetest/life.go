package enginetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// A job runs once, at its time, with what was stored, and is gone.
func insertRunGone(t *testing.T, s Store) {
	known := make(chan struct{}) // however long Get takes, the job is there
	r := open(t, s.Open(t)).handle(kind, waits(known)).start()
	job := durable.Job{Kind: kind, Payload: []byte("p\x00\xff"), After: 500 * time.Millisecond, MaxAttempts: 3}
	added := time.Now()
	ref := r.add(job)[0]
	info := r.get(ref)
	close(known)
	require.Equal(t, ref, info.Ref)
	sameJob(t, job, info.Job)
	require.Contains(t, []durable.State{durable.Waiting, durable.Running}, info.State)
	require.WithinDuration(t, added.Add(job.After), info.Due, patience)
	run := r.awaitRuns(1)[0]
	require.Equal(t, ref, run.Ref)
	require.Equal(t, 1, run.Number)
	sameJob(t, job, run.Job)
	require.True(t, info.Due.Equal(run.Due) && info.Due.Equal(info.Job.At), "%v, %v, %v", info.Due, run.Due, info.Job.At)
	r.awaitGone(ref)
	r.cancel(ref, false, "canceled what is done")
	time.Sleep(r.again())
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
	want := map[durable.Ref]string{}
	for i, ref := range r.add(jobs...) {
		want[ref] = fmt.Sprint(i)
	}
	require.Len(t, want, n, "Refs differ")
	ranOnce(t, n, r)
	for _, run := range r.ran() {
		require.Equal(t, want[run.Ref], string(run.Job.Payload))
	}
}

// A job that is cut off by the grace of Run has had no attempt, also if it was its only one: another
// worker begins it at once. One whose handler returns nil is done.
func grace(t *testing.T, s Store) {
	length := shortLease()
	first := open(t, s.Open(t), durable.WithLease(patience), durable.WithGrace(length)).handle(kind, func(ctx context.Context, a *durable.Attempt) error {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), durable.ErrClosed)
		if string(a.Job.Payload) == "done" {
			return nil
		}
		return durable.Discard(context.Cause(ctx)) // whatever it says
	}).start()
	refs := first.add(durable.Job{Kind: kind, MaxAttempts: 1}, durable.Job{Kind: kind}, durable.Job{Kind: kind, Payload: []byte("done")})
	first.awaitRuns(3)
	stopped := time.Now()
	first.drain()
	require.GreaterOrEqual(t, time.Since(stopped), length)
	st := first.Stats()
	require.Equal(t, []int64{1, 0, 0}, []int64{st.Done, st.Failed, st.Dead})
	second := open(t, s.Open(t), durable.WithLease(patience)).handle(kind, nil).start()
	for _, run := range second.awaitRuns(2) {
		require.Contains(t, refs[:2], run.Ref)
		require.Equal(t, 1, run.Number, "the attempt that was cut off counts")
		require.Less(t, run.at.Sub(stopped), patience, "before the lease is over")
	}
	second.awaitGone(refs...)
	require.Len(t, second.ran(), 2)
}

// record returns a record as a Queue makes it.
func record(id string, due, born time.Time) driver.Record {
	due, born = due.Truncate(time.Microsecond), born.Truncate(time.Microsecond)
	return driver.Record{ID: id, Job: driver.Job{Kind: kind, At: due, MaxAttempts: 3}, Due: due, Born: born}
}

// An insert that is repeated, since its answer was lost, stores one job, and has found no other, also
// when the job has ended. If the job may have been forgotten by then, the insert is refused.
func repeatedInsert(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	var repeats []func()
	for _, after := range []time.Duration{0, 700 * time.Millisecond, 4 * time.Second} {
		now := r.now()
		var found durable.Ref
		var recs []driver.Record
		for _, job := range []durable.Job{{}, {Key: fmt.Sprint("refuse", after)}, {Key: fmt.Sprint("replace", after), OnKey: durable.Replace, Found: &found}} {
			job.Kind, job.At = kind, now.Add(after)
			rec, err := driver.NewRecord(job, now)
			require.NoError(t, err)
			recs = append(recs, rec)
		}
		first, errs := r.engine.Insert(within(t), recs)
		require.NoError(t, errors.Join(errs...))
		repeat := func() {
			found = "of another Add"
			refs, errs := r.engine.Insert(within(t), recs)
			for i, err := range errs {
				if err == nil {
					require.Equal(t, first[i], refs[i])
					continue
				}
				require.ErrorIs(t, err, durable.ErrUncertain)
				require.Greater(t, r.now().Sub(now), after, "it has not run yet")
			}
			require.True(t, errs[2] != nil || found == "", "found %q", found)
		}
		repeat()
		repeat()
		repeats = append(repeats, repeat)
	}
	r.awaitRuns(9)
	empty(t, r)
	for _, repeat := range repeats {
		repeat()
	}
	ranOnce(t, 9, r)
}

func engineNow(t testing.TB, e driver.Engine) time.Time {
	ctx := within(t)
	now, off, err := e.Now(ctx)
	for ; err != nil && ctx.Err() == nil; breathe() { // a question is asked once, and what is between may start again
		now, off, err = e.Now(ctx)
	}
	require.NoError(t, err)
	require.GreaterOrEqual(t, off, time.Duration(0))
	return now
}

// A job that is stored when its time has long passed runs now, or is refused; it does not
// vanish.
func lateInsert(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	r.awaitGone(r.add(durable.Job{Kind: kind})[0])
	time.Sleep(3 * time.Second) // the first one's bucket may be closed by now
	now := r.now()
	accepted := 1
	for i, ago := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second, 3 * time.Second, time.Minute, 48 * time.Hour} {
		then := now.Add(-ago)
		_, errs := r.engine.Insert(within(t), []driver.Record{record(fmt.Sprintf("late%d", i), then, then)})
		if errs[0] == nil {
			accepted++
		} else {
			require.ErrorIs(t, errs[0], durable.ErrUncertain)
		}
	}
	ranOnce(t, accepted, r)
}

// The limits hold, and what is beyond them is refused by name, with nothing written.
func badInput(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	good := durable.Job{Kind: strings.Repeat("k", driver.MaxKind), Payload: make([]byte, durable.MaxPayload), Key: strings.Repeat("ü", driver.MaxKey/2), At: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), MaxAttempts: 25}
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
	sameJob(t, good, r.get(ref).Job)
	require.True(t, good.At.Equal(r.get(ref).Due), r.get(ref).Due)
	_, err := r.Reschedule(within(t), ref, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	require.ErrorIs(t, err, durable.ErrInvalid)
	r.cancel(ref, true, "")
}

// A Ref that is none is told from one whose job has ended, and one that waits from one that is dead.
func unknownRef(t *testing.T, s Store) {
	r, ctx := open(t, s.Open(t)), within(t)
	ref := r.add(durable.Job{Kind: kind, After: time.Hour})[0]
	for _, w := range []durable.Ref{"", "x", "0.0.0.0.0", "../../etc", ref + "x", ref[:len(ref)-1], "." + ref} {
		canceled, err := r.Cancel(ctx, w)
		require.ErrorIs(t, err, durable.ErrNotFound, "%q", w)
		moved, err := r.Reschedule(ctx, w, time.Now())
		require.ErrorIs(t, err, durable.ErrNotFound, "%q", w)
		require.False(t, canceled || moved)
		r.isGone(w)
		r.isNotDead(w)
	}
	r.isNotDead(ref)
	r.get(ref)
}

// isNotDead checks that a Ref is of no job that can be redriven or deleted.
func (c *calls) isNotDead(ref durable.Ref) {
	require.ErrorIs(c.t, c.Redrive(within(c.t), ref), durable.ErrNotFound, "%q", ref)
	require.ErrorIs(c.t, c.Delete(within(c.t), ref), durable.ErrNotFound, "%q", ref)
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
	r.refuses(durable.Job{Kind: kind}, durable.ErrClosed)
	_, err = r.Cancel(within(t), ref)
	require.ErrorIs(t, err, durable.ErrClosed)
	require.ErrorIs(t, r.Delete(within(t), ref), durable.ErrClosed)
	open(t, s.Open(t)).get(ref)
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
	seen := ranOnce(t, 299, open(t, s.Open(t)).handle(kind, nil).start())
	require.False(t, seen[refs[299]], "canceled before, and ran after the restart")
}

// Two workers share what is due, and no job runs on both.
func twoWorkers(t *testing.T, s Store) {
	a := open(t, s.Open(t), durable.WithConcurrency(8)).handle(kind, sleeps(time.Millisecond)).start()
	b := open(t, s.Open(t), durable.WithConcurrency(8)).handle(kind, sleeps(time.Millisecond)).start()
	const n = 300
	all := 0
	for round := 0; round < 10 && (attempts(a) == 0 || attempts(b) == 0); round++ { // one may be late to begin
		adder := []*rig{a, b}[round%2] // whose worker may hear of the jobs first, and take them all
		adder.add(spread(n, 500*time.Millisecond, time.Millisecond)...)
		all += n
		await(t, "all ran", func() bool { return len(eachOnce(t, 0, a, b)) >= all })
	}
	ranOnce(t, all, a, b)
	require.NotEmpty(t, a.ran())
	require.NotEmpty(t, b.ran())
}

// All and the pages of List have the jobs that a Filter selects: by state, kind, lane, and all of the
// tags that it has. Get says the same.
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
	half := map[string]string{"half": "0"}
	for _, c := range []struct {
		n int
		f durable.Filter
	}{
		{61, durable.Filter{}},
		{61, durable.Filter{State: durable.Waiting}},
		{0, durable.Filter{State: durable.Running}},
		{0, durable.Filter{State: durable.Dead}},
		{6, durable.Filter{Kind: "other"}},
		{20, durable.Filter{Lane: "lane1"}},
		{1, durable.Filter{Meta: map[string]string{"n": "7"}}},
		{30, durable.Filter{Meta: half}},
		{10, durable.Filter{Meta: half, Lane: "lane2", Kind: kind, State: durable.Waiting}},
		{0, durable.Filter{Meta: map[string]string{"half": "0", "n": "7"}}},
		{0, durable.Filter{Meta: map[string]string{"none": ""}}},
		{0, durable.Filter{Meta: half, State: durable.Dead}},
	} {
		require.Len(t, r.matching(c.f), c.n, "%+v", c.f)
		require.Len(t, r.listed(c.f, 7), c.n, "%+v", c.f)
	}
	for _, info := range r.matching(durable.Filter{Lane: "lane0"}) {
		require.Equal(t, info, r.get(info.Ref))
		require.Equal(t, want[atoi(t, info.Job.Payload)], info.Ref)
	}
	for range r.All(within(t), durable.Filter{}) {
		break // and the rest is not asked for
	}
}

// listed goes over all pages of n jobs, and returns their Refs.
func (c *calls) listed(f durable.Filter, n int) (refs []durable.Ref) {
	for after := ""; ; {
		infos, next, err := c.List(within(c.t), f, after, n)
		require.NoError(c.t, err)
		require.LessOrEqual(c.t, len(infos), n)
		for _, i := range infos {
			require.True(c.t, f.Match(i), "%v", i)
			refs = append(refs, i.Ref)
		}
		if next == "" {
			return refs
		}
		require.NotEqual(c.t, after, next)
		after = next
	}
}

// A listing in pages has each job once, in the order of their time, however many a page has.
func pages(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	for i := range 60 {
		after := time.Duration(max(0, i-40)) * time.Minute // 40 are due at the moments when they are added
		if i >= 50 {
			after = time.Duration(i) * time.Hour
		}
		r.add(durable.Job{Kind: kind, Lane: []string{"even", "odd"}[i%2], After: after})
		time.Sleep(time.Millisecond)
	}
	infos := r.matching(durable.Filter{})
	// The clock is the server's, as well as the engine knows it, which may set it back a little.
	slices.SortFunc(infos, func(a, b durable.Info) int { return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Ref, b.Ref)) })
	var waits, odd []durable.Ref
	for _, info := range infos {
		waits = append(waits, info.Ref)
		if info.Job.Lane == "odd" {
			odd = append(odd, info.Ref)
		}
	}
	require.Len(t, waits, 60)
	for _, n := range []int{7, 30, 59, 1000} {
		require.Equal(t, waits, r.listed(durable.Filter{}, n))
	}
	require.Equal(t, odd, r.listed(durable.Filter{Lane: "odd"}, 10))
	for _, after := range []string{"x", "9", "-1", "1.", "1.!"} {
		_, _, err := r.List(within(t), durable.Filter{}, after, 1)
		require.ErrorIs(t, err, durable.ErrInvalid, after)
	}
	for _, n := range []int{-1, 0, 1001} {
		_, _, err := r.List(within(t), durable.Filter{}, "", n)
		require.ErrorIs(t, err, durable.ErrInvalid)
	}
}

// Pages have what runs first, then what waits, and what is dead at the end.
func pagesOfStates(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	begun, release := make(chan bool, 2), make(chan bool)
	r.handle("dies", fails(durable.Discard(errTest))).handle("runs", tells(begun, release))
	defer close(release)
	first := r.add(durable.Job{Kind: "dies"})[0]
	r.start()
	await(t, "one is dead", func() bool { return r.Stats().Dead == 1 })
	second := r.add(durable.Job{Kind: "dies"})[0]
	await(t, "two are dead", func() bool { return r.Stats().Dead == 2 })
	runs := append(r.add(durable.Job{Kind: "runs"}), r.add(durable.Job{Kind: "runs", After: 50 * time.Millisecond})...)
	<-begun
	<-begun
	waits := append(r.add(durable.Job{Kind: "waits", After: time.Hour}), r.add(durable.Job{Kind: "runs", After: 2 * time.Hour})...)
	want := slices.Concat(runs, waits, []durable.Ref{first, second})
	for n := 1; n <= 7; n++ {
		require.Equal(t, want, r.listed(durable.Filter{}, n), n)
	}
	require.Equal(t, runs, r.listed(durable.Filter{State: durable.Running}, 1))
	require.Equal(t, want[4:], r.listed(durable.Filter{State: durable.Dead}, 1))
	require.Equal(t, append(runs, waits[1]), r.listed(durable.Filter{Kind: "runs"}, 2))
}

// The backlog says what is due and does not run, of which kinds, and since when.
func backlog(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithConcurrency(1))
	b, err := r.Backlog(within(t))
	require.NoError(t, err)
	require.Zero(t, b.Waiting)
	require.Empty(t, b.Kinds)

	begun, release := make(chan bool, 10), make(chan bool)
	r.handle("slow", tells(begun, release)).start()
	defer close(release)
	r.add(durable.Job{Kind: "slow"})
	<-begun
	nobodys := r.add(durable.Job{Kind: "nobody's"})[0]
	time.Sleep(20 * time.Millisecond)
	const jobs = 20
	slow := r.add(times(jobs, durable.Job{Kind: "slow"})...)
	r.add(times(2, durable.Job{Kind: "nobody's"})...)
	r.add(durable.Job{Kind: "slow", After: time.Hour}, durable.Job{Kind: "far", After: 300 * time.Hour})
	// Some that wait for the only slot may be claimed, and count as running then. On a busy
	// machine these are several: a job is claimed while its time has not surely come by the
	// engine's clock, and then the next one.
	await(t, "all that is due is counted", func() bool {
		b, err = r.Backlog(within(t))
		require.NoError(t, err)
		claimed := int64(len(r.listed(durable.Filter{State: durable.Running}, 100)))
		return len(b.Kinds) == 2 && b.Kinds[0].Jobs == 3 && b.Kinds[1].Jobs+claimed == 1+jobs
	})
	one, other := b.Kinds[0], b.Kinds[1]
	require.Equal(t, durable.Overdue{Kind: "nobody's", Jobs: 3, Oldest: nobodys, Due: r.get(nobodys).Due}, one)
	require.Equal(t, durable.Overdue{Kind: "slow", Jobs: other.Jobs, Oldest: other.Oldest, Due: r.get(other.Oldest).Due, Handled: true}, other)
	require.Contains(t, slow, other.Oldest)
	require.InDelta(t, one.Jobs+other.Jobs+2, b.Waiting, 1, "one may be claimed, or given back, meanwhile")
}

// The workers of all processes are listed with what they hold, until they have gone.
func workers(t *testing.T, s Store) {
	a := open(t, s.Open(t), durable.WithWorkerName("mail_eu-1"))
	busiest := func(a, b durable.WorkerInfo) int { return int(b.Jobs - a.Jobs) }
	// listed waits until so many workers are listed, and returns these, the busiest first.
	listed := func(n int) (all []durable.WorkerInfo) {
		await(t, fmt.Sprint(n, " workers"), func() bool {
			var err error
			all, err = a.Workers(within(t))
			require.NoError(t, err)
			return len(all) == n
		})
		slices.SortFunc(all, busiest)
		return all
	}
	listed(0)
	before := time.Now()
	begun, release := make(chan bool, 2), make(chan bool)
	a.handle("long", tells(begun, release)).start()
	b := open(t, s.Open(t)).handle("other", nil).start()
	a.add(durable.Job{Kind: "long"}, durable.Job{Kind: "long"}, durable.Job{Kind: "nobody's"})
	<-begun
	<-begun
	all := listed(2)
	require.Equal(t, []int64{2, 0}, []int64{all[0].Jobs, all[1].Jobs})
	require.True(t, all[1].Since.IsZero())
	for i, want := range []string{"mail_eu-1 [long] 1", " [other] 1"} {
		require.Equal(t, want, fmt.Sprint(all[i].Label, " ", all[i].Kinds, " ", all[i].AllKinds))
	}
	const clocks = 10 * time.Second // of a server, of this process
	require.WithinRange(t, all[0].Since, before.Add(-clocks), time.Now().Add(clocks))
	for _, w := range all {
		require.NotEmpty(t, w.Name)
		require.Equal(t, os.Getpid(), w.Process)
		require.WithinRange(t, w.Began, before.Add(-clocks), time.Now().Add(clocks))
		require.WithinRange(t, w.Until, before.Add(-clocks), time.Now().Add(max(a.lease, b.lease)+clocks))
	}
	b.drain()
	require.Equal(t, int64(2), listed(1)[0].Jobs)

	many := []string{"a, \"b\"", "é"}
	for i := range 2998 {
		many = append(many, fmt.Sprintf("k%04d", i))
	}
	slices.Sort(many)
	dead := work(t, s.Open(t), "dead", func(c *driver.WorkConfig) { c.Kinds = driver.NewKindSet(many) })
	await(t, "the dead one is listed before its lease is over", func() bool {
		if err := dead.Heartbeat(within(t)); !errors.Is(err, durable.ErrLeaseLost) {
			require.NoError(t, err)
		}
		var err error
		all, err = a.Workers(within(t))
		require.NoError(t, err)
		return len(all) == 2
	})
	slices.SortFunc(all, busiest)
	gone := all[1]
	require.Equal(t, "dead", gone.Name)
	if gone.Until.After(time.Now()) {
		require.Equal(t, many[:driver.ShownKinds], gone.Kinds)
		require.Equal(t, len(many), gone.AllKinds)
	}
	listed(1) // one that is dead and holds nothing has gone
	close(release)
	a.drain()
	listed(0)
}

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
	require.True(t, want.Expires.Equal(got.Expires), "%v, %v", want.Expires, got.Expires)
	want.At, want.After, want.Expires, got.At, got.Expires = time.Time{}, 0, time.Time{}, time.Time{}, time.Time{}
	require.Equal(t, want, got)
}

// A job keeps its fields: while it waits, over an attempt and a change of its time, and
// when it is dead.
func fields(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, returns(durable.RetryAfter(0, errTest), durable.Discard(errTest), durable.Discard(errTest)))
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
	r.redrive(ref)
	sameJob(t, job, r.awaitRuns(3)[2].Job)
	plain := durable.Job{Kind: "other", Payload: []byte("q"), After: time.Hour}
	ref = r.add(plain)[0]
	plain.MaxAttempts = 25
	sameJob(t, plain, r.get(ref).Job)
}

// A job that has not begun when it expires never begins: it is listed as dead, with its key free
// and no attempt counted. It runs when it is redriven.
func expires(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	refs, soon := r.addExpiring(2*time.Second, durable.Job{Kind: kind, Key: "k"}, durable.Job{Kind: kind, MaxAttempts: 1})
	later := r.add(durable.Job{Kind: kind, Expires: soon.Add(time.Hour)})[0]
	await(t, "they expire", func() bool { return r.now().After(soon) })
	r.start()
	for _, x := range refs {
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
	r.awaitGone(r.add(durable.Job{Kind: kind, Key: "k"})[0])
	r.redrive(refs[0])
	r.awaitGone(refs[0])
	require.Equal(t, 1, r.ran()[2].Number)
}

// A job that is snoozed comes again, and that is no attempt: the last error stays, and
// MaxAttempts does not bound it.
func snooze(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, returns(durable.RetryAfter(0, errTest), durable.Snooze(300*time.Millisecond),
		fmt.Errorf("not yet: %w", durable.Snooze(-1)), durable.Snooze(0), errTest)).start()
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 2})[0]
	runs := r.awaitRuns(3)
	require.GreaterOrEqual(t, runs[2].Due.Sub(runs[1].Due), 300*time.Millisecond)
	info := r.awaitDead(ref)
	require.Contains(t, info.LastError, errTest.Error())
	require.Equal(t, 2, info.Attempt)
	require.Equal(t, []int{1, 2, 2, 2, 2}, numbers(r.ran()))
	await(t, "its death is counted", func() bool { return r.Stats().Dead > 0 })
	require.Equal(t, []int64{3, 1}, []int64{r.Stats().Snoozed, r.Stats().Failed})
}

// A job with the largest values of each type is kept, with these or as good ones, and runs.
func largest(t *testing.T, s Store) {
	again := durable.RetryAfter(0, errTest)
	r := open(t, s.Open(t)).handle(kind, returns(again, nil, again, nil, again)).start()
	for _, job := range []durable.Job{{Timeout: math.MaxInt64}, {MaxAttempts: math.MaxInt}, {MaxAttempts: math.MaxInt32}} {
		n := attempts(r)
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
		require.False(t, r.cancelsKey(text))
		require.ErrorIs(t, r.PauseSchedule(ctx, text), durable.ErrNotFound)
		require.ErrorIs(t, r.DeleteSchedule(ctx, text), durable.ErrNotFound)
		_, err := r.RunNow(ctx, text)
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

// Silencer is a Store whose connections to one of its engines can fail without being
// closed. The tests Silence and HalfOpen skip other Stores.
type Silencer interface {
	// OpenSilent is Open of an engine that has such connections.
	OpenSilent(t testing.TB) (driver.Engine, Line)
}

// Line carries the connections of an engine.
type Line struct {
	Silence func() // Stops all data, so that sent data fills up the connection.
	Heal    func() // Ends the silence: all that was sent passes.
	Sever   func() // Stops all data on the present connections; new ones work.
}

func openSilent(t *testing.T, s Store) (driver.Engine, Line) {
	store, ok := s.(Silencer)
	if !ok {
		t.Skip("a store that nothing can cut off")
	}
	return store.OpenSilent(t)
}

// soon is how long after its context a call may return. It is a bound, not a measure: what
// does not return waits for the end of the silence.
const soon = time.Minute

// silence: every call of an engine and of its workers returns when its context ends, though
// nothing is answered, and however much waits to be sent. When the silence is over, the
// engine works.
func silence(t *testing.T, s Store) {
	e, line := openSilent(t, s)
	r := open(t, e).handle("late", nil)
	now := r.now()
	far := record("far", now.Add(time.Hour), now)
	refs, errs := e.Insert(within(t), []driver.Record{record("a", now, now), record("b", now, now), record("c", now, now), far})
	require.NoError(t, errors.Join(errs...))
	w := newCrashing(t, e, "silent")
	held := w.takeAll(refs[:3]) // a call each: one call has one Delivery at a time
	for _, h := range held {
		w.granted(h)
	}
	calls := engineCalls(e, refs[0], refs[3], readFlowControl(t, e), now)
	maps.Copy(calls, workerCalls(w, work(t, e, "fed"), held))
	calls["Health"] = r.Health

	line.Silence()
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() { returnsSoon(t, name, call) })
	}
	wg.Wait()
	line.Heal()
	if t.Failed() {
		return
	}
	r.start()
	require.Eventually(t, func() bool { return r.Health(within(t)) == nil }, patience, 10*time.Millisecond)
	r.add(durable.Job{Kind: "late"})
	r.awaitRuns(1)
}

// engineCalls are the calls of an engine, with a job that runs and one that is far from due.
func engineCalls(e driver.Engine, running, far durable.Ref, f *driver.FlowControl, now time.Time) map[string]func(context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Insert": func(ctx context.Context) error {
			_, errs := e.Insert(ctx, []driver.Record{record("d", now, now)})
			return errs[0]
		},
		"Cancel":   func(ctx context.Context) error { _, errs := e.Cancel(ctx, []durable.Ref{far}); return errs[0] },
		"Move":     func(ctx context.Context) error { _, err := e.Move(ctx, far, now.Add(2*time.Hour)); return err },
		"Signal":   func(ctx context.Context) error { _, err := e.Signal(ctx, "key", nil, now); return err },
		"Redrive":  func(ctx context.Context) error { return e.Redrive(ctx, far, now) },
		"Delete":   func(ctx context.Context) error { return e.Delete(ctx, far) },
		"Lookup":   func(ctx context.Context) error { _, err := e.Lookup(ctx, "key"); return err },
		"Get":      func(ctx context.Context) error { _, err := e.Get(ctx, far); return err },
		"Scan":     func(ctx context.Context) error { return firstOf(e.Scan(ctx, driver.Filter{})) },
		"Schedule": func(ctx context.Context) error { _, err := e.Schedule(ctx, "s"); return err },
		"SetSchedule": func(ctx context.Context) error {
			return e.SetSchedule(ctx, 0, driver.Schedule{Name: "s", Definition: "p", Revision: 1}, nil)
		},
		"Schedules": func(ctx context.Context) error { return firstOf(e.Schedules(ctx)) },
		"Unhandled": func(ctx context.Context) error { _, err := e.Unhandled(ctx); return err },
		"Page": func(ctx context.Context) error {
			_, _, err := e.Page(ctx, driver.Filter{State: durable.Waiting}, driver.Cursor{}, 10)
			return err
		},
		"Backlog":        func(ctx context.Context) error { _, err := e.Backlog(ctx); return err },
		"Workers":        func(ctx context.Context) error { _, err := e.Workers(ctx); return err },
		"FlowControl":    func(ctx context.Context) error { _, err := e.FlowControl(ctx); return err },
		"SetFlowControl": func(ctx context.Context) error { return e.SetFlowControl(ctx, f.Revision(), f) },
		"Usage":          func(ctx context.Context) error { _, err := e.Usage(ctx); return err },
		"CancelRunning":  func(ctx context.Context) error { _, err := e.CancelRunning(ctx, running); return err },
		"Now":            func(ctx context.Context) error { _, _, err := e.Now(ctx); return err },
		"Work": func(ctx context.Context) error {
			_, err := e.Work(ctx, driver.WorkConfig{Name: "other", Kinds: driver.NewKindSet([]string{kind}), Lease: shortLease()})
			return err
		},
	}
}

// workerCalls are the calls of a worker for jobs that it has claimed, and the Fetch of another.
func workerCalls(w, fed driver.Worker, held []*driver.Delivery) map[string]func(context.Context) error {
	return map[string]func(ctx context.Context) error{
		"Fetch": func(ctx context.Context) error { _ = fed.Fetch(ctx, func([]*driver.Delivery) {}); return ctx.Err() },
		"Claim": func(ctx context.Context) error { w.Claim(ctx, held[:1]); return ctx.Err() },
		"Finish": func(ctx context.Context) error {
			return w.Finish(ctx, []driver.Completion{{Delivery: held[1], End: driver.Done}})[0]
		},
		"Release":   func(ctx context.Context) error { _ = w.Release(ctx, held[2:], time.Second); return ctx.Err() },
		"Heartbeat": w.Heartbeat,
	}
}

// returnsSoon checks that a call returns soon after its context, and has not succeeded.
func returnsSoon(t *testing.T, name string, call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if ctx.Err() == nil && err == nil {
			t.Errorf("%s has succeeded", name)
		}
	case <-time.After(soon):
		t.Errorf("%s has not returned %v after its context", name, soon)
	}
}

// halfOpen: a worker whose connections are half open, because the machine at the other end is
// gone and nobody has said so, runs what is due by new ones, and adds jobs. Nothing else is
// done for it, and it does not take minutes.
func halfOpen(t *testing.T, s Store) {
	e, line := openSilent(t, s)
	r := open(t, e, durable.WithLease(busy.Longer(4*time.Second))).handle("late", nil).start()
	r.add(durable.Job{Kind: "late"})
	r.awaitRuns(1)

	line.Sever()
	open(t, s.Open(t)).add(durable.Job{Kind: "late"})
	r.awaitRuns(2)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), r.lease)
		defer cancel()
		_, err := r.Add(ctx, durable.Job{Kind: "late"})
		return err == nil
	}, patience, 10*time.Millisecond)
	r.awaitRuns(3)
}

// firstOf returns the first error of a sequence.
func firstOf[T any](all func(func(T, error) bool)) (err error) {
	all(func(_ T, e error) bool { err = e; return e == nil })
	return err
}
