package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// A heartbeat that comes after the lease was over says so, once.
func beatAfterLease(t *testing.T, s Store) {
	const short = time.Second
	w := work(t, s.Open(t), "late", func(c *driver.WorkConfig) { c.Lease, c.Ahead = short, short/4 })
	inTime := func() {
		await(t, "a heartbeat is in time", func() bool { // a busy machine may miss some
			return w.Heartbeat(within(t)) == nil
		})
	}
	inTime()
	time.Sleep(2 * short)
	await(t, "it is said", func() bool { // not by a heartbeat that is not answered in time
		err := w.Heartbeat(within(t))
		require.Error(t, err)
		return errors.Is(err, durable.ErrLeaseLost)
	})
	inTime()
}

// A worker that was silent for longer than its lease, and whose job another one has,
// cannot finish it; the other can.
func frozen(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind, Key: "k"})[0]
	a := newCrashing(t, s.Open(t), "frozen")
	h := a.take(ref)
	require.Equal(t, 1, a.claim(h, false).Attempt)
	a.stop() // what is frozen fetches nothing
	b := newCrashing(t, s.Open(t), "other")
	h2 := b.suspect(ref, 1, 1) // nobody knows whether the first has begun
	for _, end := range []driver.End{driver.Done, driver.Retry, driver.DeadLetter} {
		out := driver.Completion{Delivery: h, End: end, At: time.Now(), Error: "x"}
		require.ErrorIs(t, a.Finish(within(t), []driver.Completion{out})[0], durable.ErrLeaseLost)
	}
	require.ErrorIs(t, a.Heartbeat(within(t)), durable.ErrLeaseLost)
	require.Equal(t, durable.Running, r.get(ref).State)
	b.end(h2, driver.Done)
	r.awaitGone(ref)
	empty(t, r)
}

// A handler may run for many leases: it is not taken over, and it runs once.
func longHandler(t *testing.T, s Store) {
	const short = 500 * time.Millisecond
	var lost atomic.Bool
	start := func() *rig {
		return open(t, s.Open(t), durable.WithLease(short)).handle(kind, func(ctx context.Context, _ *durable.Attempt) error {
			select {
			case <-ctx.Done():
				lost.Store(true)
			case <-time.After(10 * short):
			}
			return context.Cause(ctx)
		}).start()
	}
	a, b := start(), start()
	ref := a.add(durable.Job{Kind: kind})[0]
	awaitRuns(t, 1, a, b)
	leaseLost := func() bool { return lost.Load() || a.Stats().LeaseLost+b.Stats().LeaseLost > 0 }
	await(t, "the job is gone, or a lease was lost", func() bool {
		_, err := a.Get(within(t), ref)
		return errors.Is(err, durable.ErrNotFound) || leaseLost()
	})
	time.Sleep(2 * short)
	if leaseLost() {
		t.Skip("this machine is too busy for a lease of ", short)
	}
	require.Equal(t, 1, attempts(a, b))
}

// The handlers of a worker whose lease is over are notified, by the cause of their context;
// another worker runs the job.
func leaseLost(t *testing.T, s Store) {
	var silent atomic.Bool
	e := guarded{Engine: s.Open(t), guard: func(method string, call func() error) error {
		if method == "Heartbeat" && silent.Load() {
			return errTest
		}
		return call()
	}}
	cause, overtaken := make(chan error, 1), make(chan struct{})
	a := open(t, e).handle(kind, func(ctx context.Context, _ *durable.Attempt) error {
		<-ctx.Done()
		cause <- context.Cause(ctx)
		<-overtaken // what it does then is of no account
		return nil
	}).start()
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

// A worker that was frozen after jobs were handed to it gets none of them: not while another worker
// runs them, and not when they have ended and that was forgotten.
func staleClaim(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady)
	refs := r.add(durable.Job{Kind: kind}, durable.Job{Kind: kind})
	frozen := newCrashing(t, s.Open(t), "frozen")
	held := frozen.takeAll(refs)
	frozen.stop()
	r.cancel(refs[0], true, "handed out")
	release := make(chan struct{})
	r.handle(kind, waits(release)).start()
	r.awaitRuns(1)
	for _, h := range held {
		require.NotEqual(t, driver.Granted, frozen.Claim(within(t), exact(h))[0].Status, "it runs, or it was canceled")
	}
	close(release)
	r.awaitGone(refs[1])
	time.Sleep(2 * frozen.lease)
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

// make makes a call when the engine is not stopped. The result arrives when a stop has ended.
func (e *stopped) make(_ string, call func() error) error {
	e.calls <- struct{}{}
	defer func() { <-e.calls }()
	return call()
}

// handed delays the jobs that are handed out, and not what the worker does with them: it may release
// some, and a call within a call would wait for ever.
func (e *stopped) handed([]*driver.Delivery) { e.make("Fetch", func() error { return nil }) }

// A job that is claimed and has not begun when the lease is lost never begins there:
// another worker has had it, and it is canceled. It waits for its time, and for a slot,
// while its worker is stopped; and whether slots are free, or the worker is answered,
// first, makes no difference.
func leaseLostWaiting(t *testing.T, s Store) {
	for _, slotFirst := range []bool{true, false} {
		e := &stopped{make(chan struct{}, 100)}
		leave := make(chan struct{})
		a := open(t, guarded{s.Open(t), e.make, e.handed}, durable.WithConcurrency(2)).
			handle("blocks", waits(leave)).
			handle(kind, nil).handle("later", nil).start()
		a.add(durable.Job{Kind: "blocks"}, durable.Job{Kind: "blocks"})
		await(t, "the slots are taken", func() bool { return a.Stats().Running == 2 })
		refs := a.add(durable.Job{Kind: kind}, durable.Job{Kind: "later", After: 400 * time.Millisecond})
		await(t, "both are claimed", func() bool { return a.Stats().Claimed == 2 })
		e.stop()
		b := newCrashing(t, s.Open(t), fmt.Sprint("other", slotFirst))
		for _, h := range b.takeAll(refs) {
			b.granted(h)
			b.end(h, driver.Retry)
		}
		b.stop()
		a.cancelAll(refs) // the other has failed them
		if slotFirst {
			close(leave)
			await(t, "the handlers have returned", func() bool { return a.Stats().Running == 0 })
			e.goOn()
		} else {
			e.goOn()
			await(t, "the lease is renewed", func() bool { return a.Stats().Claimed == 0 })
			close(leave)
		}
		a.awaitGone(a.add(durable.Job{Kind: kind})[0]) // the worker goes on
		for _, run := range a.ran() {
			require.NotContains(t, refs, run.Ref, "it was canceled, and has begun")
		}
		a.close()
	}
}

// A claim whose worker dies counts as an attempt if it was exact, and not if it was not.
// In either case the job is a suspect from then on, and cannot be claimed but exactly;
// when its attempts are used up it dies. Others take over after the lease, not before,
// and with a Close at once.
func deaths(t *testing.T, s Store) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind, MaxAttempts: 2})[0]
	began := time.Now() // the first worker was alive after that
	first := newCrashing(t, s.Open(t), "first")
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 1}, first.claim(first.take(ref), false))
	first.stop()

	second := newCrashing(t, s.Open(t), "second")
	h := second.suspect(ref, 1, 1)
	require.Greater(t, time.Since(began), first.lease/2, "taken over too early")
	second.release(h, 0) // it is still a suspect; nor did the attempt begin
	second.suspect(ref, 1, 1)
	require.NoError(t, second.Close(within(t)))
	second.stop()

	e := s.Open(t)
	third := newCrashing(t, e, "third")
	third.suspect(ref, 2, 2)
	third.stop()
	require.NoError(t, e.Close())
	require.Equal(t, 2, r.get(ref).Attempt)
	r.handle(kind, nil).start()
	info := r.awaitDead(ref)
	require.Contains(t, info.LastError, "its process died")
	require.Len(t, info.Errors, 1)
	require.Equal(t, 2, info.Errors[0].Attempt)
	require.Equal(t, 2, info.Attempt, "of 2")
	require.Empty(t, r.ran())
}

// suspect returns a job that a worker has claimed, not exactly, and died.
func suspect(t *testing.T, s Store) (*rig, durable.Ref) {
	r := open(t, s.Open(t))
	ref := r.add(durable.Job{Kind: kind})[0]
	a := newCrashing(t, s.Open(t), "dies")
	a.claim(a.take(ref), false)
	require.NoError(t, a.Close(within(t)))
	a.stop()
	return r, ref
}

// An attempt that ends clears its job, whether it is done or tried again.
func cleared(t *testing.T, s Store) {
	r, ref := suspect(t, s)
	b := newCrashing(t, s.Open(t), "fails")
	h := b.suspect(ref, 1, 1)
	require.NoError(t, b.Finish(within(t), []driver.Completion{{Delivery: h, End: driver.Retry, At: time.Now(), Error: "x"}})[0])
	h = b.take(ref)
	for h.Record.Attempt == 0 { // it is handed out once more as it was before
		require.NotEqual(t, driver.Granted, b.claim(h, false).Status)
		h = b.take(ref)
	}
	require.Equal(t, 0, h.Record.Crashes)
	require.Equal(t, 1, h.Record.Attempt)
	require.Equal(t, driver.ClaimResult{Status: driver.Granted, Attempt: 2}, b.claim(h, false))
	b.end(h, driver.Done)
	empty(t, r)
}

// A suspect that is moved is one still.
func suspectMoved(t *testing.T, s Store) {
	r, ref := suspect(t, s)
	b := newCrashing(t, s.Open(t), "moves")
	b.release(b.suspect(ref, 1, 1), 0)
	r.reschedule(ref, time.Now(), true)
	b.end(b.suspect(ref, 1, 1), driver.Done)
	empty(t, r)
}

// A claim whose answer was lost, here thrice, is no attempt: what this worker claims once more it has
// claimed once.
func claimAnswerLost(t *testing.T, s Store) {
	for _, most := range []int{1, 2} { // claimed exactly, and not
		var claims atomic.Int64
		r := open(t, guarded{Engine: s.Open(t), guard: func(method string, call func() error) error {
			err := call()
			if method == "Claim" && claims.Add(1) <= 3 {
				return errTest
			}
			return err
		}}).handle(kind, nil).start()
		r.awaitGone(r.add(durable.Job{Kind: kind, MaxAttempts: most})[0])
		require.Len(t, r.ran(), 1)
		require.Equal(t, 1, r.ran()[0].Number)
		require.Equal(t, int64(0), r.Stats().Dead)
		r.close()
	}
}

// killing is jobs that kill their process each time, among others.
type killing struct {
	innocents   int
	killers     int
	first       int           // the index of the first killer, in the order of their time; others follow by 50
	length      time.Duration // of an innocent
	after       time.Duration // so long after it has begun a killer kills
	concurrency int
	maxAttempts int
}

// run starts processes until all jobs have ended. No innocent may die, or begin more
// than a few times, and the killers have to be dead soon.
func (k killing) run(t testing.TB, s Store) {
	setUp := open(t, s.Open(t))
	jobs := spread(k.innocents+k.killers, 0, time.Millisecond)
	for i := range jobs {
		jobs[i].MaxAttempts = k.maxAttempts
	}
	for i := range k.killers {
		jobs[(k.first+50*i)%len(jobs)].Kind = "kills"
	}
	setUp.add(jobs...)
	kills, most := 0, 0   // most: the highest number of an innocent's attempt
	var finished sync.Map // the innocents whose handlers were not cut off by a kill
	left := func() (n int) {
		n = k.innocents
		finished.Range(func(any, any) bool { n--; return true })
		return n
	}
	for killed := true; killed; kills += count(killed) {
		require.LessOrEqual(t, kills, k.killers*k.maxAttempts+bits.Len(uint(k.innocents)))
		var r *rig
		r, killed = k.process(t, s, &finished, func() bool { return left() == 0 && k.alone(setUp) })
		eachOnce(t, 0, r)
		for _, run := range r.ran() {
			if run.Job.Kind == kind {
				most = max(most, run.Number)
			}
		}
	}
	t.Logf("%+v: %d kills, attempts of an innocent: at most %d", k, kills, most)
	require.LessOrEqual(t, most, min(4, k.maxAttempts))
	require.Zero(t, left())
}

// alone reports whether the killers are dead, and no other job is there. A Queue cannot say how many have ended,
// since one that is killed may miss an answer.
func (k killing) alone(r *rig) bool {
	time.Sleep(20 * time.Millisecond)
	there := r.matching(durable.Filter{})
	for _, info := range there {
		if info.State != durable.Dead {
			return false
		}
		require.Equal(r.t, "kills", info.Job.Kind)
		require.Equal(r.t, k.maxAttempts, info.Attempt)
	}
	return len(there) == k.killers
}

// process is one process, until it is killed or all is over.
func (k killing) process(t testing.TB, s Store, finished *sync.Map, over func() bool) (r *rig, killed bool) {
	e := newMortal(s.Open(t))
	lasts := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-e.life.Done():
			return false
		}
	}
	r = open(t, e, durable.WithConcurrency(k.concurrency)).
		handle(kind, func(_ context.Context, a *durable.Attempt) error {
			if lasts(k.length) {
				finished.Store(a.Ref, true)
			}
			return nil
		}).
		handle("kills", func(context.Context, *durable.Attempt) error { lasts(k.after); e.kill(); return nil }).start()
	await(t, "the process is killed, or all is over", func() bool { return e.life.Err() != nil || over() })
	if killed = e.life.Err() != nil; killed {
		<-r.done
	}
	r.drain()
	return r, killed
}

// A job that kills its process dies, and no other with it.
func killer(t *testing.T, s Store) {
	killing{innocents: 60, killers: 1, first: 3, length: 100 * time.Millisecond, after: 20 * time.Millisecond, concurrency: 32, maxAttempts: 3}.run(t, s)
}
