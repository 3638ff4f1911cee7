package enginetest

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// awaitEnded waits until a job that is kept has ended in a state, checks what every such Info has, and that each listing
// has the job once.
func (r *rig) awaitEnded(ref durable.Ref, state durable.State) (info durable.Info) {
	r.t.Helper()
	await(r.t, "it has ended", func() bool { info = r.get(ref); return info.Ended() })
	require.Equal(r.t, state, info.State)
	require.WithinRange(r.t, info.End, info.Began, r.now().Add(apart(r)))
	n := 0
	for _, i := range r.matching(durable.Filter{State: state}) {
		if i.Ref == ref {
			n++
			require.Equal(r.t, info, i)
		}
	}
	require.Equal(r.t, 1, n, "it is in a scan once")
	require.Contains(r.t, r.listed(durable.Filter{State: state}, 3), ref)
	require.Contains(r.t, r.listed(durable.Filter{}, 3), ref)
	why, err := r.Why(within(r.t), ref)
	r.ok(err)
	if state == durable.Dead {
		require.Equal(r.t, durable.CauseDead, why.Cause)
		return info
	}
	require.Equal(r.t, durable.CauseEnded, why.Cause)
	require.Contains(r.t, why.Text, state.String()+" at ")
	ok, err := r.Cancel(within(r.t), ref)
	r.ok(err)
	require.False(r.t, ok)
	ok, err = r.Reschedule(within(r.t), ref, r.now())
	r.ok(err)
	require.False(r.t, ok)
	require.ErrorIs(r.t, r.Redrive(within(r.t), ref), durable.ErrNotFound, "it is not dead")
	return info
}

// A job with a Retain is kept after its end, with the errors of its attempts, and is gone when that time has ended. A job without a Retain is gone at its end.
func retain(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady, durable.WithBackoff(func(int) time.Duration { return 0 }))
	r.handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 && string(a.Job.Payload) == "p" || string(a.Job.Payload) == "dies" {
			return errTest
		}
		return nil
	}).start()
	added := r.now()
	job := durable.Job{Kind: kind, Payload: []byte("p"), Lane: "l", Meta: map[string]string{"a": "b"}, Retain: time.Hour}
	with := job
	with.RetainPayload = true
	refs := r.add(job, with, durable.Job{Kind: kind, Payload: []byte("dies"), MaxAttempts: 2, Retain: time.Hour}, durable.Job{Kind: kind})
	for i, payload := range []string{"", "p"} {
		info := r.awaitEnded(refs[i], durable.Done)
		require.Equal(t, payload, string(info.Job.Payload))
		require.Equal(t, time.Hour, info.Job.Retain)
		require.Equal(t, map[string]string{"a": "b"}, info.Job.Meta)
		require.Equal(t, 2, info.Attempt)
		require.Equal(t, errTest.Error(), info.LastError)
		require.Len(t, info.Errors, 1)
		require.NotEmpty(t, info.Worker)
		require.False(t, info.Began.Before(added.Add(-apart(r))))
	}
	dead := r.awaitEnded(refs[2], durable.Dead)
	require.Equal(t, "dies", string(dead.Job.Payload), "which Redrive needs")
	require.Len(t, dead.Errors, 2)
	r.ok(r.Redrive(within(t), refs[2]))
	await(t, "it has died once more", func() bool { i := r.get(refs[2]); return i.Ended() && i.End.After(dead.End) })
	r.awaitGone(refs[3])
	require.Len(t, r.matching(durable.Filter{Lane: "l", State: durable.Done}), 2)
	r.ok(r.Delete(within(t), refs[1]))
	require.ErrorIs(t, r.Delete(within(t), refs[1]), durable.ErrNotFound)

	short := r.add(durable.Job{Kind: kind, Retain: time.Second})
	r.awaitGone(short...)
	require.Empty(t, r.matching(durable.Filter{State: durable.Canceled}))
	for _, j := range []durable.Job{{Retain: -1}, {Retain: 200 * 365 * 24 * time.Hour}, {RetainPayload: true}} {
		j.Kind = kind
		_, err := r.Add(within(t), j)
		require.ErrorIs(t, err, durable.ErrInvalid)
	}
}

// A job that is canceled is kept as such, whether it waits or runs.
func retainCancel(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady)
	begun := make(chan bool, 1)
	r.handle("runs", func(ctx context.Context, _ *durable.Attempt) error {
		begun <- true
		<-ctx.Done()
		return ctx.Err()
	}).start()
	refs := r.add(durable.Job{Kind: kind, After: time.Hour, Retain: time.Hour, Key: "k"}, durable.Job{Kind: kind, After: 40 * 24 * time.Hour, Retain: time.Hour, Payload: []byte("p"), RetainPayload: true},
		durable.Job{Kind: "runs", Retain: time.Hour})
	for i, payload := range []string{"", "p"} {
		ok, err := r.Cancel(within(t), refs[i])
		r.ok(err)
		require.True(t, ok)
		info := r.awaitEnded(refs[i], durable.Canceled)
		require.Zero(t, info.Began)
		require.Empty(t, info.Worker)
		require.Zero(t, info.Attempt)
		require.Equal(t, payload, string(info.Job.Payload))
	}
	r.add(durable.Job{Kind: kind, After: time.Hour, Key: "k"})
	<-begun
	_, err := r.CancelRunning(within(t), refs[2])
	r.ok(err)
	info := r.awaitEnded(refs[2], durable.Canceled)
	require.NotZero(t, info.Began)
	require.NotEmpty(t, info.Worker)
}

// The end frees the key, whatever is kept.
func retainKey(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady).handle(kind, nil).start()
	job := durable.Job{Kind: kind, Key: "k", Retain: time.Hour, Signals: true}
	first := r.add(job)[0]
	r.awaitEnded(first, durable.Done)
	_, err := r.Lookup(within(t), "k")
	require.ErrorIs(t, err, durable.ErrNotFound)
	ok, err := r.Signal(within(t), "k", nil)
	r.ok(err)
	require.False(t, ok)
	job.OnKey, job.Found = durable.Replace, new(durable.Ref)
	second := r.add(job)[0]
	require.NotEqual(t, first, second)
	require.Empty(t, *job.Found)
	r.awaitEnded(second, durable.Done)
	r.awaitEnded(first, durable.Done)

	job.OnKey, job.Found, job.After = durable.Replace, nil, time.Hour
	replaced := r.add(job)[0]
	r.add(job)
	r.awaitGone(replaced)
}

// Each occurrence of a schedule has the Retain of its job.
func retainSchedule(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady).handle(kind, nil).start()
	r.schedule("s", "@every 1s", durable.Job{Kind: kind, Retain: time.Hour, RetainPayload: true, Payload: []byte("p")})
	var all []durable.Info
	await(t, "two are kept", func() bool { all = r.matching(durable.Filter{State: durable.Done}); return len(all) >= 2 })
	require.Equal(t, "p", string(all[0].Job.Payload))
	require.Equal(t, time.Hour, all[1].Job.Retain)

	for range 3 { // each change replaces the occurrence that waits
		r.schedule("s", "@every 2h", durable.Job{Kind: kind, Retain: time.Hour})
		r.schedule("s", "@every 1h", durable.Job{Kind: kind, Retain: time.Hour})
	}
	r.ok(r.DeleteSchedule(within(t), "s"))
	require.Empty(t, r.matching(durable.Filter{State: durable.Canceled}), "what a change replaces leaves nothing")

	r.schedule("later", "@every 1h", durable.Job{Kind: kind, Retain: time.Hour})
	ref := r.lookup(driver.OccurrenceKey("later")).Ref
	r.cancel(ref, true, "it waits")
	r.awaitEnded(ref, durable.Canceled)
}

// The record of the end and the end of the claim are one commit: an end that is late, or is repeated after another worker has ended the job, records nothing.
func retainAtomic(t *testing.T, s Store) {
	r, e := open(t, s.Open(t)), s.Open(t)
	a := newCrashing(t, e, "a")
	ref := r.add(durable.Job{Kind: kind, Retain: time.Hour})[0]
	h := a.take(ref)
	require.Equal(t, driver.Granted, a.claim(h, true).Status)
	a.stop()
	b := newCrashing(t, s.Open(t), "b").beating()
	h2 := b.take(ref)
	for v := b.claim(h2, true); v.Status != driver.Granted; v = b.claim(h2, true) {
		breathe()
	}
	late := driver.DoneWith(h, r.now())
	require.ErrorIs(t, a.Finish(within(t), []driver.Completion{late})[0], driver.ErrLeaseLost)
	require.False(t, r.get(ref).Ended(), "a late end has recorded nothing")
	for range 2 {
		errs := b.Finish(within(t), []driver.Completion{driver.DoneWith(h2, r.now())})
		if errs[0] != nil {
			require.ErrorIs(t, errs[0], driver.ErrLeaseLost)
		}
	}
	require.Equal(t, "b", r.awaitEnded(ref, durable.Done).Worker)
}

// A job whose Retain has ended is in no listing, and no call finds it, not even the first one after that.
func retainOver(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady, durable.WithRetention(time.Second)).handle(kind, nil).handle("dies", fails(durable.Discard(errTest))).start()
	over := func(n int64) {
		await(t, "they have ended", func() bool { return r.Stats().Done+r.Stats().Dead == n })
		time.Sleep(1500 * time.Millisecond) // a server may count in seconds
		r.awaitGone(r.add(durable.Job{Kind: kind, Retain: time.Second, After: time.Second})[0])
	}
	short := []durable.Job{{Kind: kind, Retain: time.Second}, {Kind: "dies", Retain: time.Second}, {Kind: kind, Retain: time.Microsecond}}
	r.add(short...)
	over(3)
	require.Empty(t, r.matching(durable.Filter{}))
	r.add(short...)
	over(7)
	require.Empty(t, r.listed(durable.Filter{}, 3))
	refs := r.add(short...)
	over(11)
	for _, ref := range refs {
		r.cancel(ref, false, "it has ended")
		require.ErrorIs(t, r.Redrive(within(t), ref), durable.ErrNotFound)
		require.ErrorIs(t, r.Delete(within(t), ref), durable.ErrNotFound)
		_, err := r.Await(within(t), ref)
		require.ErrorIs(t, err, durable.ErrEnded)
		_, err = r.Why(within(t), ref)
		require.ErrorIs(t, err, durable.ErrNotFound)
	}
}

// A job that goes into one which is due has its own Retain from then on, also if it is canceled.
func retainFilled(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady)
	keeps := durable.Job{Kind: kind, Retain: time.Hour, OnKey: durable.Replace}
	leaves := durable.Job{Kind: kind, OnKey: durable.Replace}
	for key, jobs := range map[string][2]durable.Job{"keeps": {leaves, keeps}, "leaves": {keeps, leaves}} {
		jobs[0].Key, jobs[1].Key = key, key
		ref := r.add(jobs[0])[0]
		require.Equal(t, ref, r.add(jobs[1])[0])
		r.cancel(ref, true, "it waits")
		if key == "leaves" {
			r.isGone(ref)
			continue
		}
		require.Equal(t, durable.Canceled, r.get(ref).State)
	}
}

// A job with a Retain that is dead waits again after Redrive, with nothing of its end, and is kept once after the next.
func retainRedriven(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady)
	var fine atomic.Bool
	r.handle(kind, func(context.Context, *durable.Attempt) error {
		if fine.Load() {
			return nil
		}
		return durable.Discard(errTest)
	}).start()
	ref := r.add(durable.Job{Kind: kind, Key: "k", Retain: time.Hour, Payload: []byte("p")})[0]
	r.awaitEnded(ref, durable.Dead)
	fine.Store(true)
	r.pause(durable.Pausable{Kind: kind})
	r.redrive(ref)
	info := r.get(ref)
	require.Equal(t, durable.Waiting, info.State)
	require.Zero(t, info.Began)
	require.Zero(t, info.End)
	require.Equal(t, "p", string(info.Job.Payload))
	require.Equal(t, ref, r.lookup("k").Ref)
	r.resume(durable.Pausable{Kind: kind})
	w := <-r.waits(within(t), ref)
	r.ok(w.err)
	require.Equal(t, durable.Done, w.info.State)
	r.awaitEnded(ref, durable.Done)
	require.Empty(t, r.matching(durable.Filter{State: durable.Dead}))
	ok, err := r.CancelRunning(within(t), ref)
	r.ok(err)
	require.False(t, ok)
	r.cancelKey("k", false)
}

// A job whose worker died, and that a newer one of its key has superseded since, is kept as done, with the attempt that has begun.
func retainTakenOver(t *testing.T, s Store) {
	r, e := open(t, s.Open(t)).handle(kind, nil), s.Open(t)
	w := newCrashing(t, e, "dies")
	job := durable.Job{Kind: kind, Key: "k", FreeWhenBegun: true, Retain: time.Hour}
	one := r.add(job)[0]
	w.granted(w.take(one))
	w.stop()
	two := r.add(job)[0]
	r.start()
	r.awaitEnded(two, durable.Done)
	r.ok(w.Close(within(t)))
	r.ok(e.Close())
	info := r.awaitEnded(one, durable.Done)
	require.Zero(t, info.Began, "here, by the worker that ended it")
	require.Equal(t, 1, info.Attempt)
}

// A job that a newer one of its key supersedes after it has failed is kept as done, with its errors.
func retainSuperseded(t *testing.T, s Store) {
	r := open(t, s.Open(t), steady, backoff(time.Millisecond))
	release := make(chan error)
	r.handle("older", answers(release)).handle(kind, nil).start()
	job := durable.Job{Kind: "older", Key: "k", FreeWhenBegun: true, Retain: time.Hour}
	older := r.add(job)[0]
	r.awaitRuns(1)
	job.Kind = kind
	r.awaitEnded(r.add(job)[0], durable.Done)
	release <- errTest
	info := r.awaitEnded(older, durable.Done)
	require.NotZero(t, info.Began)
	require.Equal(t, 1, info.Attempt)
	require.Len(t, info.Errors, 1)
	require.Equal(t, "k", info.Job.Key)
}

// However calls of many processes change jobs with a Retain, each has one end, which all calls of Await tell of.
func retainChanged(t *testing.T, s Store) {
	const n = 40
	h := func(ctx context.Context, _ *durable.Attempt) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(60 * time.Millisecond)):
		}
		return []error{nil, errTest, durable.Discard(errTest), durable.Snooze(10 * time.Millisecond)}[rand.IntN(4)]
	}
	a, b := open(t, s.Open(t), steady, backoff(50*time.Millisecond)).handle(kind, h).start(), open(t, s.Open(t), steady, backoff(50*time.Millisecond)).handle(kind, h).start()
	jobs := spread(n, 0, 20*time.Millisecond)
	for i := range jobs {
		jobs[i].Retain, jobs[i].MaxAttempts = time.Hour, 3
	}
	refs := a.add(jobs...)
	var canceled [n]atomic.Int64
	gots := map[*rig][]<-chan waited{}
	for _, ref := range refs {
		gots[a], gots[b] = append(gots[a], a.waits(within(t), ref)), append(gots[b], b.waits(within(t), ref))
	}
	atOnce(4, func(k int) {
		r := []*rig{a, b}[k%2]
		for range 2 * n {
			i := rand.IntN(n)
			var ok bool
			var err error
			switch rand.IntN(4) {
			case 0:
				if ok, err = r.Cancel(within(t), refs[i]); ok {
					canceled[i].Add(1)
				}
			case 1:
				_, err = r.CancelRunning(within(t), refs[i])
			default:
				_, err = r.Reschedule(within(t), refs[i], r.now().Add(rand.N(300*time.Millisecond)))
			}
			assert.NoError(t, err)
		}
	})
	for r, got := range gots {
		for i, ref := range refs {
			w := <-got[i]
			r.ok(w.err)
			require.Equal(t, r.get(ref), w.info)
			if canceled[i].Load() > 0 {
				require.Equal(t, durable.Canceled, w.info.State)
			}
			require.LessOrEqual(t, canceled[i].Load(), int64(1))
		}
	}
	require.ElementsMatch(t, refs, a.listed(durable.Filter{}, 7))
	require.Len(t, a.matching(durable.Filter{}), n)
}
