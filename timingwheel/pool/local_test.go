package pool

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// verify checks the invariants of the Workers. No call may be under way.
func (ws *workers) verify(t testing.TB) {
	t.Helper()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	vacant, ids, pending := map[int]bool{}, map[int]bool{}, map[*seat]int{}
	for _, i := range ws.vacant {
		require.Less(t, i, ws.seats)
		require.False(t, vacant[i], "an index is vacant twice")
		vacant[i] = true
	}
	for i, k := range ws.busy {
		require.Equal(t, i, k.place)
		for _, s := range k.closed {
			pending[s]++
		}
	}
	for s, n := range pending {
		require.Equal(t, n, s.busy)
		require.False(t, vacant[s.index], "an index is vacant too early")
	}
	for _, k := range ws.free {
		require.Empty(t, k.closed)
	}
	for _, k := range slices.Concat(ws.free, ws.busy) {
		for i, v := range k.values {
			require.False(t, v != nil && vacant[i], "a value of a Local that is closed")
		}
		if k.id != strange {
			require.True(t, k.id >= 0 && k.id < ws.made && !ids[k.id], "ID %d", k.id)
			ids[k.id] = true
		}
	}
	require.Len(t, ids, ws.made)
}

// verifyIdle is verify while the Pool is idle.
func (ws *workers) verifyIdle(t testing.TB, p *Pool) {
	t.Helper()
	ws.verify(t)
	require.Empty(t, ws.busy)
	require.LessOrEqual(t, int64(ws.made), int64(p.Stats().Workers))
}

// resource is a value that tells when it is used by two at a time, or after its end. Its
// fields have no lock: the race detector looks on.
type resource struct {
	id    int
	users int
	gone  bool
}

// ledger makes resources, and counts how often each is removed.
type ledger struct {
	t       testing.TB
	mu      sync.Mutex
	removed []int
}

func (l *ledger) init(*Worker) *resource {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removed = append(l.removed, 0)
	return &resource{id: len(l.removed) - 1}
}

func (l *ledger) remove(r *resource) {
	if r.users != 0 || r.gone {
		l.t.Errorf("removed while it has %d users, gone: %v", r.users, r.gone)
	}
	r.gone = true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removed[r.id]++
}

// live returns how many resources were made and not removed.
func (l *ledger) live() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, times := range l.removed {
		n += 1 - times
	}
	return n
}

func (l *ledger) verify() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, n := range l.removed {
		require.Equal(l.t, 1, n, "resource %d was not removed once", id)
	}
}

// use uses a resource, and ends in the way that n says.
func use(t testing.TB, r *resource, n int) {
	r.users++
	defer func() { r.users-- }()
	if r.users != 1 || r.gone {
		t.Errorf("%d users, gone: %v", r.users, r.gone)
	}
	switch n % 11 {
	case 3:
		runtime.Goexit()
	case 5:
		panic("use")
	case 7:
		runtime.Gosched()
	}
}

// Workers use, remove and clear values, end their goroutine and panic, while Locals come
// and go. Each value is one worker's at a time, is never removed in use, and is removed
// once.
func TestLocalStress(t *testing.T) {
	for _, size := range []struct{ workers, queue int }{{1, 0}, {3, 5}, {8, 100}} {
		for name, full := range map[string]WhenFull{
			"caller runs": CallerRuns,
			"wait":        Wait,
			"discard":     Discard(func(task func()) { task() }),
		} {
			t.Run(fmt.Sprintf("workers=%d,queue=%d,%s", size.workers, size.queue, name), func(t *testing.T) {
				stressLocals(t, New(size.workers, size.queue, full), size.workers)
			})
		}
	}
}

func stressLocals(t *testing.T, pool *Pool, workers int) {
	const tasks = 3000
	all := &ledger{t: t}
	flaky := func(k *Worker) *resource {
		if r := all.init(k); r.id%5 != 0 {
			return r
		} else {
			all.remove(r)
			panic("init")
		}
	}
	stays := NewLocal(pool, all.init, all.remove)
	var changes [4]atomic.Pointer[Local[*resource]]
	for i := range changes {
		changes[i].Store(NewLocal(pool, flaky, all.remove))
	}
	var done atomic.Int64
	task := func(k *Worker, n int) {
		defer done.Add(1)
		if id := k.ID(); id < -1 || id >= workers {
			t.Errorf("ID %d of %d workers", id, workers)
		}
		switch n % 13 {
		case 1:
			stays.Remove(k)
		case 2:
			k.Clear()
			if k.Len() != 0 {
				t.Error("a value after Clear")
			}
		}
		if r := *stays.Get(k); r != *stays.Get(k) {
			t.Error("another value")
		}
		func() {
			defer func() { recover() }() // the Local may be closed, and its init panics
			use(t, *changes[n%len(changes)].Load().Get(k), 0)
		}()
		use(t, *stays.Get(k), n)
	}
	w := timingwheel.New(timingwheel.WithExecutor(pool), timingwheel.WithTick(50*time.Microsecond), timingwheel.WithPanicHandler(func(any, []byte) {}))
	for n := range tasks {
		_, err := pool.Schedule(w, time.Duration(n)*5*time.Microsecond, func(k *Worker) { task(k, n) })
		require.NoError(t, err)
	}
	for n := 0; done.Load() < tasks; n++ {
		changes[n%len(changes)].Swap(NewLocal(pool, flaky, all.remove)).Close()
		runtime.Gosched()
		if n > 1000 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	require.NoError(t, w.Shutdown(t.Context()))
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(pool.Close)
	}
	closers.Wait()
	pool.workers.verifyIdle(t, pool)
	all.verify()
	require.Len(t, pool.workers.vacant, pool.workers.seats-len(changes)-1, "an index is lost")
}

// inPool runs f with a Worker of the pool and waits until it has ended.
func inPool(t testing.TB, pool *Pool, w *timingwheel.TimingWheel, f func(k *Worker)) {
	t.Helper()
	_, err := pool.Schedule(w, 0, f)
	require.NoError(t, err)
	synctest.Wait()
}

// withPool runs a test with a wheel on a Pool of one worker, and a ledger.
func withPool(t *testing.T, full WhenFull, test func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger)) {
	synctest.Test(t, func(t *testing.T) {
		pool := New(1, 0, full)
		w := timingwheel.New(timingwheel.WithExecutor(pool), timingwheel.WithPanicHandler(func(any, []byte) {}))
		all := &ledger{t: t}
		test(t, pool, w, all)
		w.Stop()
		pool.Close()
		pool.workers.verifyIdle(t, pool)
		all.verify()
	})
}

func TestLocalIsMadeOnceAWorker(t *testing.T) {
	withPool(t, Wait, func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger) {
		l := NewLocal(pool, all.init, all.remove)
		zero := NewLocal[int](pool, nil, nil)
		inPool(t, pool, w, func(k *Worker) {
			require.Zero(t, k.ID())
			require.Zero(t, k.Len())
			_, ok := l.Peek(k)
			require.False(t, ok)
			require.False(t, l.Remove(k))
			require.Same(t, l.Get(k), l.Get(k))
			*zero.Get(k) = 7
			require.Equal(t, 2, k.Len())
		})
		inPool(t, pool, w, func(k *Worker) {
			v, ok := l.Peek(k)
			require.True(t, ok)
			require.Same(t, v, l.Get(k))
			require.Equal(t, 7, *zero.Get(k))
			require.Len(t, all.removed, 1)
			require.True(t, l.Remove(k))
			require.False(t, l.Remove(k))
			require.Equal(t, 1, (*l.Get(k)).id)
			k.Clear()
			require.Zero(t, k.Len())
			require.Zero(t, all.live())
			require.Equal(t, 2, (*l.Get(k)).id)
			require.Zero(t, *zero.Get(k))
		})
		require.Equal(t, 1, all.live(), "it stays until the Pool is closed")
	})
}

func TestLocalInitThatPanics(t *testing.T) {
	withPool(t, Wait, func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger) {
		tries := 0
		l := NewLocal(pool, func(k *Worker) *resource {
			switch tries++; tries {
			case 1:
				panic("init")
			case 2:
				runtime.Goexit()
			}
			return all.init(k)
		}, all.remove)
		for range 2 {
			inPool(t, pool, w, func(k *Worker) { l.Get(k) })
			inPool(t, pool, w, func(k *Worker) { require.Zero(t, k.Len()) })
		}
		inPool(t, pool, w, func(k *Worker) { use(t, *l.Get(k), 0) })
		require.Equal(t, 3, tries)
		require.EqualValues(t, 1, w.Stats().Panicked)

		var again *Local[*resource]
		deep := 0
		again = NewLocal(pool, func(k *Worker) *resource {
			if deep++; deep == 1 {
				again.Get(k)
			}
			return all.init(k)
		}, all.remove)
		inPool(t, pool, w, func(k *Worker) {
			require.PanicsWithValue(t, "pool: Local.Get: called by the Local's own init", func() { again.Get(k) })
			use(t, *again.Get(k), 0)
		})
	})
}

// The value of a worker that runs stays until its function returns. Its index goes to
// nobody until then.
func TestLocalCloseWhileAFunctionRuns(t *testing.T) {
	for name, f := range map[string]func(){"returns": func() {}, "ends": runtime.Goexit, "panics": func() { panic("f") }} {
		t.Run(name, func(t *testing.T) {
			withPool(t, Wait, func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger) {
				idle := NewLocal(pool, all.init, all.remove)
				inPool(t, pool, w, func(k *Worker) { idle.Get(k) })
				idle.Close()
				require.Zero(t, all.live())

				l, late := NewLocal(pool, all.init, all.remove), NewLocal(pool, all.init, all.remove)
				require.Equal(t, idle.seat.index, l.seat.index, "it is free again")
				goOn := make(chan struct{})
				inPool(t, pool, w, func(k *Worker) {
					v := l.Get(k)
					<-goOn
					require.Same(t, v, l.Get(k))
					require.PanicsWithValue(t, "pool: Local.Get: the Local is closed", func() { late.Get(k) })
					f()
				})
				l.Close()
				l.Close()
				late.Close()
				next := NewLocal(pool, all.init, all.remove)
				require.NotContains(t, []int{l.seat.index, late.seat.index}, next.seat.index)
				require.Equal(t, 1, all.live())
				close(goOn)
				synctest.Wait()
				require.Zero(t, all.live())

				reused := NewLocal(pool, all.init, all.remove)
				require.Contains(t, []int{l.seat.index, late.seat.index}, reused.seat.index)
				inPool(t, pool, w, func(k *Worker) {
					_, ok := reused.Peek(k)
					require.False(t, ok, "a stranger's value")
					reused.Get(k)
					require.PanicsWithValue(t, "pool: Local.Get: the Local is closed", func() { l.Get(k) })
				})
			})
		})
	}
}

// A Local that is closed while init makes a value of it: the value goes with the
// function.
func TestLocalCloseInInit(t *testing.T) {
	withPool(t, Wait, func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger) {
		var l *Local[*resource]
		l = NewLocal(pool, func(k *Worker) *resource { l.Close(); return all.init(k) }, all.remove)
		inPool(t, pool, w, func(k *Worker) {
			use(t, *l.Get(k), 0)
			require.Equal(t, 1, all.live())
		})
		require.Zero(t, all.live())
	})
}

// A function that does not run on a worker has a Worker of its own, which is cleared afterwards.
func TestWorkerOfItsOwn(t *testing.T) {
	elsewhere := func(t *testing.T, l *Local[*resource], all *ledger, ran *int) func(k *Worker) {
		return func(k *Worker) {
			*ran++
			require.Equal(t, -1, k.ID())
			require.Zero(t, k.Len())
			live := all.live()
			use(t, *l.Get(k), 0)
			require.Equal(t, live+1, all.live())
		}
	}
	var drop []func()
	for name, full := range map[string]WhenFull{
		"caller runs": CallerRuns,
		"discard":     Discard(func(task func()) { drop = append(drop, task) }),
	} {
		t.Run(name, func(t *testing.T) {
			withPool(t, full, func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger) {
				l := NewLocal(pool, all.init, all.remove)
				goOn, ran := make(chan struct{}), 0
				inPool(t, pool, w, func(k *Worker) { use(t, *l.Get(k), 0); <-goOn })
				inPool(t, pool, w, elsewhere(t, l, all, &ran))
				for _, f := range drop {
					f()
					f()
					ran--
				}
				drop = nil
				require.Equal(t, 1, ran)
				require.Equal(t, 1, all.live(), "that of the worker")
				close(goOn)
				synctest.Wait()
			})
		})
	}
	t.Run("stop", func(t *testing.T) {
		withPool(t, Wait, func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger) {
			l, ran := NewLocal(pool, all.init, all.remove), 0
			at := w.Now().Add(time.Hour)
			_, err := pool.Schedule(w, time.Hour, elsewhere(t, l, all, &ran))
			require.NoError(t, err)
			pending := w.Stop()
			require.Len(t, pending, 1)
			require.WithinDuration(t, at, pending[0].Deadline, time.Millisecond)
			pool.Close()
			pending[0].Func()
			require.Equal(t, 1, ran)
			_, err = pool.Schedule(w, 0, func(*Worker) {})
			require.ErrorIs(t, err, timingwheel.ErrStopped)
		})
	})
}

// A function that a Pool has scheduled is pending as any other.
func TestPoolSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := New(2, 0, Wait)
		w := timingwheel.New(timingwheel.WithExecutor(pool), timingwheel.WithMaxPending(1))
		start, ran := time.Now(), time.Duration(0)
		timeout, err := pool.Schedule(w, time.Minute, func(*Worker) { ran = time.Since(start) })
		require.NoError(t, err)
		_, err = pool.Schedule(w, time.Minute, func(*Worker) {})
		require.ErrorIs(t, err, timingwheel.ErrTooManyPending)
		require.True(t, timeout.Reset(time.Hour))
		require.NoError(t, w.Shutdown(t.Context()))
		require.Equal(t, time.Hour, ran.Truncate(time.Second))
		require.False(t, timeout.Cancel())
		pool.Close()
	})
	pool := New(2, 0, Wait)
	w := timingwheel.New(timingwheel.WithExecutor(pool))
	timeout, err := pool.Schedule(w, time.Hour, func(*Worker) { t.Error("it was canceled") })
	require.NoError(t, err)
	require.True(t, timeout.Cancel())
	require.Empty(t, w.Stop())
	pool.Close()
}

func TestLocalPanics(t *testing.T) {
	pool, other := New(1, 0, Wait), New(1, 0, Wait)
	w, elsewhere := timingwheel.New(timingwheel.WithExecutor(pool)), timingwheel.New()
	embeds := timingwheel.New(timingwheel.WithExecutor(&struct{ *Pool }{pool}))
	f := func(*Worker) {}
	l := NewLocal[int](pool, nil, nil)
	strange := other.workers.enter(true)
	NewLocal[int](other, nil, nil).Get(strange) // with the index of l
	_, found := l.Peek(strange)
	require.False(t, found || l.Remove(strange))
	for want, panics := range map[string]func(){
		"pool: NewLocal: nil Pool":          func() { NewLocal[int](nil, nil, nil) },
		"pool: Pool.Schedule: nil wheel":    func() { pool.Schedule(nil, 0, f) },
		"pool: Pool.Schedule: nil function": func() { pool.Schedule(w, 0, nil) },
		"pool: Pool.Schedule: the wheel has another executor: make the wheel with WithExecutor(pool)": func() { pool.Schedule(elsewhere, 0, f) },
		"pool: Local.Get: the Worker is of another Pool":                                              func() { l.Get(strange) },
	} {
		require.PanicsWithValue(t, want, panics)
	}
	require.Panics(t, func() { other.Schedule(w, 0, f) })
	require.Panics(t, func() { pool.Schedule(embeds, 0, f) })
	pool.Close()
}

// A remove that panics or ends its goroutine keeps no other value from being removed.
func TestLocalRemoveThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := New(1, 0, Wait)
		handled := 0
		w := timingwheel.New(timingwheel.WithExecutor(pool), timingwheel.WithPanicHandler(func(any, []byte) { handled++ }))
		all := &ledger{t: t}
		locals := make([]*Local[*resource], 9)
		for i := range locals {
			locals[i] = NewLocal(pool, all.init, func(r *resource) {
				all.remove(r)
				switch r.id % 3 {
				case 0:
					panic("remove")
				case 1:
					runtime.Goexit()
				}
			})
		}
		fill := func(k *Worker) {
			for _, l := range locals {
				l.Get(k)
			}
		}
		inPool(t, pool, w, func(k *Worker) { fill(k); k.Clear() })
		require.Zero(t, all.live())
		inPool(t, pool, w, fill)
		goOn := make(chan struct{})
		inPool(t, pool, w, func(*Worker) { <-goOn })
		for _, l := range locals {
			l.Close()
		}
		require.Equal(t, len(locals), all.live())
		close(goOn)
		synctest.Wait()
		require.Zero(t, all.live())

		last := NewLocal(pool, all.init, func(r *resource) { all.remove(r); panic("remove") })
		inPool(t, pool, w, func(k *Worker) { last.Get(k) })
		w.Stop()
		require.PanicsWithValue(t, "remove", pool.Close)
		pool.Close()
		pool.workers.verifyIdle(t, pool)
		all.verify()
	})
}

// A remove may use the Pool: no lock is held, whoever calls it.
func TestLocalRemoveHoldsNoLock(t *testing.T) {
	withPool(t, Wait, func(t *testing.T, pool *Pool, w *timingwheel.TimingWheel, all *ledger) {
		removed := 0
		remove := func(int) {
			removed++
			require.True(t, pool.workers.mu.TryLock())
			pool.workers.mu.Unlock()
		}
		locals := make([]*Local[int], 4)
		for i := range locals {
			locals[i] = NewLocal(pool, nil, remove)
		}
		goOn := make(chan struct{})
		inPool(t, pool, w, func(k *Worker) {
			for _, l := range locals {
				l.Get(k)
			}
			locals[0].Remove(k)
			<-goOn
		})
		locals[1].Close()
		require.Equal(t, 1, removed)
		close(goOn)
		synctest.Wait()
		require.Equal(t, 2, removed, "when the function returns")
		locals[2].Close()
		require.Equal(t, 3, removed)
		w.Stop()
		pool.Close()
		require.Equal(t, 4, removed)
	})
}

// Shutdown that gives up removes nothing.
func TestPoolShutdownRemovesValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := New(math.MaxInt, 0, Wait)
		w := timingwheel.New(timingwheel.WithExecutor(pool))
		all := &ledger{t: t}
		l := NewLocal(pool, all.init, all.remove)
		goOn := make(chan struct{})
		for range 20 {
			inPool(t, pool, w, func(k *Worker) { use(t, *l.Get(k), 0); <-goOn; use(t, *l.Get(k), 0) })
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, pool.Shutdown(ctx), context.DeadlineExceeded)
		require.Equal(t, 20, all.live())
		close(goOn)
		require.NoError(t, pool.Shutdown(t.Context()))
		require.Zero(t, all.live())
		require.Equal(t, 20, pool.workers.made)
		pool.workers.verifyIdle(t, pool)
		w.Stop()
	})
}

func TestLocalAllocations(t *testing.T) {
	pool := New(1, 0, CallerRuns)
	w := timingwheel.New(timingwheel.WithExecutor(pool), timingwheel.WithManualDrive())
	l := NewLocal[[64]byte](pool, nil, nil)
	k := pool.workers.enter(true)
	defer pool.workers.leave(k)
	l.Get(k)
	require.Zero(t, testing.AllocsPerRun(1000, func() { l.Get(k)[0]++; l.Peek(k); k.Len() }))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		other := pool.workers.enter(true)
		pool.workers.leave(other)
	}))
	f := func(*Worker) {}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		timeout, _ := pool.Schedule(w, time.Hour, f)
		timeout.Cancel()
	}), 2.0)
	w.Stop()
}

// The values of a Local that was closed are garbage, and so is a Pool that is forgotten,
// with all of its values. A function that was canceled is garbage, too.
func TestForgottenLocal(t *testing.T) {
	type big [1 << 10]byte
	pool := New(2, 2, Wait)
	w := timingwheel.New(timingwheel.WithExecutor(pool))
	defer w.Stop()
	fill := func(p *Pool) (*Local[*big], weak.Pointer[big]) {
		l := NewLocal(p, func(*Worker) *big { return new(big) }, nil)
		k := p.workers.enter(true)
		defer p.workers.leave(k)
		return l, weak.Make(*l.Get(k))
	}
	l, data := fill(pool)
	runtime.GC()
	require.NotNil(t, data.Value())
	l.Close()
	waitForGarbage(t, func() bool { return data.Value() == nil })

	forgotten, data := func() (weak.Pointer[Pool], weak.Pointer[big]) {
		p := New(2, 2, Wait)
		_, data := fill(p)
		return weak.Make(p), data
	}()
	waitForGarbage(t, func() bool { return forgotten.Value() == nil && data.Value() == nil })

	canceled := func() weak.Pointer[big] {
		held := new(big)
		timeout, err := pool.Schedule(w, time.Hour, func(*Worker) { held[0]++ })
		require.NoError(t, err)
		require.True(t, timeout.Cancel())
		return weak.Make(held)
	}()
	waitForGarbage(t, func() bool { return canceled.Value() == nil })
	runtime.KeepAlive(l)
}

// In a bubble, what is scheduled on an outer wheel runs by the bubble's clock, and as
// elsewhere with the values of a Worker.
func TestScheduleOnAnOuterWheelInABubble(t *testing.T) {
	p := New(1, 1, Wait)
	w := timingwheel.New(timingwheel.WithExecutor(p))
	var inner *timingwheel.TimingWheel
	var innerPool *Pool
	synctest.Test(t, func(t *testing.T) {
		start, took := time.Now(), make(chan time.Duration, 1)
		_, err := p.Schedule(w, time.Hour, func(*Worker) { took <- time.Since(start) })
		require.NoError(t, err)
		require.Equal(t, time.Hour, <-took)

		innerPool = New(1, 1, Wait)
		inner = timingwheel.New(timingwheel.WithExecutor(innerPool))
	})
	require.Zero(t, w.Len())
	require.PanicsWithValue(t, "timingwheel: the wheel was made in a testing/synctest bubble and is used outside of it: make another one outside",
		func() { innerPool.Schedule(inner, time.Second, func(*Worker) {}) })
	innerPool.Close()
	w.Stop()
	p.Close()
}
