package pool

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// mostOrdered is how many functions there are at most at a time.
const mostOrdered = 6

// localModel is the dumb reference beside a Pool, its Workers and their Locals. It makes
// one call at a time, says what must come of it, and compares everything after each.
//
// All goroutines but that of the test are blocked while it looks: each function waits for
// an order.
type localModel struct {
	t       *testing.T
	r       *rand.Rand
	pool    *Pool
	room    int // workers of the Pool
	queue   int // how many more the Pool accepts
	wheels  []*timingwheel.TimingWheel
	all     *ledger
	locals  []*modelLocal
	made    int            // Workers
	free    []*modelWorker // the one that was free last is the last
	running []*ordered
	queued  []*ordered // in the Pool
	waiting []*ordered // for room, on the wheel
	closed  bool
}

// modelLocal is a Local.
type modelLocal struct {
	*Local[*resource]
	before func(k *Worker) // what init does first; nil: nothing
	flaky  bool            // remove panics
	closed bool
	waits  map[*ordered]bool // the functions that ran when it was closed, and still do
}

// modelWorker is what a Worker must be.
type modelWorker struct {
	id     int
	values map[*modelLocal]**resource // what Get has returned
}

// ordered is a function that has a Worker and obeys orders. When there are no more, it
// returns.
type ordered struct {
	wheel   *timingwheel.TimingWheel
	timeout timingwheel.Timeout
	orders  chan func(k *Worker)
	k       *Worker
	worker  *modelWorker
}

func (f *ordered) run(k *Worker) {
	f.k = k
	for order := range f.orders {
		order(k)
	}
}

// order runs do in a function and returns the value that it panicked with.
func (m *localModel) order(f *ordered, do func(k *Worker)) (recovered any) {
	f.orders <- func(k *Worker) {
		defer func() { recovered = recover() }()
		do(k)
	}
	synctest.Wait()
	return recovered
}

// runElsewhere is what FullDiscard calls.
func runElsewhere(f func()) {
	go func() {
		defer func() { recover() }()
		f()
	}()
}

func (m *localModel) start() {
	f := &ordered{wheel: m.freeWheel(), orders: make(chan func(k *Worker), 1)}
	var err error
	f.timeout, err = m.pool.Schedule(f.wheel, 0, f.run)
	require.NoError(m.t, err)
	synctest.Wait()
	switch {
	case m.hasRoom():
		m.enter(f)
	case !m.closed && len(m.queued) < m.queue:
		m.queued = append(m.queued, f)
	case m.pool.bounded.Full == run.Waits:
		m.waiting = append(m.waiting, f)
	default:
		m.enterElsewhere(f)
	}
}

// freeWheel returns a wheel whose driver runs no function. Only FullCallerRuns needs more
// than one.
func (m *localModel) freeWheel() *timingwheel.TimingWheel {
	for _, w := range m.wheels {
		if !slices.ContainsFunc(m.running, func(f *ordered) bool { return f.wheel == w && f.worker.id == strange }) {
			return w
		}
	}
	return m.wheels[0]
}

func (m *localModel) hasRoom() bool { return !m.closed && m.inPool() < m.room }

// inPool returns how many functions run on workers of the Pool.
func (m *localModel) inPool() (n int) {
	for _, f := range m.running {
		if f.worker.id != strange {
			n++
		}
	}
	return n
}

func (m *localModel) enter(f *ordered) {
	if last := len(m.free) - 1; last >= 0 {
		f.worker = m.free[last]
		m.free = m.free[:last]
	} else {
		f.worker = &modelWorker{id: m.made, values: map[*modelLocal]**resource{}}
		m.made++
	}
	m.running = append(m.running, f)
}

func (m *localModel) enterElsewhere(f *ordered) {
	f.worker = &modelWorker{id: strange, values: map[*modelLocal]**resource{}}
	m.running = append(m.running, f)
}

// finish ends a function in one of the ways that there are.
func (m *localModel) finish(f *ordered) {
	switch m.r.IntN(3) {
	case 0:
		close(f.orders)
	case 1:
		f.orders <- func(*Worker) { runtime.Goexit() }
	case 2:
		f.orders <- func(*Worker) { panic("f") }
	}
	synctest.Wait()
	m.left(f)
}

// left records that a function has ended. The next waiting function has run by then.
func (m *localModel) left(f *ordered) {
	m.running = slices.DeleteFunc(m.running, func(g *ordered) bool { return g == f })
	for _, l := range m.locals {
		delete(l.waits, f)
		if l.closed {
			delete(f.worker.values, l)
		}
	}
	if f.worker.id == strange {
		return
	}
	m.free = append(m.free, f.worker)
	if len(m.waiting) > 0 && !m.closed {
		m.queued = append(m.queued, m.waiting[0])
		m.waiting = m.waiting[1:]
	}
	if len(m.queued) > 0 {
		m.enter(m.queued[0])
		m.queued = m.queued[1:]
	}
}

// cancel cancels a function, which has left its wheel unless it waits for room there.
func (m *localModel) cancel() {
	if len(m.waiting) > 0 {
		i := m.r.IntN(len(m.waiting))
		f := m.waiting[i]
		m.waiting = slices.Delete(m.waiting, i, i+1)
		require.True(m.t, f.timeout.Cancel())
		require.False(m.t, f.timeout.Cancel())
	}
	for _, f := range slices.Concat(m.running, m.queued) {
		require.False(m.t, f.timeout.Cancel())
	}
}

func (m *localModel) newLocal() {
	l := &modelLocal{flaky: m.r.IntN(4) == 0, waits: map[*ordered]bool{}}
	l.Local = NewLocal(m.pool, func(k *Worker) *resource {
		if before := l.before; before != nil {
			l.before = nil
			before(k)
		}
		return m.all.init(k)
	}, func(r *resource) {
		m.all.remove(r)
		if l.flaky {
			panic("remove")
		}
	})
	m.locals = append(m.locals, l)
}

// panicOf returns what the removal of n values of l panics with.
func panicOf(l *modelLocal, n int) any {
	if l.flaky && n > 0 {
		return "remove"
	}
	return nil
}

func (m *localModel) closeLocal(l *modelLocal) {
	want := m.closes(l)
	require.Equal(m.t, want, recovered(l.Close))
}

func recovered(f func()) (r any) {
	defer func() { r = recover() }()
	f()
	return nil
}

// closes returns what Close of a Local panics with.
func (m *localModel) closes(l *modelLocal) any {
	if l.closed {
		return nil
	}
	l.closed = true
	n := 0
	for _, k := range m.free {
		if k.values[l] != nil {
			n++
			delete(k.values, l)
		}
	}
	for _, f := range m.running {
		l.waits[f] = true
	}
	return panicOf(l, n)
}

// get calls Get in a function.
func (m *localModel) get(f *ordered, l *modelLocal) {
	const isClosed = "pool: Local.Get: the Local is closed"
	had := f.worker.values[l]
	if had != nil || l.closed {
		var got **resource
		r := m.order(f, func(k *Worker) { got = l.Get(k) })
		require.Same(m.t, had, got)
		if had == nil {
			require.Equal(m.t, isClosed, r)
		}
		return
	}
	m.make(f, l)
}

// make calls Get where there is no value. init does one of the things that it may do, or
// must not.
func (m *localModel) make(f *ordered, l *modelLocal) {
	var want any
	var first **resource // what init gets
	values, next := f.worker.values, len(m.all.removed)
	ends, other := false, m.anyLocal()
	switch m.r.IntN(10) {
	case 0:
		want = "init"
		l.before = func(*Worker) { panic("init") }
	case 1:
		ends = true
		l.before = func(*Worker) { runtime.Goexit() }
	case 2:
		want = m.closes(l)
		l.before = func(*Worker) { l.Close() }
	case 3:
		want = "pool: Local.Get: called by the Local's own init"
		if l.flaky {
			want = "remove"
		}
		l.before = func(k *Worker) { first = l.Get(k) }
	case 4:
		if other != l && values[other] == nil && other.closed {
			want = "pool: Local.Get: the Local is closed"
		}
		if other != l {
			l.before = func(k *Worker) { first = other.Get(k) }
		}
	}
	var got **resource
	require.Equal(m.t, want, m.order(f, func(k *Worker) { got = l.Get(k) }))
	l.before = nil
	switch {
	case ends:
		m.left(f)
		return
	case want != nil && first == nil:
		require.Nil(m.t, got)
		return
	case want != nil:
		require.Equal(m.t, next, (*first).id)
		values[l] = first
		return
	case first != nil && values[other] == nil:
		require.Equal(m.t, next, (*first).id)
		values[other] = first
		next++
	case first != nil:
		require.Same(m.t, values[other], first)
	}
	require.Equal(m.t, next, (*got).id, "a value that is not new")
	values[l] = got
}

func (m *localModel) remove(f *ordered, l *modelLocal) {
	had, want := f.worker.values[l] != nil, any(nil)
	if had {
		want = panicOf(l, 1)
		delete(f.worker.values, l)
	}
	was := false
	require.Equal(m.t, want, m.order(f, func(k *Worker) { was = l.Remove(k) }))
	require.Equal(m.t, had && want == nil, was)
}

func (m *localModel) clear(f *ordered) {
	var want any
	for l := range f.worker.values {
		if l.flaky {
			want = "remove"
		}
	}
	clear(f.worker.values)
	require.Equal(m.t, want, m.order(f, func(k *Worker) { k.Clear() }))
}

// shutdown closes the Pool, and has no patience.
func (m *localModel) shutdown() {
	ctx, cancel := context.WithCancel(m.t.Context())
	cancel()
	m.closed = true
	var want, err any
	if m.inPool() > 0 {
		require.ErrorIs(m.t, m.pool.Shutdown(ctx), context.Canceled)
		return
	}
	for _, k := range m.free {
		for l := range k.values {
			if l.flaky {
				want = "remove"
			}
		}
		clear(k.values)
	}
	require.Equal(m.t, want, recovered(func() { err = m.pool.Shutdown(ctx) }))
	require.Nil(m.t, err)
}

func (m *localModel) anyLocal() *modelLocal { return m.locals[m.r.IntN(len(m.locals))] }

func (m *localModel) anyRunning() *ordered { return m.running[m.r.IntN(len(m.running))] }

// act makes one call.
func (m *localModel) act() {
	switch op := m.r.IntN(16); {
	case op < 3 && len(m.running)+len(m.queued)+len(m.waiting) < mostOrdered:
		m.start()
	case op == 3 && len(m.locals) < 12:
		m.newLocal()
	case op == 4 && len(m.locals) > 0:
		m.closeLocal(m.anyLocal())
	case op == 5 && m.r.IntN(16) == 0:
		m.shutdown()
	case op == 5:
		m.forget()
	case op == 9 && m.r.IntN(3) == 0:
		m.cancel()
	case len(m.running) == 0:
	case op == 6:
		m.finish(m.anyRunning())
	case op == 7 && m.r.IntN(3) == 0:
		m.clear(m.anyRunning())
	case op == 8 && len(m.locals) > 0:
		m.remove(m.anyRunning(), m.anyLocal())
	case len(m.locals) > 0:
		m.get(m.anyRunning(), m.anyLocal())
	}
}

// forget forgets a Local that is closed, so that there is room for others.
func (m *localModel) forget() {
	for i, l := range m.locals {
		if l.closed && len(l.waits) == 0 {
			m.locals = slices.Delete(m.locals, i, i+1)
			return
		}
	}
}

// check compares every Worker and every value with the model.
func (m *localModel) check() {
	m.t.Helper()
	ws := &m.pool.workers
	ws.verify(m.t)
	require.Equal(m.t, m.made, ws.made)
	require.LessOrEqual(m.t, m.made, m.room)
	st := m.pool.Stats()
	require.EqualValues(m.t, len(m.queued), st.Queued)
	require.EqualValues(m.t, len(m.waiting), st.Waiting)
	require.Len(m.t, ws.busy, len(m.running))
	require.Len(m.t, ws.free, len(m.free))
	live := map[int]bool{}
	for i, k := range ws.free {
		m.checkWorker(k, m.free[i], live)
	}
	for _, f := range m.running {
		require.NotNil(m.t, f.k, "it does not run")
		m.checkWorker(f.k, f.worker, live)
	}
	for _, f := range slices.Concat(m.queued, m.waiting) {
		require.Nil(m.t, f.k, "it runs")
	}
	for id, times := range m.all.removed {
		if live[id] != (times == 0) || times > 1 {
			require.Fail(m.t, "removed", "value %d was removed %d times, and is live: %v", id, times, live[id])
		}
	}
	seats := 0
	for _, l := range m.locals {
		if !l.closed || len(l.waits) > 0 {
			seats++
		}
	}
	require.Equal(m.t, seats, ws.seats-len(ws.vacant), "indices that are not vacant")
}

// checkWorker adds the IDs of the worker's values to live.
func (m *localModel) checkWorker(k *Worker, want *modelWorker, live map[int]bool) {
	m.t.Helper()
	require.Equal(m.t, want.id, k.ID())
	require.Equal(m.t, len(want.values), k.Len())
	for _, l := range m.locals {
		v, ok := l.Peek(k)
		require.Equal(m.t, want.values[l] != nil, ok)
		require.Same(m.t, want.values[l], v)
	}
	for _, v := range want.values {
		live[(*v).id] = true
	}
}

// stop ends everything. Waiting functions are handed back, and run elsewhere.
func (m *localModel) stop() {
	for len(m.running) > 0 && len(m.waiting) == 0 {
		m.finish(m.running[0])
		m.check()
	}
	handedBack := 0
	for _, w := range m.wheels {
		for _, p := range w.Stop() {
			handedBack++
			runElsewhere(p.Func)
		}
	}
	require.Len(m.t, m.waiting, handedBack)
	synctest.Wait()
	for _, f := range m.waiting {
		m.enterElsewhere(f)
	}
	m.waiting = nil
	m.newLocal()
	m.check()
	for len(m.running) > 0 {
		m.get(m.running[0], m.anyLocal())
		if len(m.running) > 0 {
			m.finish(m.running[0])
		}
		m.check()
	}
	m.shutdown()
	m.check()
	m.all.verify()
}

// end lets all goroutines end when something has failed.
func (m *localModel) end() {
	for _, w := range m.wheels {
		w.Stop()
	}
	for _, f := range slices.Concat(m.running, m.queued, m.waiting) {
		close(f.orders)
	}
}

// runLocalModel makes a Pool and a sequence of calls from data, until it is used up.
func runLocalModel(t *testing.T, data []byte) {
	source := &byteSource{data: data}
	r := rand.New(source)
	synctest.Test(t, func(t *testing.T) {
		m := &localModel{t: t, r: r, room: 1 + r.IntN(3), queue: r.IntN(3), all: &ledger{t: t}}
		full := []WhenFull{Wait, CallerRuns, Discard(runElsewhere)}[r.IntN(3)]
		m.pool = New(m.room, m.queue, full)
		for range mostOrdered {
			m.wheels = append(m.wheels, timingwheel.New(timingwheel.WithExecutor(m.pool), timingwheel.WithShards(1), timingwheel.WithPanicHandler(func(any, []byte) {})))
		}
		defer m.end()
		m.newLocal()
		for len(source.data) > 0 {
			m.act()
			m.check()
		}
		m.stop()
	})
}

func TestLocalModel(t *testing.T) {
	for seed := range uint64(unlessShort(60, 10)) {
		runLocalModel(t, randomBytes(seed, 3000))
	}
}

func FuzzLocal(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomBytes(seed, 500))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4000 {
			t.Skip("longer sequences find nothing that shorter ones do not")
		}
		runLocalModel(t, data)
	})
}
