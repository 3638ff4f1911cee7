package enginetest

import (
	"context"
	"fmt"
	"maps"
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

// When Run's context ends the handlers that run do so to their end, and what has not
// begun is handed back at once, so that another worker runs it on time.
func drain(t *testing.T, s Store) {
	release := make(chan struct{})
	a := open(t, s.Open(t), steady, durable.WithConcurrency(1)).
		handle(kind, waits(release)).start()
	first := a.add(durable.Job{Kind: kind})[0]
	a.awaitRuns(1)
	a.add(times(20, durable.Job{Kind: kind})...) // some are claimed, all wait
	await(t, "they are held", func() bool { return a.Stats().Held == 21 })
	drained := make(chan bool, 1)
	go func() { a.drain(); drained <- true }()
	b := open(t, s.Open(t), steady).handle(kind, nil).start()
	b.awaitRuns(20)
	for _, run := range b.ran() {
		require.Equal(t, 1, run.Number, "what was claimed and handed back does not count")
	}
	require.Empty(t, drained, "Run did not wait for its handler")
	close(release)
	<-drained
	a.awaitGone(first)
	require.Len(t, a.ran(), 1)
	require.Len(t, b.ran(), 20)
	empty(t, b)
}

// No more handlers run at once than permitted. For those of a kind see atTheirLimits.
func concurrency(t *testing.T, s Store) {
	var c crowd
	r := open(t, s.Open(t), durable.WithConcurrency(6)).handle(kind, c.around(sleeps(20*time.Millisecond))).start()
	r.add(times(100, durable.Job{Kind: kind})...)
	ranOnce(t, 100, r)
	require.LessOrEqual(t, c.most.Load(), int64(6))
}

// A worker that starts with many jobs overdue runs them all, about in the order of their time, in whatever order they were
// added, and holds no more than it has room for.
func overdue(t *testing.T, s Store) {
	n := envInt("ENGINETEST_OVERDUE", 1000)
	const span = 12 * time.Second // an engine may read the jobs of some seconds at one time

	// A busy machine may let as many goroutines as this be late to note that they run.
	r := open(t, s.Open(t), durable.WithConcurrency(16)).handle(kind, nil)
	first := r.now()
	jobs := times(n, durable.Job{Kind: kind, Payload: make([]byte, 100)})
	for i, k := range rand.Perm(n) {
		jobs[i].At = first.Add(span / time.Duration(n) * time.Duration(k))
	}
	for some := range slices.Chunk(jobs, 1000) {
		r.add(some...)
	}
	time.Sleep(span)
	began := time.Now()
	r.start()
	most := int64(0)
	for end := time.Now().Add(5 * patience); attempts(r) < n; time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d of %d", attempts(r), n)
		most = max(most, r.Stats().Held)
	}
	t.Logf("%d overdue ran in %v; at most %d held", n, time.Since(began), most)
	require.LessOrEqual(t, most, int64(1<<16))
	eachOnce(t, 0, r)
	var dues []time.Time // in the order in which they began
	for _, run := range r.ran() {
		dues = append(dues, run.Due)
	}
	early := slices.SortedFunc(slices.Values(dues), time.Time.Compare)[n/3]
	behind := 0
	for _, due := range dues[2*n/3:] {
		behind += count(due.Before(early))
	}
	t.Logf("%d of the first third began in the last third", behind)
	require.LessOrEqual(t, behind, n/30) // in any order it is n/9
	empty(t, r)
}

// shifted is an engine whose times are all off by so much, for its Queue: as the engine
// looks to a worker whose wall clock is wrong.
type shifted struct {
	guarded
	by time.Duration
}

func newShifted(e driver.Engine, by time.Duration) *shifted {
	return &shifted{guarded{
		Engine: e,
		guard:  func(_ string, call func() error) error { return call() },
		handed: func(hs []*driver.Delivery) {
			for _, h := range hs {
				h.Record.Due = h.Record.Due.Add(by)
			}
		},
	}, by}
}

func (e *shifted) Now(ctx context.Context) (time.Time, time.Duration, error) {
	now, off, err := e.Engine.Now(ctx)
	return now.Add(e.by), off, err
}

func (e *shifted) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	if read := c.Time; read != nil {
		c.Time = func(now time.Time, off time.Duration) { read(now.Add(e.by), off) }
	}
	return e.guarded.Work(ctx, c)
}

func (e *shifted) Insert(ctx context.Context, recs []driver.Record) ([]durable.Ref, []error) {
	for i := range recs {
		r := &recs[i]
		r.Due, r.Born, r.At = r.Due.Add(-e.by), r.Born.Add(-e.by), r.At.Add(-e.by)
	}
	return e.Engine.Insert(ctx, recs)
}

// A worker whose clock is 10 s off in either direction runs nothing early.
func neverEarly(t *testing.T, s Store) {
	for _, by := range []time.Duration{0, 10 * time.Second, -10 * time.Second} {
		r := open(t, newShifted(s.Open(t), by)).handle(kind, nil).start()
		r.add(spread(300, 300*time.Millisecond, 3333*time.Microsecond)...)
		for _, run := range r.awaitRuns(300) {
			due := run.Due.Add(-by) // by the engine's clock, which here is that of the machine
			require.False(t, run.at.Before(due), "%v early, with a clock off by %v", due.Sub(run.at), by)
		}
		r.close()
	}
}

// Jobs are handed out before they are due, as the worker has asked for, wherever they are
// kept until then, and while what was due before ends and is removed. A round is repeated in which the
// engine did not answer a Fetch in time, or took long for an insert.
func ahead(t *testing.T, s Store) {
	const n = 120
	r := open(t, s.Open(t))
	for round := 0; ; round++ {
		late, disturbed := handedOutLate(t, r, fmt.Sprint("hasty", round), n)
		empty(t, r)
		if late <= n/4 {
			return
		}
		require.True(t, disturbed && round < 4, "%d of %d were handed out late", late, n)
	}
}

// handedOutLate adds n jobs, and returns how many of them are handed out late, and whether the engine was
// slow meanwhile. The lateness of a busy machine is measured at the same time: by an insert, and by a
// plain timer beside each job.
func handedOutLate(t *testing.T, r *rig, worker string, n int) (late int, disturbed bool) {
	const asked = 100 * time.Millisecond
	handedOut := make(chan time.Duration, n) // for how long before it is due
	w := work(t, r.engine, worker, func(c *driver.WorkConfig) { c.Lease, c.Ahead = time.Minute, asked })
	drain := feeding(t, w, func(hs []*driver.Delivery) {
		now, _, err := r.engine.Now(context.Background())
		assert.NoError(t, err)
		for _, h := range endGranted(t, w, hs, nil) {
			handedOut <- h.Record.Due.Sub(now)
		}
	})
	slowest := time.Duration(0)
	timers := make(chan time.Duration, n) // by how much each was late
	for i := range n {
		began := time.Now()
		after := 1100*time.Millisecond + time.Duration(i%2)*2*time.Second
		r.add(durable.Job{Kind: kind, After: after})
		slowest = max(slowest, time.Since(began))
		time.AfterFunc(time.Until(began.Add(after)), func() { timers <- time.Since(began.Add(after)) })
		time.Sleep(37 * time.Millisecond)
	}
	await(t, "all are handed out, and all timers have fired", func() bool { return len(handedOut) == n && len(timers) == n })
	unanswered := drain()
	before, lateTimers := make([]time.Duration, n), make([]time.Duration, n)
	for i := range n {
		before[i], lateTimers[i] = <-handedOut, <-timers
	}
	slices.Sort(before)
	slices.Sort(lateTimers)
	late, _ = slices.BinarySearch(before, -2*(slowest+lateTimers[n*9/10]))
	t.Logf("handed out before they were due: at least %v, p10 %v, p50 %v; an insert took %v at most, and timers were late by %v (p90)",
		before[0], before[n/10], before[n/2], slowest, lateTimers[n*9/10])
	return late, unanswered > 0 || slowest > asked
}

// picky is a worker of some kinds that ends each job when it is handed out, and notes
// which kinds these were of.
type picky struct {
	mu     sync.Mutex
	handed map[string]int // by kind, every time
}

func newPicky(t *testing.T, e driver.Engine, name string, kinds *driver.KindSet) *picky {
	w := work(t, e, name, func(c *driver.WorkConfig) { c.Kinds, c.Lease = kinds, 2*patience })
	p := &picky{handed: map[string]int{}}
	feeding(t, w, func(hs []*driver.Delivery) {
		p.mu.Lock()
		for _, h := range hs {
			p.handed[h.Record.Kind]++
		}
		p.mu.Unlock()
		endGranted(t, w, hs, kinds)
	})
	return p
}

// kinds returns the kinds of the jobs that it was handed.
func (p *picky) kinds() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.handed))
}

// A worker is handed what it can run and nothing else, wherever that is kept, and whoever
// works beside it. A kind may have any name; one is not taken for another that is like it.
func handedOwn(t *testing.T, s Store) {
	odd := []string{"a", "A", "a.b", "a b", "*", ">", "é", "'\"\\", "a>", "aa"}
	r := open(t, s.Open(t))
	workers := map[*picky][]string{}
	for i, kind := range odd {
		kinds := []string{kind, "shared"}[:1+i%2]
		workers[newPicky(t, s.Open(t), fmt.Sprint("w", i), driver.NewKindSet(kinds))] = kinds
	}
	refs := map[string][]durable.Ref{}
	for i := range 3 {
		var jobs []durable.Job
		for _, kind := range append(odd, "shared", "nobody's") {
			jobs = append(jobs, durable.Job{Kind: kind, After: time.Duration(i) * 1500 * time.Millisecond})
		}
		for k, ref := range r.add(jobs...) {
			refs[jobs[k].Kind] = append(refs[jobs[k].Kind], ref)
		}
	}
	for _, kind := range append(odd, "shared") {
		r.awaitGone(refs[kind]...)
	}
	time.Sleep(time.Second)
	for w, kinds := range workers {
		require.Subset(t, kinds, w.kinds())
	}
	for _, ref := range refs["nobody's"] {
		require.Equal(t, durable.Waiting, r.get(ref).State)
	}
	newPicky(t, s.Open(t), "last", driver.NewKindSet([]string{"nobody's"}))
	empty(t, r)
}

// Jobs of a shut kind are not handed out, except those on their way, and make no other late. When the
// kind is opened, they are.
func shut(t *testing.T, s Store) {
	shutKinds(t, s, []string{"full"}, envInt("ENGINETEST_OVERDUE", 1000))
}

// manyKinds are more than an engine may keep apart, or has bits for.
func manyKinds() (kinds []string) {
	for i := range 70 {
		kinds = append(kinds, fmt.Sprint("limited", i))
	}
	return kinds
}

// The same holds for many kinds. When one of them is opened, the others stay shut.
func manyShut(t *testing.T, s Store) { shutKinds(t, s, manyKinds(), 5) }

func shutKinds(t *testing.T, s Store, limited []string, each int) {
	r := open(t, s.Open(t))
	kinds := driver.NewKindSet(append(limited, "free"), limited...)
	refs := map[string][]durable.Ref{}
	for _, kind := range limited {
		kinds.Set(kind, false)
		refs[kind] = r.addMany(each, durable.Job{Kind: kind})
	}
	w := newPicky(t, r.engine, "w", kinds)
	freeEnd := func() { r.awaitGone(r.add(times(10, durable.Job{Kind: "free"})...)...) }
	for range 3 {
		freeEnd()
	}
	time.Sleep(time.Second) // for what should not come
	last := limited[len(limited)-1]
	require.NotContains(t, w.kinds(), last)
	kinds.Set(last, true)
	await(t, "some are handed out", func() bool { return slices.Contains(w.kinds(), last) })
	kinds.Set(last, false)
	freeEnd()
	kinds.Set(last, true)
	await(t, "all of the open kind have ended", func() bool { return len(r.matching(durable.Filter{Kind: last})) == 0 })
	require.ElementsMatch(t, []string{"free", last}, w.kinds())
	for _, kind := range limited[:len(limited)-1] {
		r.cancelAll(refs[kind])
	}
	empty(t, r)
}

// A job of a kind that nobody handles waits, and is named, as the one that is longest due, until
// somebody handles it. It makes no other late: see handedOwn.
func unhandled(t *testing.T, s Store) {
	a := open(t, s.Open(t)).handle("a", nil).start()
	oldest := a.add(durable.Job{Kind: "b"})[0]
	a.add(durable.Job{Kind: "c", After: time.Hour}, durable.Job{Kind: "a", After: time.Second})
	time.Sleep(100 * time.Millisecond)
	a.add(times(10, durable.Job{Kind: "b"})...)
	await(t, "it is named", func() bool { return len(a.Stats().Unhandled) > 0 })
	require.Equal(t, []durable.Unhandled{{Kind: "b", Oldest: oldest, Due: a.get(oldest).Due}}, a.Stats().Unhandled)
	a.awaitRuns(1)
	time.Sleep(a.lease)
	require.Equal(t, durable.Waiting, a.get(oldest).State)
	require.Zero(t, a.get(oldest).Attempt)
	b := open(t, s.Open(t)).handle("b", nil).start()
	await(t, "it is named no longer", func() bool { return len(a.Stats().Unhandled) == 0 })
	b.awaitRuns(11)
	require.Len(t, a.ran(), 1)
}

// A rolling deploy that adds a kind: workers with it come while others without it work, and
// these go. All that was added runs once, and nothing stays behind.
func rollingDeploy(t *testing.T, s Store) {
	worker := func(kinds ...string) *rig {
		r := open(t, s.Open(t))
		for _, k := range kinds {
			r.handle(k, nil)
		}
		return r.start()
	}
	fleet := []*rig{worker("old"), worker("old")}
	producer := open(t, s.Open(t))
	var stop atomic.Bool
	added := 0
	var adds sync.WaitGroup
	adds.Go(func() {
		for ; !stop.Load(); time.Sleep(20 * time.Millisecond) {
			_, err := producer.AddMany(within(t), durable.Job{Kind: "old"}, durable.Job{Kind: "new"},
				durable.Job{Kind: "old", After: time.Second}, durable.Job{Kind: "new", After: time.Second})
			assert.NoError(t, err)
			added += 4
		}
	})
	time.Sleep(producer.lease / 2)
	for i := range 2 {
		fleet = append(fleet, worker("old", "new"))
		time.Sleep(producer.lease / 2)
		fleet[i].drain()
	}
	stop.Store(true)
	adds.Wait()
	ranOnce(t, added, append(fleet, producer)...)
	for _, run := range ran(fleet[:2]...) {
		require.Equal(t, "old", run.Job.Kind)
	}
}

// However many jobs of a kind at its limit are overdue, a worker holds few of them, and runs
// jobs of other kinds.
func kindAtItsLimit(t *testing.T, s Store) {
	n := max(envInt("ENGINETEST_OVERDUE", 3000), 3000) // a worker holds some 2000
	r, release := atTheirLimits(t, s, []string{"slow"}, n, 64)
	require.Less(t, r.Stats().Held, int64(n), "not all of them are held")
	close(release)
	r.awaitRuns(100 + 200) // two in a commit, so not all of them
}

// Of many kinds at their limits none runs more jobs than that, and all jobs run.
func manyLimits(t *testing.T, s Store) {
	const each = 4
	limited := manyKinds()
	r, release := atTheirLimits(t, s, limited, each, each*len(limited)+8)
	close(release)
	r.awaitRuns(each*len(limited) + 100)
	empty(t, r)
}

// atTheirLimits returns a rig where two jobs of each of some kinds run until release is closed, the
// others of these kinds wait, and 100 of a free kind have run. It checks then and at the end of the test
// that no more than two of a kind run.
func atTheirLimits(t *testing.T, s Store, limited []string, each, concurrency int) (r *rig, release chan struct{}) {
	const limit = 2
	opts := []durable.Option{durable.WithConcurrency(concurrency), steady}
	for _, kind := range limited {
		opts = append(opts, durable.WithKindConcurrency(kind, limit))
	}
	release = make(chan struct{})
	r = open(t, s.Open(t), opts...).handle("free", nil)
	for _, kind := range limited {
		var c crowd
		r.handle(kind, c.around(waits(release)))
		t.Cleanup(func() { require.Equal(t, int64(limit), c.most.Load(), kind) })
		r.addMany(each, durable.Job{Kind: kind})
	}
	r.start()
	full := limit * len(limited)
	r.awaitRuns(full)
	for n := range 5 {
		r.add(times(20, durable.Job{Kind: "free"})...)
		r.awaitRuns(full + 20*(n+1))
	}
	await(t, "only those of the limits run", func() bool { return r.Stats().Running == int64(full) })
	return r, release
}
