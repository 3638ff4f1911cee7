package enginetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
)

// A limit whose tokens come slowly, and are all gone, has them come at the new rate from when it
// is raised, and not when those of the old one would have been there.
func limitRaised(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	r.limit("l", durable.Limit{Kind: kind, Rate: 1.0 / 3600, Burst: 10})
	r.start()
	r.add(slices.Repeat([]durable.Job{{Kind: kind}}, 15)...)
	await(t, "the burst is used up", func() bool { return len(r.ran()) == 10 && r.Stats().Limited == 5 })
	r.limit("l", durable.Limit{Kind: kind, Rate: 100, Burst: 1})
	r.awaitRuns(15)
}

// A dead worker's place is free after its lease, though nobody else has a handler for the kind
// of its job, or that is paused: others under the same limit do not wait for that.
func limitOrphan(t *testing.T, s Store) {
	m := newMortal(s.Open(t))
	block := func(ctx context.Context, _ *durable.Attempt) error { <-ctx.Done(); return ctx.Err() }
	dead := open(t, m).handle("alone", block).handle("paused", block)
	dead.limit("two", durable.Limit{Running: 2})
	dead.start()
	refs := dead.add(durable.Job{Kind: "alone"}, durable.Job{Kind: "paused"})
	dead.awaitRuns(2)
	dead.stop() // so that Run may fail
	m.kill()
	e := s.Open(t)
	r := open(t, e).handle(kind, nil).handle("paused", nil)
	require.NoError(t, r.Pause(within(t), durable.Pausable{Kind: "paused"}))
	r.start()
	r.add(slices.Repeat([]durable.Job{{Kind: kind}}, 4)...)
	r.awaitRuns(4)
	require.NoError(t, r.Resume(within(t), durable.Pausable{Kind: "paused"}))
	r.awaitGone(refs[1])
	r2 := open(t, s.Open(t)).handle("alone", nil).start()
	r2.awaitGone(refs[0])
	await(t, "no place is taken", func() bool { return taken(t, e) == 0 })
}

// asker counts the claims that are asked.
type asker struct {
	durable.Engine
	asked *atomic.Int64
}

type askingWorker struct {
	durable.Worker
	asked *atomic.Int64
}

func (a asker) Work(ctx context.Context, c durable.WorkConfig) (durable.Worker, error) {
	w, err := a.Engine.Work(ctx, c)
	return askingWorker{w, a.asked}, err
}

func (w askingWorker) Claim(ctx context.Context, held []*durable.Held) []durable.Verdict {
	w.asked.Add(int64(len(held)))
	return w.Worker.Claim(ctx, held)
}

// A job that waits for a token, alone in its lane, waits for the time of that, and does not ask
// again and again.
func limitAlone(t *testing.T, s Store) {
	var asked atomic.Int64
	r := open(t, asker{s.Open(t), &asked}).handle(kind, nil)
	r.limit("l", durable.Limit{Kind: kind, PerLane: true, Rate: 1.0 / 3600, Burst: 1})
	r.start()
	r.awaitGone(r.add(durable.Job{Kind: kind, Lane: "l"})[0])
	r.add(durable.Job{Kind: kind, Lane: "l"})
	await(t, "it waits", func() bool { return r.Stats().Limited == 1 })
	before := asked.Load()
	time.Sleep(4 * time.Second)
	require.LessOrEqual(t, asked.Load()-before, int64(2))
	require.Equal(t, int64(1), r.Stats().Limited, "it is counted as one that waits for a limit")
}

// What waits when Pause returns is not claimed after that: also not by a call that was under
// way, and where another Pause has stored it that has not returned yet.
func pausedTwice(t *testing.T, s Store) {
	a, b := open(t, s.Open(t)), open(t, s.Open(t))
	e := s.Open(t)
	w := newCrashing(t, e, "w")
	what := durable.Pausable{Kind: kind}
	for range 15 {
		refs := a.add(slices.Repeat([]durable.Job{{Kind: kind}}, 20)...)
		var mu sync.Mutex
		var mine []durable.Outcome
		waits := map[durable.Ref]bool{} // when one has returned
		var all sync.WaitGroup
		for _, h := range w.takeAll(refs) {
			all.Go(func() {
				if w.Claim(within(t), []*durable.Held{h})[0].Claimed == durable.Mine {
					mu.Lock()
					defer mu.Unlock()
					mine = append(mine, durable.Outcome{Held: h, End: durable.Done})
				}
			})
		}
		for _, r := range []*rig{a, b} {
			all.Go(func() {
				assert.NoError(t, r.Pause(within(t), what))
				for _, ref := range refs {
					info, err := r.Get(within(t), ref)
					assert.NoError(t, err)
					mu.Lock()
					waits[ref] = waits[ref] || info.State == durable.Waiting
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for _, out := range mine {
			require.False(t, waits[out.Held.Ref], "it was claimed after a Pause had returned")
		}
		require.NoError(t, errors.Join(w.Finish(within(t), mine)...))
		_, errs := e.Cancel(within(t), refs)
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, a.Resume(within(t), what))
	}
}
