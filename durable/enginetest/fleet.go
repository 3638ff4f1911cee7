package enginetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// onlyKind is what a worker can run that knows the tests' kind only.
func onlyKind() *driver.KindGate { return driver.NewKindGate([]string{kind}) }

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
	w, err := e.Work(within(t), driver.WorkConfig{
		Name: name, Kinds: kinds, Lease: 2 * patience, Ahead: 500 * time.Millisecond, Retention: time.Hour,
	})
	require.NoError(t, err)
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

// A kind that is shut is handed out no longer, but for what is on its way, and makes no
// other late; when it is opened again it goes on.
func shut(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e)
	kinds := driver.NewKindGate([]string{"full", "other"}, "full")
	kinds.Set("full", false)
	w := newPicky(t, e, "w", kinds)
	n := envInt("ENGINETEST_OVERDUE", 1000)
	var full []durable.Ref
	for len(full) < n {
		full = append(full, r.add(slices.Repeat([]durable.Job{{Kind: "full"}}, min(1000, n-len(full)))...)...)
	}
	for range 3 {
		others := r.add(times(10, durable.Job{Kind: "other"})...)
		await(t, "the others have ended", func() bool { return w.has(others) })
	}
	require.Zero(t, w.count("full"))
	kinds.Set("full", true)
	await(t, "some are handed out", func() bool { return w.count("full") > 0 })
	kinds.Set("full", false)
	others := r.add(times(10, durable.Job{Kind: "other"})...)
	await(t, "the others have ended", func() bool { return w.has(others) })
	kinds.Set("full", true)
	await(t, "all have ended", func() bool { return w.has(full) })
	empty(t, r)
}

// manyKinds are more than an engine may keep apart, or has bits for.
func manyKinds() (kinds []string) {
	for i := range 70 {
		kinds = append(kinds, fmt.Sprint("limited", i))
	}
	return kinds
}

// The same holds where many kinds have a limit. When one of them is opened it goes on, and
// the others stay shut.
func manyShut(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e)
	limited := manyKinds()
	kinds := driver.NewKindGate(append(limited, "free"), limited...)
	refs := map[string][]durable.Ref{}
	for _, kind := range limited {
		kinds.Set(kind, false)
		refs[kind] = r.add(times(5, durable.Job{Kind: kind})...)
	}
	w := newPicky(t, e, "w", kinds)
	for range 3 {
		free := r.add(times(10, durable.Job{Kind: "free"})...)
		await(t, "what is free has ended", func() bool { return w.has(free) })
	}
	time.Sleep(time.Second) // for what should not come
	for _, kind := range limited {
		require.Zero(t, w.count(kind), kind)
	}
	last := limited[len(limited)-1]
	kinds.Set(last, true)
	await(t, "what is open has ended", func() bool { return w.has(refs[last]) })
	for _, kind := range limited[:len(limited)-1] {
		require.Zero(t, w.count(kind), kind)
		for _, ref := range refs[kind] {
			r.cancel(ref, true, kind)
		}
	}
	empty(t, r)
}

// A kind that nobody handles is named, with the job that is longest due, until somebody
// does. It makes no other late: see handedOwn.
func unhandled(t *testing.T, s Store) {
	a := open(t, s.Open(t)).handle("a", nil).start()
	oldest := a.add(durable.Job{Kind: "b"})[0]
	a.add(durable.Job{Kind: "c", After: time.Hour}, durable.Job{Kind: "a", After: time.Second})
	time.Sleep(100 * time.Millisecond)
	a.add(times(10, durable.Job{Kind: "b"})...)
	await(t, "it is named", func() bool { return len(a.Stats().Unhandled) > 0 })
	found := a.Stats().Unhandled
	require.Len(t, found, 1)
	require.Equal(t, "b", found[0].Kind)
	require.Equal(t, oldest, found[0].Oldest)
	info := a.get(oldest)
	require.True(t, info.Due.Equal(found[0].Due), "%v, %v", info.Due, found[0].Due)
	b := open(t, s.Open(t)).handle("b", nil).start()
	await(t, "it is named no longer", func() bool { return len(a.Stats().Unhandled) == 0 })
	b.awaitRuns(11)
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
	runs := func() (n int) {
		for _, r := range fleet {
			n += len(r.ran())
		}
		return n
	}
	await(t, fmt.Sprintf("%d runs", added), func() bool { return runs() >= added })
	empty(t, producer)
	require.Equal(t, added, runs())
	for _, r := range fleet[:2] {
		for _, run := range r.ran() {
			require.Equal(t, "old", run.Job.Kind)
		}
	}
}

// However many jobs of a kind at its limit are overdue, a worker holds few of them, and runs
// those of other kinds.
func kindAtItsLimit(t *testing.T, s Store) {
	const limit = 2
	release := make(chan struct{})
	r := open(t, s.Open(t), durable.WithKindConcurrency("slow", limit), durable.WithConcurrency(64)).
		handle("slow", waits(release)).handle("quick", nil)
	n := max(envInt("ENGINETEST_OVERDUE", 3000), 3000) // a worker holds some 2000
	for added := 0; added < n; added += 1000 {
		r.add(times(1000, durable.Job{Kind: "slow"})...)
	}
	r.start()
	r.awaitRuns(limit)
	for range 5 {
		before := len(r.ran())
		r.add(times(20, durable.Job{Kind: "quick"})...)
		r.awaitRuns(before + 20)
	}
	await(t, "only those of the limit run", func() bool { return r.Stats().Running == int64(limit) })
	require.Less(t, r.Stats().Held, int64(n), "not all of them are held")
	close(release)
	r.awaitRuns(limit + 100 + 200) // two in a commit, so not all of them
}

// Many kinds at their limits: none runs more than that, and a kind without one is not in
// their way, nor they in its.
func manyLimits(t *testing.T, s Store) {
	const limit, each = 2, 4
	limited := manyKinds()
	opts := []durable.Option{durable.WithConcurrency(each*len(limited) + 8)}
	running, most := make([]atomic.Int32, len(limited)), make([]atomic.Int32, len(limited))
	for _, kind := range limited {
		opts = append(opts, durable.WithKindConcurrency(kind, limit))
	}
	release := make(chan struct{})
	r := open(t, s.Open(t), opts...).handle("free", nil)
	var jobs []durable.Job
	for i, kind := range limited {
		r.handle(kind, func(context.Context, *durable.Attempt) error {
			n := running[i].Add(1)
			defer running[i].Add(-1)
			for m := most[i].Load(); n > m && !most[i].CompareAndSwap(m, n); m = most[i].Load() {
			}
			<-release
			return nil
		})
		jobs = append(jobs, times(each, durable.Job{Kind: kind})...)
	}
	r.add(jobs...)
	r.start()
	full := limit * len(limited)
	r.awaitRuns(full)
	for n := range 5 {
		r.add(times(20, durable.Job{Kind: "free"})...)
		r.awaitRuns(full + 20*(n+1))
	}
	await(t, "only those of the limits run", func() bool { return r.Stats().Running == int64(full) })
	close(release)
	r.awaitRuns(each*len(limited) + 100)
	for i, kind := range limited {
		require.Equal(t, int32(limit), most[i].Load(), kind)
	}
	empty(t, r)
}
