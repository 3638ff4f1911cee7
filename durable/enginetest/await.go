package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// waited is what a call of Await has returned.
type waited struct {
	info durable.Info
	err  error
}

// waits calls Await on a goroutine of its own.
func (c *calls) waits(ctx context.Context, ref durable.Ref) <-chan waited {
	got := make(chan waited, 1)
	go func() {
		info, err := c.Await(ctx, ref)
		got <- waited{info, err}
	}()
	return got
}

// awaiting has calls of Await for the same jobs, in some processes.
type awaiting struct {
	t    *testing.T
	gots map[*rig][]<-chan waited
}

func awaitIn(ctx context.Context, t *testing.T, refs []durable.Ref, in ...*rig) *awaiting {
	a := &awaiting{t, map[*rig][]<-chan waited{}}
	for _, q := range in {
		for _, ref := range refs {
			a.gots[q] = append(a.gots[q], q.waits(ctx, ref))
		}
	}
	return a
}

// hasEnded checks that all calls for job i return, and that it is not kept.
func (a *awaiting) hasEnded(i int) {
	for _, got := range a.gots {
		w := <-got[i]
		require.ErrorIs(a.t, w.err, durable.ErrEnded, "job %d", i)
		require.ErrorIs(a.t, w.err, durable.ErrNotFound)
		require.Zero(a.t, w.info)
	}
}

// waiting checks that no call for job i has returned.
func (a *awaiting) waiting(i int) {
	for _, got := range a.gots {
		select {
		case w := <-got[i]:
			require.Failf(a.t, "has not ended", "job %d: %v", i, w)
		default:
		}
	}
}

// Await returns when a job has ended, in the process that runs it and in another, and not before. It says
// how a job has ended that is kept.
func awaitEnd(t *testing.T, s Store) {
	r, other := open(t, s.Open(t), steady, backoff(300*time.Millisecond)), open(t, s.Open(t), steady)
	release := make(chan struct{})
	r.handle(kind, nil).handle("dies", fails(durable.Discard(errTest)))
	r.handle("fails once", func(_ context.Context, a *durable.Attempt) error {
		if a.Number == 1 {
			return errTest
		}
		return nil
	})
	r.handle("runs", func(context.Context, *durable.Attempt) error { <-release; return nil })
	soon := 2 * time.Second
	refs := r.add(durable.Job{Kind: kind}, durable.Job{Kind: "fails once"}, durable.Job{Kind: kind, After: soon},
		durable.Job{Kind: "dies", Payload: []byte("x")}, durable.Job{Kind: "runs"}, durable.Job{Kind: kind, After: soon})
	const dies, runs, later = 3, 4, 5
	a := awaitIn(within(t), t, refs, r, other)
	r.reschedule(refs[later], r.now().Add(24*time.Hour), true)
	r.start()
	a.hasEnded(0)
	a.hasEnded(1)
	require.Equal(t, 2, r.runsOf(refs[1]), "the first attempt was not the end")
	a.hasEnded(2)
	for _, got := range a.gots {
		w := <-got[dies]
		r.ok(w.err)
		require.Equal(t, durable.Dead, w.info.State)
		require.Equal(t, refs[dies], w.info.Ref)
		require.Contains(t, w.info.LastError, errTest.Error())
		require.Equal(t, "x", string(w.info.Job.Payload))
	}
	a.waiting(runs)
	close(release)
	a.hasEnded(runs)
	a.waiting(later)
}

// awaitedSoon is how far ahead a job is due that another process changes: a Queue reads then how far it is. If the change comes
// too late, it is tried again with twice as long.
const awaitedSoon = 2 * time.Second

// Await returns when a process changes a job so that it ends, in that process and in another.
func awaitChanged(t *testing.T, s Store) {
	r, other := open(t, s.Open(t), steady).handle(kind, nil).start(), open(t, s.Open(t), steady)
	inTime := false
	for ahead := awaitedSoon; !inTime; ahead *= 2 {
		plain := durable.Job{Kind: "nobody's", After: ahead}
		keyed := durable.Job{Kind: "nobody's", After: ahead, Key: "a", OnKey: durable.Replace}
		refs := r.add(plain, durable.Job{Kind: kind, After: time.Hour}, keyed)
		a := awaitIn(within(t), t, refs, r, other)
		r.cancel(refs[0], true, "it waits")
		other.reschedule(refs[1], r.now(), true)
		last := r.add(keyed)[0]
		inTime = last != refs[2] // a due job stays, with what is added
		r.cancel(last, true, "it waits")
		for i := range refs {
			a.hasEnded(i)
		}
	}
}

// Await returns for a job that has ended before, ends with its context and its Queue, and refuses a text that is no Ref.
func awaitEdges(t *testing.T, s Store) {
	r, other := open(t, s.Open(t), steady), open(t, s.Open(t), steady)
	r.handle(kind, nil).handle("dies", fails(durable.Discard(errTest))).start()
	ctx := within(t)
	refs := r.add(durable.Job{Kind: kind}, durable.Job{Kind: "dies"}, durable.Job{Kind: kind, After: time.Hour})
	done, dead, waits := refs[0], refs[1], refs[2]
	for range 2 { // the second time they have ended before
		_, err := other.Await(ctx, done)
		require.ErrorIs(t, err, durable.ErrEnded)
		info, err := other.Await(ctx, dead)
		r.ok(err)
		require.Equal(t, durable.Dead, info.State)
	}
	r.delete(dead)
	_, err := other.Await(ctx, dead)
	require.ErrorIs(t, err, durable.ErrEnded)

	short, cancel := context.WithCancelCause(ctx)
	got := other.waits(short, waits)
	cancel(errTest)
	require.ErrorIs(t, (<-got).err, errTest)
	_, err = other.Await(short, done)
	require.ErrorIs(t, err, errTest, "as for Add")
	for _, ref := range []durable.Ref{"", "x", "0.0.0.0.0", "../../etc", waits + "x", waits[:len(waits)-1], "." + waits} {
		_, err := other.Await(ctx, ref)
		require.ErrorIs(t, err, durable.ErrNotFound, "%q", ref)
		require.False(t, errors.Is(err, durable.ErrEnded), "%q", ref)
	}

	r.schedule("often", "@every 1s", durable.Job{Kind: kind})
	_, err = other.Await(ctx, r.lookup("every/often").Ref)
	require.ErrorIs(t, err, durable.ErrEnded, "an occurrence ends though another follows")

	got = other.waits(ctx, waits)
	r.ok(other.Close())
	require.ErrorIs(t, (<-got).err, durable.ErrClosed)
	_, err = other.Await(ctx, waits)
	require.ErrorIs(t, err, durable.ErrClosed)
}

// runsOf returns how many attempts of a job have begun.
func (h *history) runsOf(ref durable.Ref) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, run := range h.runs {
		if run.Ref == ref {
			n++
		}
	}
	return n
}

// Await says how a job has ended that Retain keeps, in any process, also after the end.
func awaitRetained(t *testing.T, s Store) {
	r, other := open(t, s.Open(t), steady), open(t, s.Open(t), steady)
	r.handle(kind, nil).handle("dies", fails(durable.Discard(errTest)))
	refs := r.add(durable.Job{Kind: kind, Retain: time.Hour}, durable.Job{Kind: "dies", Retain: time.Hour},
		durable.Job{Kind: kind, Retain: time.Hour, After: time.Hour})
	first := other.waits(within(t), refs[0])
	r.cancel(refs[2], true, "it waits")
	r.start()
	w := <-first
	r.ok(w.err)
	require.Equal(t, durable.Done, w.info.State)
	require.False(t, w.info.End.IsZero())
	for _, q := range []*rig{r, other} {
		for i, want := range []durable.State{durable.Done, durable.Dead, durable.Canceled} {
			require.Equal(t, want, q.info(q.Await(within(t), refs[i])).State)
		}
	}
	progress, errs := r.engine.Progress(within(t), refs)
	for i, p := range progress {
		r.ok(errs[i])
		require.True(t, p.State.Ended(), "%v", p.State)
	}
	r.delete(refs[0])
	_, err := other.Await(within(t), refs[0])
	require.ErrorIs(t, err, durable.ErrEnded)
}

// Await tells of each other end: of a job that expires, and of an occurrence that is canceled, or that a change of its schedule
// removes or replaces.
func awaitOtherEnds(t *testing.T, s Store) {
	r, other := open(t, s.Open(t), steady).handle(kind, nil), open(t, s.Open(t), steady)
	occurrence := func(name string, ahead time.Duration) durable.Ref {
		r.schedule(name, "@every 2h", durable.Job{Kind: kind, Retain: time.Hour}, durable.StartAt(r.now().Add(ahead)))
		return r.lookup(driver.OccurrenceKey(name)).Ref
	}
	expired, expires := r.addExpiring(time.Second, durable.Job{Kind: kind, Retain: time.Hour})
	removed := awaitIn(within(t), t, []durable.Ref{occurrence("deleted", awaitedSoon), occurrence("paused", awaitedSoon)}, r, other)
	canceled := occurrence("canceled", awaitedSoon)
	kept, dies := other.waits(within(t), canceled), other.waits(within(t), expired[0])
	r.ok(r.DeleteSchedule(within(t), "deleted"))
	r.ok(r.PauseSchedule(within(t), "paused"))
	r.cancel(canceled, true, "it waits")
	inTime := false
	for ahead := awaitedSoon; !inTime; ahead *= 2 {
		name := "edited " + ahead.String()
		ref := occurrence(name, ahead)
		replaced := awaitIn(within(t), t, []durable.Ref{ref}, r, other)
		r.schedule(name, "@every 3h", durable.Job{Kind: kind, Retain: time.Hour})
		inTime = r.lookup(driver.OccurrenceKey(name)).Ref != ref // a due occurrence stays
		r.ok(r.DeleteSchedule(within(t), name))
		replaced.hasEnded(0)
	}
	removed.hasEnded(0)
	removed.hasEnded(1)
	w := <-kept
	r.ok(w.err)
	require.Equal(t, durable.Canceled, w.info.State)
	await(t, "it has expired", func() bool { return r.now().After(expires) })
	r.start()
	w = <-dies
	r.ok(w.err)
	require.Equal(t, durable.Dead, w.info.State)
	require.Equal(t, durable.ErrExpired.Error(), w.info.LastError)
	require.Zero(t, w.info.Began)
	require.NotZero(t, w.info.End)
}
