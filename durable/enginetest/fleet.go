package enginetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// picky is a worker of some kinds that ends each job when it is handed out, and notes
// which kinds these were of.
type picky struct {
	driver.Worker
	kinds *driver.KindGate

	mu     sync.Mutex
	handed map[string]int // by kind, every time
	ended  map[durable.Ref]bool
}

func newPicky(t *testing.T, e driver.Engine, name string, kinds *driver.KindGate) *picky {
	w := work(t, e, name, func(c *driver.WorkConfig) { c.Kinds, c.Lease = kinds, 2*patience })
	p := &picky{Worker: w, kinds: kinds, handed: map[string]int{}, ended: map[durable.Ref]bool{}}
	feeding(t, w, func(hs []*driver.Delivery) { p.end(t, hs) })
	return p
}

func (p *picky) end(t *testing.T, hs []*driver.Delivery) {
	p.mu.Lock()
	for _, h := range hs {
		p.handed[h.Record.Kind]++
	}
	p.mu.Unlock()
	ended := endGranted(t, p, hs, p.kinds)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range ended {
		p.ended[h.Ref] = true
	}
}

func (p *picky) count(kind string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handed[kind]
}

func (p *picky) has(refs []durable.Ref) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(refs, func(r durable.Ref) bool { return !p.ended[r] })
}

// A worker is handed what it can run and nothing else, wherever that is kept, and whoever
// works beside it. A kind may have any name; one is not taken for another that is like it.
func handedOwn(t *testing.T, s Store) {
	odd := []string{"a", "A", "a.b", "a b", "*", ">", "é", "'\"\\", "a>", "aa"}
	e := s.Open(t)
	r := open(t, e)
	var workers []*picky
	for i, kind := range odd {
		kinds := []string{kind, "shared"}
		if i%2 == 0 {
			kinds = kinds[:1]
		}
		workers = append(workers, newPicky(t, s.Open(t), fmt.Sprint("w", i), driver.NewKindGate(kinds)))
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
		for _, ref := range refs[kind] {
			r.awaitGone(ref)
		}
	}
	time.Sleep(time.Second)
	for i, w := range workers {
		w.mu.Lock()
		for kind := range w.handed {
			require.True(t, w.kinds.Has(kind), "a worker of %q was handed %q", odd[i], kind)
		}
		w.mu.Unlock()
	}
	for _, ref := range refs["nobody's"] {
		info := r.get(ref)
		require.Equal(t, durable.Waiting, info.State)
	}
	last := newPicky(t, s.Open(t), "last", driver.NewKindGate([]string{"nobody's"}))
	await(t, "somebody has them", func() bool { return last.has(refs["nobody's"]) })
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
	e := s.Open(t)
	r := open(t, e)
	kinds := driver.NewKindGate(append(limited, "free"), limited...)
	refs := map[string][]durable.Ref{}
	for _, kind := range limited {
		kinds.Set(kind, false)
		refs[kind] = r.addMany(each, durable.Job{Kind: kind})
	}
	w := newPicky(t, e, "w", kinds)
	freeEnd := func() {
		free := r.add(times(10, durable.Job{Kind: "free"})...)
		await(t, "the free jobs have ended", func() bool { return w.has(free) })
	}
	for range 3 {
		freeEnd()
	}
	time.Sleep(time.Second) // for what should not come
	last := limited[len(limited)-1]
	require.Zero(t, w.count(last))
	kinds.Set(last, true)
	await(t, "some are handed out", func() bool { return w.count(last) > 0 })
	kinds.Set(last, false)
	freeEnd()
	kinds.Set(last, true)
	await(t, "all of the open kind have ended", func() bool { return w.has(refs[last]) })
	for _, kind := range limited[:len(limited)-1] {
		require.Zero(t, w.count(kind), kind)
		for _, ref := range refs[kind] {
			r.cancel(ref, true, kind)
		}
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
	info := a.get(oldest)
	found := a.Stats().Unhandled
	require.Equal(t, []durable.Unhandled{{Kind: "b", Oldest: oldest, Due: info.Due}}, found)
	a.awaitRuns(1)
	time.Sleep(lease)
	info = a.get(oldest)
	require.Equal(t, durable.Waiting, info.State)
	require.Zero(t, info.Attempt)
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
	stop, stopped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				stopped <- n
				return
			case <-time.After(20 * time.Millisecond):
			}
			_, err := producer.AddMany(within(t), durable.Job{Kind: "old"}, durable.Job{Kind: "new"},
				durable.Job{Kind: "old", After: time.Second}, durable.Job{Kind: "new", After: time.Second})
			if err != nil {
				t.Error(err)
			}
			n += 4
		}
	}()
	time.Sleep(lease / 2)
	fleet = append(fleet, worker("old", "new"))
	time.Sleep(lease / 2)
	fleet[0].drain()
	fleet = append(fleet, worker("old", "new"))
	time.Sleep(lease / 2)
	fleet[1].drain()
	close(stop)
	added := <-stopped
	await(t, fmt.Sprintf("%d runs", added), func() bool { return len(eachOnce(t, 0, fleet...)) >= added })
	empty(t, producer)
	require.Len(t, eachOnce(t, 0, fleet...), added)
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
	opts := []durable.Option{durable.WithConcurrency(concurrency)}
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
