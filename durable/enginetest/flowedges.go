package enginetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// A limit whose tokens come slowly, and are all gone, has them come at the new rate from when it
// is raised, and not when those of the old one would have been there.
func limitRaised(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil)
	r.limit("l", durable.Limit{Kind: kind, Rate: 1.0 / 3600, Burst: 10})
	r.start()
	r.add(times(15, durable.Job{Kind: kind})...)
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
	r.add(times(4, durable.Job{Kind: kind})...)
	r.awaitRuns(4)
	require.NoError(t, r.Resume(within(t), durable.Pausable{Kind: "paused"}))
	r.awaitGone(refs[1])
	r2 := open(t, s.Open(t)).handle("alone", nil).start()
	r2.awaitGone(refs[0])
	await(t, "no place is taken", func() bool { return taken(t, e) == 0 })
}

// askingWorker counts the claims that it asks for.
type askingWorker struct {
	driver.Worker
	asked *atomic.Int64
}

func (w askingWorker) Claim(ctx context.Context, held []*driver.Delivery) []driver.ClaimResult {
	w.asked.Add(int64(len(held)))
	return w.Worker.Claim(ctx, held)
}

// A job that waits for a token, alone in its lane, waits for the time of that, and does not ask
// again and again.
func limitAlone(t *testing.T, s Store) {
	var asked atomic.Int64
	r := open(t, wrapped{s.Open(t), func(w driver.Worker) driver.Worker { return askingWorker{w, &asked} }}).handle(kind, nil)
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

// A job that waits when Pause returns is not claimed after that: also not by a call that was under
// way, and where another Pause has stored it that has not returned yet.
func pausedTwice(t *testing.T, s Store) {
	a, b := open(t, s.Open(t)), open(t, s.Open(t))
	e := s.Open(t)
	w := newCrashing(t, e, "w")
	what := durable.Pausable{Kind: kind}
	for range 15 {
		refs := a.add(times(20, durable.Job{Kind: kind})...)
		var mu sync.Mutex
		var mine []driver.Completion
		waits := map[durable.Ref]bool{} // when one has returned
		var all sync.WaitGroup
		for _, h := range w.takeAll(refs) {
			all.Go(func() {
				if w.Claim(within(t), []*driver.Delivery{h})[0].Status == driver.Granted {
					mu.Lock()
					defer mu.Unlock()
					mine = append(mine, driver.Completion{Delivery: h, End: driver.Done})
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
			require.False(t, waits[out.Delivery.Ref], "it was claimed after a Pause had returned")
		}
		require.NoError(t, errors.Join(w.Finish(within(t), mine)...))
		_, errs := e.Cancel(within(t), refs)
		require.NoError(t, errors.Join(errs...))
		require.NoError(t, a.Resume(within(t), what))
	}
}

// Lanes take turns, however early the jobs of one are due, and those of a lane begin in the
// order in which they are.
func lanesInOrder(t *testing.T, s Store) {
	const lanes, each = 4, 5
	e := s.Open(t)
	release := make(chan struct{})
	r := open(t, e).handle(kind, waits(release))
	r.limit("one", durable.Limit{Kind: kind, Running: 1})
	r.start()
	r.add(durable.Job{Kind: kind})
	r.awaitRuns(1) // has the place until all others wait
	var jobs []durable.Job
	now := engineNow(t, e)
	for i := range lanes * each { // all of the first lane are due before the second
		at := now.Add(time.Second + time.Duration(i)*10*time.Millisecond)
		jobs = append(jobs, durable.Job{Kind: kind, Lane: fmt.Sprint("lane", i/each), At: at})
	}
	rand.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
	r.add(jobs...)
	await(t, "all wait", func() bool { return r.Stats().Limited == lanes*each })
	close(release)
	runs := r.awaitRuns(1 + lanes*each)[1:]
	last := map[string]time.Time{}
	for i := 0; i < len(runs); i += lanes {
		turn := map[string]bool{}
		for _, one := range runs[i : i+lanes] {
			turn[one.Job.Lane] = true
			require.Less(t, last[one.Job.Lane], one.Due, "within the lane, at %d", i)
			last[one.Job.Lane] = one.Due
		}
		require.Len(t, turn, lanes, "lanes in turn %d", i/lanes)
	}
}

// A permit of a worker that is slow to give it back is free after its lease, and not before. The
// worker gives no permit back that another job has by then. A worker that renews its lease keeps its
// permit.
func limitSlowReturn(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e)
	r.limit("one", durable.Limit{Kind: kind, Running: 1})
	began := time.Now() // of its lease, at the earliest
	slow := newCrashing(t, s.Open(t), "slow")
	first := slow.take(r.add(durable.Job{Kind: kind})[0])
	require.Equal(t, driver.Granted, claimPatiently(t, slow, exact(first)[0]).Status)
	slow.stop()
	lives := newCrashing(t, s.Open(t), "lives").beating()
	second := lives.take(r.add(durable.Job{Kind: kind})[0])
	await(t, "the place is free", func() bool { return claimPatiently(t, lives, exact(second)[0]).Status == driver.Granted })
	lives.stop()
	require.GreaterOrEqual(t, time.Since(began), lease-lease/20, "it was free before the lease was over")
	require.Equal(t, 1, taken(t, e))

	await(t, "the slow one hears what became of its end", func() bool {
		err := slow.Finish(within(t), []driver.Completion{{Delivery: first, End: driver.Done}})[0]
		return err == nil || errors.Is(err, durable.ErrLeaseLost)
	})
	require.Equal(t, 1, taken(t, e), "the place is another's")
	waits := newCrashing(t, s.Open(t), "waits").beating()
	third := waits.take(r.add(durable.Job{Kind: kind})[0])
	for end := time.Now().Add(lease + lease/2); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		v := claimPatiently(t, waits, exact(third)[0])
		if v.Status == driver.Granted && (lives.late.Load() || errors.Is(lives.Heartbeat(within(t)), durable.ErrLeaseLost)) {
			return // the machine is too busy for the lease
		}
		require.Equal(t, driver.Throttled, v.Status, "who has the place lives")
	}
	finishPatiently(t, lives, driver.Completion{Delivery: second, End: driver.Done})
	await(t, "the place is free", func() bool { return claimPatiently(t, waits, third).Status == driver.Granted })
	require.Equal(t, 1, taken(t, e))
}

// A claim that took a token ahead of its time, and whose answer was lost, does not begin sooner
// for that.
func limitRateAnswerLost(t *testing.T, s Store) {
	e := s.Open(t)
	r := open(t, e)
	const gap = 200 * time.Millisecond
	r.limit("rate", durable.Limit{Kind: kind, Rate: float64(time.Second) / float64(gap), Burst: 1})
	w := newCrashing(t, e, "w")
	refs := r.add(times(20, durable.Job{Kind: kind})...)
	ahead := 0
	for _, h := range w.takeAll(refs) {
		var v driver.ClaimResult
		await(t, "its token comes", func() bool { v = claimPatiently(t, w, exact(h)[0]); return v.Status == driver.Granted })
		again, now := claimPatiently(t, w, h), engineNow(t, e)
		require.Equal(t, driver.Granted, again.Status)
		if v.At.After(now) { // a token's time may have come between
			ahead++
			require.False(t, again.At.Before(v.At), "%v before its token", v.At.Sub(again.At))
		}
		finishPatiently(t, w, driver.Completion{Delivery: h, End: driver.Done})
		if ahead == 3 {
			return
		}
	}
	t.Log("given ahead of their time, as far as this machine is fast enough to see:", ahead)
}
