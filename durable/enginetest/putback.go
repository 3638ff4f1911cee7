package enginetest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// putBackLease is so long that the end of a lease settles nothing in a test that looks whether heartbeats do.
const putBackLease = 20 * time.Second

// saves returns the Store as one that can be put back, or skips the test.
func saves(t testing.TB, s Store) PutBacker {
	p, ok := s.(PutBacker)
	if !ok {
		t.Skip("this store cannot be put back")
	}
	return p
}

// settled waits until a worker agrees with its store. The worker lives, so the end of no lease settles that.
func (c *calls) settled(began time.Time) {
	await(c.t, "worker and store agree", func() bool { return c.Health(within(c.t)) == nil })
	c.t.Log("settled after", time.Since(began))
}

// Jobs that ran when the store was saved, and have ended since, run again within seconds of the put
// back, though their worker lives: no lease ends.
func putBack(t *testing.T, st Store) {
	s := saves(t, st)
	release := make(chan struct{})
	var hold atomic.Bool
	hold.Store(true)
	r := open(t, s.Open(t), durable.WithLease(putBackLease)).handle(kind, func(context.Context, *durable.Attempt) error {
		if hold.Load() {
			<-release
		}
		return nil
	}).start()
	refs := r.add(times(20, durable.Job{Kind: kind})...)
	r.awaitRuns(len(refs))
	back := s.Save(t)
	hold.Store(false)
	close(release)
	r.awaitGone(refs...)
	began := time.Now()
	back()
	var before time.Time
	await(t, "it is noticed", func() bool {
		if r.Stats().Forgotten > 0 {
			return true
		}
		before = time.Now()
		return false
	})
	if err := r.Health(within(t)); time.Since(before) < time.Second { // else it may be settled, on a busy machine
		require.ErrorIs(t, err, durable.ErrWentBack)
	}
	r.awaitGone(refs...)
	await(t, "all are counted", func() bool { return r.Stats().Forgotten == int64(len(refs)) }) // after they were handed back
	count := map[durable.Ref]int{}
	for _, run := range r.ran() {
		count[run.Ref]++
	}
	for _, ref := range refs {
		require.Equal(t, 2, count[ref])
	}
	r.settled(began)
	empty(t, r)
}

// Permits of forgotten claims are free within seconds.
func putBackLimits(t *testing.T, st Store) {
	s := saves(t, st)
	release := make(chan struct{})
	r := open(t, s.Open(t), durable.WithLease(putBackLease)).handle(kind, waits(release)).handle("later", nil)
	r.limit("two", durable.Limit{Kind: kind, Running: 2})
	r.start()
	refs := r.add(times(2, durable.Job{Kind: kind})...)
	r.awaitRuns(2)
	back := s.Save(t)
	close(release)
	r.awaitGone(refs...)
	began := time.Now()
	back()
	more := r.add(times(6, durable.Job{Kind: kind})...)
	r.awaitGone(more...)
	r.awaitGone(refs...)
	r.settled(began)
	usage, err := r.engine.Usage(within(t))
	r.ok(err)
	for _, u := range usage {
		require.Zero(t, u.Taken)
	}
}

// A schedule whose occurrence ran when the store was saved goes on.
func putBackSchedule(t *testing.T, st Store) {
	s := saves(t, st)
	begun, release := make(chan bool, 100), make(chan struct{})
	r := open(t, s.Open(t), durable.WithLease(putBackLease)).handle(kind, tells(begun, release)).start()
	r.schedule("s", "@every 1s", durable.Job{Kind: kind})
	<-begun
	back := s.Save(t)
	close(release)
	<-begun
	began := time.Now()
	back()
	await(t, "it is noticed", func() bool { return r.Stats().Forgotten > 0 })
	had := attempts(r)
	r.awaitRuns(had + 3)
	r.settled(began)
	r.ok(r.DeleteSchedule(within(t), "s"))
}

// A job that was claimed after the store was saved is another worker's after the put back. The
// first worker cannot end it, and neither do their claims get mixed up.
func putBackClaims(t *testing.T, st Store) {
	s := saves(t, st)
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind})[0]
	back := s.Save(t)
	a := newCrashing(t, s.Open(t), "before")
	h := a.take(ref)
	require.Equal(t, 1, a.granted(h))
	a.stop()
	back()
	b := newCrashing(t, s.Open(t), "after")
	h2 := b.take(ref)
	require.Equal(t, 1, b.granted(h2))
	out := driver.Completion{Delivery: h, End: driver.Done}
	require.ErrorIs(t, a.Finish(within(t), []driver.Completion{out})[0], durable.ErrLeaseLost)
	require.Equal(t, durable.Running, r.get(ref).State)
	b.end(h2, driver.Done)
	empty(t, r)
}

// No claim is handed back that is on its way, whose answer was lost, or whose handler runs, however
// often heartbeats come meanwhile.
func claimsOnTheWay(t *testing.T, s Store) {
	var claims, n atomic.Int64
	e := guarded{Engine: s.Open(t), guard: func(method string, call func() error) error {
		err := call()
		switch {
		case method == "Claim" && claims.Add(1)%3 == 0: // the answer is lost
			return errTest
		case method == "Claim" || method == "Finish" || method == "Release":
			time.Sleep(5 * time.Millisecond)
		}
		return err
	}}
	r := open(t, beatsAllTheTime{e}, steady, backoff(50*time.Millisecond)).handle(kind, func(_ context.Context, a *durable.Attempt) error {
		time.Sleep(20 * time.Millisecond)
		if n.Add(1)%5 == 0 && a.Number == 1 {
			return errTest
		}
		return nil
	}).start()
	refs := r.add(spread(200, 0, 5*time.Millisecond)...)
	r.awaitGone(refs...)
	require.Zero(t, r.Stats().Forgotten)
	require.Zero(t, r.Stats().LeaseLost)
	require.NoError(t, r.Health(within(t)))
}

// beatsAllTheTime is an engine whose workers also send heartbeats while others are under way.
type beatsAllTheTime struct{ driver.Engine }

func (e beatsAllTheTime) Work(ctx context.Context, c driver.WorkConfig) (driver.Worker, error) {
	w, err := e.Engine.Work(ctx, c)
	if err != nil {
		return nil, err
	}
	return beatingWorker{w}, nil
}

type beatingWorker struct{ driver.Worker }

func (w beatingWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	beating, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for beating.Err() == nil {
			w.Heartbeat(beating)
			breathe()
		}
	}()
	return w.Worker.Fetch(ctx, give)
}
