package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// When Run's context ends the handlers that run do so to their end, and what has not
// begun is handed back at once, so that another worker runs it on time.
func drain(t *testing.T, s Store) {
	release := make(chan struct{})
	a := open(t, s.Open(t), durable.WithConcurrency(1)).
		handle(kind, waits(release)).start()
	first := a.add(durable.Job{Kind: kind})[0]
	a.awaitRuns(1)
	a.add(times(20, durable.Job{Kind: kind})...) // some are claimed, all wait
	await(t, "they are held", func() bool { return a.Stats().Held == 21 })
	drained := make(chan struct{})
	go func() { a.drain(); close(drained) }()
	b := open(t, s.Open(t)).handle(kind, nil).start()
	b.awaitRuns(20)
	for _, run := range b.ran() {
		require.Equal(t, 1, run.Number, "what was claimed and handed back does not count")
	}
	select {
	case <-drained:
		require.Fail(t, "Run did not wait for its handler")
	default:
	}
	close(release)
	<-drained
	a.awaitGone(first)
	require.Len(t, a.ran(), 1)
	require.Len(t, b.ran(), 20)
	empty(t, b)
}

// No more handlers run at once than permitted, in all and of a kind, and a kind that is
// held up does not hold up another: the first of one ends when all of the others have begun.
func concurrency(t *testing.T, s Store) {
	var all, one crowd
	release := make(chan struct{})
	slow := sleeps(20 * time.Millisecond)
	r := open(t, s.Open(t), durable.WithConcurrency(6), durable.WithKindConcurrency("one", 1)).
		handle("one", all.around(one.around(func(ctx context.Context, a *durable.Attempt) error {
			<-release
			return slow(ctx, a)
		}))).handle("many", all.around(slow)).start()
	r.add(times(40, durable.Job{Kind: "one"})...)
	r.add(times(100, durable.Job{Kind: "many"})...)
	r.awaitRuns(101) // what has no limit is not held up
	close(release)
	r.awaitRuns(140)
	empty(t, r)
	require.LessOrEqual(t, all.most.Load(), int64(6))
	require.LessOrEqual(t, one.most.Load(), int64(1))
	require.Len(t, r.ran(), 140)
}

// A worker that starts with many jobs overdue runs them all, about in the order of their
// time, and holds no more than it has room for.
func overdue(t *testing.T, s Store) {
	n := envInt("ENGINETEST_OVERDUE", 1000)
	r := open(t, s.Open(t))
	r.handle(kind, nil)
	began := time.Now()
	r.addMany(n, durable.Job{Kind: kind, Payload: make([]byte, 100)})
	t.Logf("added in %v", time.Since(began))
	time.Sleep(time.Second)
	began = time.Now()
	r.start()
	most := int64(0)
	for end := time.Now().Add(5 * patience); len(r.ran()) < n; time.Sleep(20 * time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d of %d", len(r.ran()), n)
		most = max(most, r.Stats().Held)
	}
	took := time.Since(began)
	t.Logf("%d overdue ran in %v; at most %d held", n, took, most)
	require.LessOrEqual(t, most, int64(1<<16))
	eachOnce(t, 0, r)
	behind := 0
	var latest time.Time
	for _, run := range r.ran() {
		if run.Due.Before(latest.Add(-max(10*time.Second, took))) {
			behind++
		}
		if run.Due.After(latest) {
			latest = run.Due
		}
	}
	require.LessOrEqual(t, behind, n/10)
	empty(t, r)
}

// shifted is an engine whose times are all off by so much, for its Queue: as the engine
// looks to a worker whose wall clock is wrong.
type shifted struct {
	driver.Engine
	by time.Duration
}

type shiftedWorker struct {
	driver.Worker
	by time.Duration
}

func (e *shifted) Now(ctx context.Context) (time.Time, time.Duration, error) {
	now, off, err := e.Engine.Now(ctx)
	return now.Add(e.by), off, err
}

func (e *shifted) Insert(ctx context.Context, recs []driver.Record) ([]durable.Ref, []error) {
	for i := range recs {
		r := &recs[i]
		r.Due, r.Born, r.At = r.Due.Add(-e.by), r.Born.Add(-e.by), r.At.Add(-e.by)
	}
	return e.Engine.Insert(ctx, recs)
}

func (e *shifted) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	return &shiftedWorker{w, e.by}, err
}

func (w *shiftedWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	return w.Worker.Fetch(ctx, func(hs []*driver.Delivery) {
		for _, h := range hs {
			h.Record.Due = h.Record.Due.Add(w.by)
		}
		give(hs)
	})
}

// A worker whose clock is 10 s off in either direction runs nothing early.
func neverEarly(t *testing.T, s Store) {
	for _, by := range []time.Duration{0, 10 * time.Second, -10 * time.Second} {
		raw := s.Open(t)
		r := open(t, &shifted{raw, by}).handle(kind, nil).start()
		r.add(spread(300, 300*time.Millisecond, 3333*time.Microsecond)...)
		for _, run := range r.awaitRuns(300) {
			due := run.Due.Add(-by) // by the engine's clock, which here is that of the machine
			require.False(t, run.at.Before(due), "%v early, with a clock off by %v", due.Sub(run.at), by)
		}
		st := r.Stats()
		t.Logf("off by %v: late by p50 %v, p99 %v", by, st.Lateness.P50, st.Lateness.P99)
		r.close()
	}
}
