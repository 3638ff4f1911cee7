package jetstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/jetstream/internal/natsserver"
	"github.com/tickwheel/tickwheel/durable/testservers/busy"
)

// backStore is a store that can be put back behind the engines on it.
type backStore struct {
	*store
	copy string
	now  atomic.Pointer[natsserver.Server]
	cut  atomic.Bool // nobody connects
}

func newBackStore(t testing.TB, opts ...jetstream.Option) *backStore {
	s := &backStore{store: newStore(t, opts...), copy: filepath.Join(t.TempDir(), "copy")}
	s.now.Store(s.process)
	return s
}

// InProcessConn connects to the server that runs now.
func (s *backStore) InProcessConn() (net.Conn, error) {
	if s.cut.Load() {
		return nil, errors.New("cut off")
	}
	return s.now.Load().InProcessConn()
}

func (s *backStore) start(t testing.TB) {
	s.store.start(t)
	s.now.Store(s.process)
}

// Save makes the store one that enginetest can put back.
func (s *backStore) Save(t testing.TB) func() {
	s.keep(t)
	return func() { s.putBack(t) }
}

func TestConformancePutBack(t *testing.T) {
	t.Parallel()
	enginetest.RunOnly(t, func(t testing.TB) enginetest.Store { return newBackStore(t) },
		"PutBack", "PutBackLimits", "PutBackSchedule", "PutBackClaims", "ClaimsOnTheWay")
}

// settle waits for the next poll of all workers.
func (s *backStore) settle(t testing.TB) { time.Sleep(busy.Longer(1500 * time.Millisecond)) }

func (s *backStore) Open(t testing.TB) driver.Engine { return s.openBy(t, s) }

// openBy opens an engine on a connection that by makes.
func (s *backStore) openBy(t testing.TB, by nats.InProcessConnProvider) driver.Engine {
	nc, err := nats.Connect("", nats.InProcessServer(by), nats.MaxReconnects(-1), nats.Timeout(time.Minute),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := jetstream.Connect(within(t), nc, s.opts...)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// keep copies what is stored now.
func (s *backStore) keep(t testing.TB) {
	s.stop(t)
	require.NoError(t, os.CopyFS(s.copy, os.DirFS(s.dir)))
	s.start(t)
}

// putBack replaces what is stored by what keep has copied.
func (s *backStore) putBack(t testing.TB) {
	s.stop(t)
	require.NoError(t, os.RemoveAll(s.dir))
	require.NoError(t, os.CopyFS(s.dir, os.DirFS(s.copy)))
	s.start(t)
}

// backWorker is a worker whose handler waits until the gate is open, and counts what begins and what
// has ended.
type backWorker struct {
	*durable.Queue
	engine driver.Engine
	log    *records
	gate   *gate

	mu    sync.Mutex
	began map[durable.Ref][]int // the numbers of the attempts
	ended map[durable.Ref]int
	cause []error // of contexts that have ended
}

// gate holds handlers while it is shut.
type gate struct{ open atomic.Pointer[chan struct{}] }

func newGate() *gate {
	g := &gate{}
	g.shut()
	return g
}

func (g *gate) shut() { c := make(chan struct{}); g.open.Store(&c) }
func (g *gate) pass() { close(*g.open.Load()) }

func work(t testing.TB, e driver.Engine, g *gate, opts ...durable.Option) *backWorker {
	w := &backWorker{engine: e, log: &records{}, gate: g, began: map[durable.Ref][]int{}, ended: map[durable.Ref]int{}}
	q, err := durable.Open(within(t), e, append([]durable.Option{durable.WithLogger(slog.New(w.log))}, opts...)...)
	require.NoError(t, err)
	w.Queue = q
	q.Handle("k", func(ctx context.Context, a *durable.Attempt) error {
		w.mu.Lock()
		w.began[a.Ref] = append(w.began[a.Ref], a.Number)
		w.mu.Unlock()
		select {
		case <-*g.open.Load():
		case <-ctx.Done():
			w.mu.Lock()
			w.cause = append(w.cause, context.Cause(ctx))
			w.mu.Unlock()
			return ctx.Err()
		}
		w.mu.Lock()
		w.ended[a.Ref]++
		w.mu.Unlock()
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, q.Close())
	})
	return w
}

func (w *backWorker) hasEnded(ref durable.Ref) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended[ref]
}

func (w *backWorker) attempts(ref durable.Ref) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]int{}, w.began[ref]...)
}

// records is a handler of a logger that keeps all.
type records struct {
	mu  sync.Mutex
	all []slog.Record
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, rec)
	return nil
}

func (r *records) at(level slog.Level) (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.all {
		if rec.Level == level {
			found = append(found, rec.Message)
		}
	}
	return found
}

// backLease returns the lease of the workers. It does not end in these tests.
func backLease() time.Duration { return busy.Longer(20 * time.Second) }

// add adds jobs and returns their Refs.
func (w *backWorker) add(t testing.TB, n int, j durable.Job) []durable.Ref {
	for {
		refs, err := w.AddMany(within(t), slices.Repeat([]durable.Job{j}, n)...)
		if errors.Is(err, durable.ErrUncertain) { // it came so late, after a restart, that its bucket was closed
			continue
		}
		require.NoError(t, err)
		return refs
	}
}

// begun waits until so many handlers have begun in all workers.
func begun(t testing.TB, n int, workers ...*backWorker) {
	t.Helper()
	require.Eventually(t, func() bool {
		all := 0
		for _, w := range workers {
			w.mu.Lock()
			all += len(w.began)
			w.mu.Unlock()
		}
		return all == n
	}, patience, time.Millisecond)
}

// requireEnd requires that each of the jobs ends so often, in some of the workers.
func requireEnd(t testing.TB, times int, refs []durable.Ref, workers ...*backWorker) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, ref := range refs {
			n := 0
			for _, w := range workers {
				n += w.hasEnded(ref)
			}
			if n < times {
				return false
			}
		}
		return true
	}, patience, time.Millisecond)
}

// three opens three workers with one gate.
func (s *backStore) three(t testing.TB) (g *gate, workers []*backWorker) {
	g = newGate()
	for range 3 {
		workers = append(workers, work(t, s.Open(t), g, durable.WithLease(backLease())))
	}
	return g, workers
}

// A claim that a store has again, after it was put back behind the worker that has ended it, is handed back
// within seconds, whichever worker is handed the job.
func TestPutBackPlain(t *testing.T) {
	t.Parallel()
	s := newBackStore(t)
	g, workers := s.three(t)
	refs := workers[0].add(t, 40, durable.Job{Kind: "k"})
	begun(t, 40, workers...)
	s.keep(t)
	g.pass()
	requireEnd(t, 1, refs, workers...)
	s.settle(t)
	require.Zero(t, jetstream.Backs(workers[0].engine)) // a restart is nothing of the kind
	s.putBack(t)
	requireEnd(t, 2, refs, workers...)
	requireEnd(t, 1, workers[1].add(t, 10, durable.Job{Kind: "k"}), workers...)
	requireForgotten(t, 40, workers...)
}

// requireForgotten requires that the workers that have lost a write have noticed that the stream went back and agree with
// it, and that so many claims were forgotten. A worker that has written nothing since may notice nothing, if the stream
// has grown by the writes of the others before it looks.
func requireForgotten(t testing.TB, n int64, workers ...*backWorker) {
	t.Helper()
	noticed := func(w *backWorker) bool { return jetstream.Backs(w.engine) > 0 }
	require.Eventually(t, func() bool { return forgotten(workers) == n && slices.ContainsFunc(workers, noticed) }, patience, time.Millisecond)
	for _, w := range workers {
		if jetstream.Backs(w.engine) == 0 {
			continue
		}
		require.Eventually(t, func() bool { return len(w.log.at(slog.LevelError)) > 0 && w.Health(within(t)) == nil }, patience, time.Millisecond)
		require.Len(t, w.log.at(slog.LevelError), 1)
		require.EqualValues(t, 1, jetstream.Backs(w.engine))
	}
	require.Equal(t, n, forgotten(workers))
}

// forgotten is how many claims the workers have handed back. Each counts them when it has handed them back: by then the
// jobs may have ended.
func forgotten(workers []*backWorker) (n int64) {
	for _, w := range workers {
		n += w.Stats().Forgotten
	}
	return n
}

// The permits of such claims are free then. The attempts count, since these claims were exact.
func TestPutBackLimited(t *testing.T) {
	t.Parallel()
	for _, perLane := range []bool{false, true} {
		t.Run(fmt.Sprintf("PerLane %v", perLane), func(t *testing.T) {
			t.Parallel()
			s := newBackStore(t)
			g, workers := s.three(t)
			require.NoError(t, workers[0].SetLimit(within(t), "three", durable.Limit{Kind: "k", Running: 3, PerLane: perLane}))
			job := durable.Job{Kind: "k", Lane: "a lane"}
			refs := workers[0].add(t, 3, job)
			begun(t, 3, workers...)
			s.keep(t)
			g.pass()
			requireEnd(t, 1, refs, workers...)
			s.settle(t)
			s.putBack(t)
			more := workers[0].add(t, 5, job)
			requireEnd(t, 1, more, workers...)
			requireEnd(t, 2, refs, workers...)
			for _, ref := range refs {
				var numbers []int
				for _, w := range workers {
					numbers = append(numbers, w.attempts(ref)...)
				}
				slices.Sort(numbers)
				require.Equal(t, []int{1, 2}, numbers)
			}
		})
	}
}

// A schedule whose occurrence was claimed goes on.
func TestPutBackSchedule(t *testing.T) {
	t.Parallel()
	s := newBackStore(t)
	g, workers := s.three(t)
	require.NoError(t, workers[0].SetSchedule(within(t), "s", "@every 1s", durable.Job{Kind: "k"}))
	begun(t, 1, workers...)
	s.keep(t)
	g.pass()
	ended := func() (n int) {
		for _, w := range workers {
			w.mu.Lock()
			n += len(w.ended)
			w.mu.Unlock()
		}
		return n
	}
	require.Eventually(t, func() bool { return ended() >= 3 }, patience, time.Millisecond)
	s.putBack(t)
	had := ended()
	require.Eventually(t, func() bool { return ended() >= had+3 }, patience, time.Millisecond)
}

// The same where the stream has grown beyond where it was when its workers see it again.
func TestPutBackAndGrown(t *testing.T) {
	t.Parallel()
	s := newBackStore(t)
	g, workers := s.three(t)
	refs := workers[0].add(t, 40, durable.Job{Kind: "k"})
	begun(t, 40, workers...)
	s.keep(t)
	g.pass()
	requireEnd(t, 1, refs, workers...)
	s.settle(t)
	s.cut.Store(true)
	s.putBack(t)
	far, err := durable.Open(within(t), s.store.Open(t))
	require.NoError(t, err)
	defer far.Close()
	for range 3 {
		_, err := far.AddMany(within(t), slices.Repeat([]durable.Job{{Kind: "other", After: time.Hour}}, 1000)...)
		require.NoError(t, err)
	}
	s.cut.Store(false)
	requireEnd(t, 2, refs, workers...)
	// One that has written nothing since the copy has lost nothing, and notices nothing.
	require.Eventually(t, func() bool { return forgotten(workers) == 40 }, patience, time.Millisecond)
}

// What was stored after the copy is gone. A job that runs by such a claim learns that, and so does one that
// is added to a stream that is empty now.
func TestPutBackToBefore(t *testing.T) {
	t.Parallel()
	s := newBackStore(t)
	g, workers := s.three(t)
	s.keep(t)
	require.NoError(t, workers[0].SetLimit(within(t), "one", durable.Limit{Kind: "other", Running: 1}))
	workers[0].add(t, 5, durable.Job{Kind: "k"})
	begun(t, 5, workers...)
	s.settle(t)
	s.putBack(t)
	require.Eventually(t, func() bool {
		n := 0
		for _, w := range workers {
			w.mu.Lock()
			for _, cause := range w.cause {
				require.ErrorIs(t, cause, durable.ErrLeaseLost)
				n++
			}
			w.mu.Unlock()
		}
		return n == 5
	}, patience, time.Millisecond)
	g.pass()
	requireEnd(t, 1, workers[2].add(t, 5, durable.Job{Kind: "k"}), workers...)
	for l, err := range workers[0].Limits(within(t)) {
		require.NoError(t, err)
		t.Fatal("a limit that is not stored any more", l)
	}
}

// A worker that has claims of before the copy goes on with them, and ends them once.
func TestPutBackWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newBackStore(t)
	g, workers := s.three(t)
	require.NoError(t, workers[0].SetLimit(within(t), "ten", durable.Limit{Kind: "k", Running: 10}))
	refs := workers[0].add(t, 10, durable.Job{Kind: "k"})
	begun(t, 10, workers...)
	s.keep(t)
	workers[0].add(t, 10, durable.Job{Kind: "other", After: time.Hour})
	s.settle(t)
	s.putBack(t)
	requireForgotten(t, 0, workers...)
	g.pass()
	requireEnd(t, 1, refs, workers...)
	for _, w := range workers {
		require.Empty(t, w.cause)
		require.Zero(t, w.Stats().LeaseLost)
	}
	for _, ref := range refs {
		n := 0
		for _, w := range workers {
			n += len(w.attempts(ref))
		}
		require.Equal(t, 1, n)
	}
}

// backCluster is a cluster that can be put back behind the engines on it.
type backCluster struct {
	*cluster
	copies [3]string
	now    [3]atomic.Pointer[natsserver.Server]
}

func newBackCluster(t testing.TB) *backCluster {
	c := &backCluster{cluster: newCluster(t)}
	for i := range c.copies {
		c.copies[i] = filepath.Join(t.TempDir(), "copy")
		c.now[i].Store(c.servers[i])
	}
	return c
}

// backNode is a server of the cluster, whichever process that is.
type backNode struct {
	at *atomic.Pointer[natsserver.Server]
}

func (n backNode) InProcessConn() (net.Conn, error) { return n.at.Load().InProcessConn() }

func (c *backCluster) Open(t testing.TB) driver.Engine {
	c.turn++
	nc, err := nats.Connect("", nats.InProcessServer(backNode{&c.now[c.turn%3]}), nats.MaxReconnects(-1), nats.Timeout(time.Minute),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0))
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := jetstream.Connect(within(t), nc, c.opts...)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// restart starts all servers again, after copying all their directories.
func (c *backCluster) restart(t testing.TB, from, to [3]string) {
	c.stop(t)
	for i := range from {
		require.NoError(t, os.RemoveAll(to[i]))
		require.NoError(t, os.CopyFS(to[i], os.DirFS(from[i])))
	}
	c.start(t)
	for i := range c.now {
		c.now[i].Store(c.servers[i])
	}
}

// Three servers that are all put back are as one that is.
func TestPutBackThreeNodes(t *testing.T) {
	t.Parallel()
	c := newBackCluster(t)
	g := newGate()
	var workers []*backWorker
	for range 3 {
		workers = append(workers, work(t, c.Open(t), g, durable.WithLease(2*backLease())))
	}
	require.NoError(t, workers[0].SetLimit(within(t), "limit", durable.Limit{Kind: "k", Running: 10}))
	refs := workers[0].add(t, 10, durable.Job{Kind: "k"})
	begun(t, 10, workers...)
	c.restart(t, c.dirs, c.copies)
	g.pass()
	requireEnd(t, 1, refs, workers...)
	for _, ref := range refs { // the handlers have returned, and the servers may still elect: what is not stored cannot be lost
		require.Eventually(t, func() bool {
			_, err := workers[0].Get(t.Context(), ref)
			return errors.Is(err, durable.ErrNotFound)
		}, patience, 10*time.Millisecond)
	}
	for _, w := range workers {
		require.Zero(t, jetstream.Backs(w.engine)) // a restart is nothing of the kind
	}
	c.restart(t, c.copies, c.dirs)
	more := workers[0].add(t, 10, durable.Job{Kind: "k"})
	requireEnd(t, 2, refs, workers...)
	requireEnd(t, 1, more, workers...)
	require.Eventually(t, func() bool { return forgotten(workers) > 0 }, patience, time.Millisecond)
}
