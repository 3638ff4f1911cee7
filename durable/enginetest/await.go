package enginetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
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

// Await returns when a job has ended, in the process that runs it and in another, and not before. It says
// how a job has ended that is kept.
func awaitEnd(t *testing.T, s Store) {
	r, other := open(t, s.Open(t), steady, backoff(300*time.Millisecond)), open(t, s.Open(t), steady)
	ctx, release := within(t), make(chan struct{})
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
		durable.Job{Kind: "dies", Payload: []byte("x")}, durable.Job{Kind: "runs"}, durable.Job{Kind: kind, After: time.Hour},
		durable.Job{Kind: kind, After: time.Hour}, durable.Job{Kind: kind, After: time.Hour, Key: "a"}, durable.Job{Kind: kind, After: soon})
	const dies, runs, canceled, earlier, replaced, later = 3, 4, 5, 6, 7, 8
	gots := map[*rig][]<-chan waited{}
	for _, q := range []*rig{r, other} {
		for _, ref := range refs {
			gots[q] = append(gots[q], q.waits(ctx, ref))
		}
	}
	hasEnded := func(i int) {
		for q, got := range gots {
			w := <-got[i]
			require.ErrorIs(t, w.err, durable.ErrEnded, "job %d, other: %v", i, q == other)
			require.ErrorIs(t, w.err, durable.ErrNotFound)
			require.Zero(t, w.info)
		}
	}
	waiting := func(i int) {
		for q, got := range gots {
			select {
			case w := <-got[i]:
				require.Failf(t, "has not ended", "job %d, other: %v: %v", i, q == other, w)
			default:
			}
		}
	}
	r.reschedule(refs[later], r.now().Add(24*time.Hour), true)
	r.start()
	hasEnded(0)
	hasEnded(1)
	require.Equal(t, 2, r.runsOf(refs[1]), "the first attempt was not the end")
	hasEnded(2)
	for _, q := range []*rig{r, other} {
		w := <-gots[q][dies]
		r.ok(w.err)
		require.Equal(t, durable.Dead, w.info.State)
		require.Equal(t, refs[dies], w.info.Ref)
		require.Contains(t, w.info.LastError, errTest.Error())
		require.Equal(t, "x", string(w.info.Job.Payload))
	}
	waiting(runs)
	close(release)
	hasEnded(runs)
	waiting(canceled)
	// One is changed by a process, and the other process awaits it; both are due in an hour.
	r.cancel(refs[canceled], true, "it waits")
	require.ErrorIs(t, (<-gots[r][canceled]).err, durable.ErrEnded)
	other.reschedule(refs[earlier], r.now(), true)
	next := r.add(durable.Job{Kind: kind, After: time.Hour, Key: "a", OnKey: durable.Replace})[0]
	for _, i := range []int{canceled, earlier, replaced} {
		for q, got := range gots {
			if i != canceled || q != r {
				require.ErrorIs(t, (<-got[i]).err, durable.ErrEnded, "job %d", i)
			}
		}
	}
	waiting(later)

	for i, ref := range refs[:later] { // they have ended before
		info, err := other.Await(ctx, ref)
		if i == dies {
			r.ok(err)
			require.Equal(t, durable.Dead, info.State)
			continue
		}
		require.ErrorIs(t, err, durable.ErrEnded)
	}
	short, cancel := context.WithCancelCause(ctx)
	got := other.waits(short, next)
	cancel(errTest)
	require.ErrorIs(t, (<-got).err, errTest)
	_, err := other.Await(short, refs[0])
	require.ErrorIs(t, err, errTest, "as for Add")
	for _, ref := range []durable.Ref{"", "x", "0.0.0.0.0", "../../etc", next + "x", next[:len(next)-1], "." + next} {
		_, err := other.Await(ctx, ref)
		require.ErrorIs(t, err, durable.ErrNotFound, "%q", ref)
		require.False(t, errors.Is(err, durable.ErrEnded), "%q", ref)
	}

	r.delete(refs[dies])
	_, err = other.Await(ctx, refs[dies])
	require.ErrorIs(t, err, durable.ErrEnded)
	r.schedule("often", "@every 1s", durable.Job{Kind: kind})
	var of []durable.Info
	for len(of) == 0 {
		for _, i := range r.matching(durable.Filter{}) {
			if i.Job.Key != "" && i.Ref != next {
				of = append(of, i)
			}
		}
	}
	_, err = other.Await(ctx, of[0].Ref)
	require.ErrorIs(t, err, durable.ErrEnded, "an occurrence ends though another follows")

	got = gots[other][later]
	r.ok(other.Close())
	require.ErrorIs(t, (<-got).err, durable.ErrClosed)
	_, err = other.Await(ctx, next)
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
	r.delete(refs[0])
	_, err := other.Await(within(t), refs[0])
	require.ErrorIs(t, err, durable.ErrEnded)
}
