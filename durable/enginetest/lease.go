package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// work returns a worker of the tests' kinds, with a change of its configuration or none.
func work(t testing.TB, e driver.Engine, name string, change ...func(*driver.WorkConfig)) driver.Worker {
	c := driver.WorkConfig{
		Name: name, Kinds: driver.NewKindGate([]string{kind, "later"}), Lease: lease, Ahead: 500 * time.Millisecond,
		Retention: time.Hour, Tell: func(driver.Notice) {},
	}
	for _, f := range change {
		f(&c)
	}
	w, err := e.Work(within(t), c)
	require.NoError(t, err)
	return w
}

// crashing is a worker that a test drives by hand, and that may die without a word.
type crashing struct {
	driver.Worker
	t    testing.TB
	held chan *driver.Delivery
	late atomic.Bool // it has lost its lease: the machine is too busy
	stop context.CancelFunc
}

func newCrashing(t testing.TB, e driver.Engine, name string, change ...func(*driver.WorkConfig)) *crashing {
	w := work(t, e, name, change...)
	ctx, stop := context.WithCancel(context.Background())
	c := &crashing{Worker: w, t: t, held: make(chan *driver.Delivery, 100)}
	fed := feeding(t, w, func(hs []*driver.Delivery) {
		for _, h := range hs {
			select {
			case c.held <- h:
			case <-ctx.Done():
			}
		}
	})
	c.stop = func() { stop(); go fed() }
	t.Cleanup(stop)
	return c
}

// beating renews the worker's lease until the end of the test.
func (c *crashing) beating() *crashing {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := c.Heartbeat(ctx); errors.Is(err, durable.ErrLeaseLost) {
				c.late.Store(true)
			}
			time.Sleep(lease / 10)
		}
	}()
	c.t.Cleanup(func() { stop(); <-done })
	return c
}

// take waits until the job is handed out.
func (c *crashing) take(ref durable.Ref) *driver.Delivery {
	c.t.Helper()
	return c.takeAll([]durable.Ref{ref})[0]
}

// takeAll waits until some jobs are handed out, and drops all others.
func (c *crashing) takeAll(refs []durable.Ref) (held []*driver.Delivery) {
	c.t.Helper()
	missing := map[durable.Ref]bool{}
	for _, ref := range refs {
		missing[ref] = true
	}
	for end := time.After(patience); len(missing) > 0; {
		select {
		case h := <-c.held:
			if missing[h.Ref] {
				held = append(held, h)
				delete(missing, h.Ref)
			}
		case <-end:
			require.FailNow(c.t, "not handed out")
		}
	}
	return held
}

// claim claims what it takes, as soon as it may; a suspect exactly.
func (c *crashing) claim(ref durable.Ref) (*driver.Delivery, driver.ClaimResult) {
	c.t.Helper()
	h, v := c.ask(ref, false)
	if v.Status == driver.Suspect {
		return c.again(h, true)
	}
	return h, v
}

// ask claims what it takes, exactly or not, as soon as it may.
func (c *crashing) ask(ref durable.Ref, exact bool) (*driver.Delivery, driver.ClaimResult) {
	c.t.Helper()
	return c.again(c.take(ref), exact)
}

// again claims what is held, as soon as it may.
func (c *crashing) again(h *driver.Delivery, exact bool) (*driver.Delivery, driver.ClaimResult) {
	c.t.Helper()
	h.Exact = exact
	return h, claimPatiently(c.t, c, h)
}

// A beat that comes after the lease was over says so, once.
func beatAfterLease(t *testing.T, s Store) {
	const short = time.Second
	w := work(t, s.Open(t), "late", func(c *driver.WorkConfig) { c.Lease, c.Ahead = short, short/4 })
	inTime := func() {
		await(t, "a beat is in time", func() bool { // a busy machine may miss some
			return w.Heartbeat(within(t)) == nil
		})
	}
	inTime()
	time.Sleep(2 * short)
	await(t, "it is said", func() bool { // not by a beat that is not answered in time
		err := w.Heartbeat(within(t))
		require.Error(t, err)
		return errorIs(err, durable.ErrLeaseLost)
	})
	inTime()
}

// A worker that was silent for longer than its lease, and whose job another one has,
// cannot finish it; the other can.
func frozen(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind, Key: "k"})[0]
	a := newCrashing(t, s.Open(t), "frozen")
	h, v := a.claim(ref)
	require.Equal(t, 1, v.Attempt)
	a.stop() // what is frozen fetches nothing
	b := newCrashing(t, s.Open(t), "other")
	h2, v := b.claim(ref)
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, v, "nobody knows whether the first has begun")
	for _, o := range []driver.Completion{
		{Delivery: h, End: driver.Done},
		{Delivery: h, End: driver.Retry, At: time.Now(), Error: "x"},
		{Delivery: h, End: driver.DeadLetter, Error: "x"},
	} {
		require.ErrorIs(t, a.Finish(within(t), []driver.Completion{o})[0], durable.ErrLeaseLost)
	}
	require.ErrorIs(t, a.Heartbeat(within(t)), durable.ErrLeaseLost)
	info := r.get(ref)
	require.Equal(t, durable.Running, info.State)
	finishPatiently(t, b, driver.Completion{Delivery: h2, End: driver.Done})
	r.awaitGone(ref)
	empty(t, r)
}

// A handler may run for many leases: it is not taken over, and it runs once.
func longHandler(t *testing.T, s Store) {
	const short = 500 * time.Millisecond
	var lost atomic.Bool
	handler := func(ctx context.Context, _ *durable.Attempt) error {
		select {
		case <-ctx.Done():
			lost.Store(true)
			return context.Cause(ctx)
		case <-time.After(10 * short):
			return nil
		}
	}
	a := open(t, s.Open(t), durable.WithLease(short)).handle(kind, handler).start()
	b := open(t, s.Open(t), durable.WithLease(short)).handle(kind, handler).start()
	ref := a.add(durable.Job{Kind: kind})[0]
	await(t, "it runs", func() bool { return len(ran(a, b)) > 0 })
	leaseLost := func() bool { return lost.Load() || a.Stats().LeaseLost+b.Stats().LeaseLost > 0 }
	await(t, "the job is gone, or a lease was lost", func() bool {
		_, err := a.Get(within(t), ref)
		return errorIs(err, durable.ErrNotFound) || leaseLost()
	})
	time.Sleep(2 * short)
	if leaseLost() {
		t.Skip("this machine is too busy for a lease of ", short)
	}
	require.Equal(t, 1, len(ran(a, b)))
}

// silentWorker is a worker whose heartbeats fail while is.
type silentWorker struct {
	driver.Worker
	is *atomic.Bool
}

func (w silentWorker) Heartbeat(ctx context.Context) error {
	if w.is.Load() {
		return errors.New("no answer")
	}
	return w.Worker.Heartbeat(ctx)
}

// The handlers of a worker whose lease is over are told, by the cause of their context;
// another worker runs the job.
func leaseLost(t *testing.T, s Store) {
	var silent atomic.Bool
	e := wrapped{s.Open(t), func(w driver.Worker) driver.Worker { return silentWorker{w, &silent} }}
	cause, overtaken := make(chan error, 1), make(chan struct{})
	handler := func(ctx context.Context, a *durable.Attempt) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-overtaken // what it does then is of no account
		return nil
	}
	a := open(t, e).handle(kind, handler).start()
	ref := a.add(durable.Job{Kind: kind})[0]
	a.awaitRuns(1)
	silent.Store(true)
	b := open(t, s.Open(t)).handle(kind, nil).start()
	require.ErrorIs(t, <-cause, durable.ErrLeaseLost)
	b.awaitRuns(1)
	close(overtaken)
	a.awaitGone(ref)
	await(t, "it is counted", func() bool { return a.Stats().LeaseLost == 1 })
	require.Equal(t, int64(0), a.Stats().Done)
	require.Equal(t, 1, b.ran()[0].Number, "nobody knows whether the first has begun")
}

// A claim that is given back does not count.
func releaseClaim(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind})[0]
	w := newCrashing(t, s.Open(t), "gives")
	h, v := w.claim(ref)
	require.Equal(t, 1, v.Attempt)
	require.NoError(t, w.Release(within(t), []*driver.Delivery{h}, 0))
	h, v = w.claim(ref)
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, v)
	require.NoError(t, w.Release(within(t), []*driver.Delivery{h}, 0))
	info := r.get(ref)
	require.Equal(t, durable.Waiting, info.State)
	require.Equal(t, 0, info.Attempt)
	r.cancel(ref, true, "given back")
	time.Sleep(lease)
	empty(t, r)
}

// A worker that was frozen after jobs were handed to it, until they had ended and that
// was forgotten, gets none of them.
func staleClaim(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	refs := r.add(durable.Job{Kind: kind}, durable.Job{Kind: kind})
	frozen := newCrashing(t, s.Open(t), "frozen")
	held := frozen.takeAll(refs)
	frozen.stop()
	r.cancel(refs[0], true, "handed out")
	r.handle(kind, nil).start()
	r.awaitRuns(1)
	r.awaitGone(refs[1])
	time.Sleep(2 * lease)
	for _, v := range frozen.Claim(within(t), held) {
		require.Equal(t, driver.Gone, v.Status)
	}
	require.Len(t, r.ran(), 1)
	empty(t, r)
}

// stopped makes the calls of an engine wait while it is stopped, like the calls of a process that is
// frozen or cut off.
type stopped struct {
	calls chan struct{} // Calls that are under way; full: stopped.
}

// stop returns when no call is under way. It does what a lock would, which synctest knows
// nothing of.
func (e *stopped) stop() {
	for range cap(e.calls) {
		e.calls <- struct{}{}
	}
}

func (e *stopped) goOn() {
	for range cap(e.calls) {
		<-e.calls
	}
}

// make makes a call when the engine is not stopped.
func (e *stopped) make(call func() error) error {
	e.calls <- struct{}{}
	defer func() { <-e.calls }()
	return call()
}

// wrap delays the claims of a worker before and after: the result arrives when the stop has ended.
func (e *stopped) wrap(w driver.Worker) driver.Worker {
	return stoppedWorker{guarded{w, e.make}, e}
}

type stoppedWorker struct {
	guarded
	e *stopped
}

func (w stoppedWorker) Fetch(ctx context.Context, give func([]*driver.Delivery)) error {
	return w.Worker.Fetch(ctx, func(held []*driver.Delivery) {
		w.e.make(func() error { give(held); return nil })
	})
}

// A job that is claimed and has not begun when the lease is lost never begins there:
// another worker has had it, and it is canceled. It waits for its time, and for a place,
// while its worker is stopped; and whether places are free, or the worker is answered,
// first, makes no difference.
func leaseLostWaiting(t *testing.T, s Store) {
	for _, placeFirst := range []bool{true, false} {
		e := &stopped{make(chan struct{}, 100)}
		leave := make(chan struct{})
		a := open(t, wrapped{s.Open(t), e.wrap}, durable.WithConcurrency(2)).
			handle("blocks", waits(leave)).
			handle(kind, nil).handle("later", nil).start()
		a.add(durable.Job{Kind: "blocks"}, durable.Job{Kind: "blocks"})
		await(t, "the places are taken", func() bool { return a.Stats().Running == 2 })
		refs := a.add(durable.Job{Kind: kind}, durable.Job{Kind: "later", After: 400 * time.Millisecond})
		await(t, "both are claimed", func() bool { return a.Stats().Claimed == 2 })
		e.stop()
		b := newCrashing(t, s.Open(t), fmt.Sprint("other", placeFirst))
		for _, h := range b.takeAll(refs) {
			_, v := b.again(h, true)
			require.Equal(t, driver.Granted, v.Status)
			out := driver.Completion{Delivery: h, End: driver.Retry, At: time.Now().Add(time.Hour), Error: "x"}
			require.NoError(t, b.Finish(within(t), []driver.Completion{out})[0])
		}
		b.stop()
		for _, ref := range refs {
			a.cancel(ref, true, "the other has failed it")
		}
		if placeFirst {
			close(leave)
			await(t, "the handlers have returned", func() bool { return a.Stats().Running == 0 })
			e.goOn()
		} else {
			e.goOn()
			await(t, "the lease is renewed", func() bool { return a.Stats().Claimed == 0 })
			close(leave)
		}
		last := a.add(durable.Job{Kind: kind})[0] // the worker goes on
		a.awaitGone(last)
		for _, run := range a.ran() {
			require.NotContains(t, refs, run.Ref, "it was canceled, and has begun")
		}
		a.close()
	}
}
