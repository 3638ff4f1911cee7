package enginetest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// Cancel before, during and after hand-over, claim, run and end.
func cancel(t *testing.T, s Store) {
	release := make(chan struct{})
	r := open(t, s.Open(t), holding()...).handle(kind, func(_ context.Context, a *durable.Attempt) error {
		if len(a.Job.Payload) > 0 {
			<-release
		}
		return nil
	})
	far := r.add(durable.Job{Kind: kind, After: time.Hour})[0]
	r.cancel(far, true, "before it is handed out")
	r.cancel(far, false, "twice")
	r.start()
	soon := r.whileHeld(func(ref durable.Ref) bool {
		ok, err := r.Cancel(within(t), ref)
		require.NoError(t, err)
		return ok
	})
	r.cancel(soon, false, "twice")
	await(t, "nothing is held", func() bool { return r.Stats().Held == 0 })

	run := r.add(durable.Job{Kind: kind, After: 1200 * time.Millisecond, Payload: []byte("wait")})[0]
	await(t, "it is claimed", func() bool { return r.Stats().Claimed > 0 || r.Stats().Running > 0 })
	r.cancel(run, false, "claimed")
	await(t, "it runs", func() bool { return r.Stats().Running > 0 })
	r.cancel(run, false, "running")
	close(release)
	r.awaitGone(run)
	r.cancel(run, false, "done")
	time.Sleep(heldFor)
	for _, run := range r.ran() {
		require.NotEqual(t, soon, run.Ref)
		require.NotEqual(t, far, run.Ref)
	}
	empty(t, r)
}

// Cancel ends a job that waits for its next attempt: no more attempts begin.
func cancelRetry(t *testing.T, s Store) {
	r := open(t, s.Open(t), durable.WithBackoff(func(int) time.Duration { return 3 * time.Second })).
		handle(kind, fails(errTest)).start()
	ref := r.add(durable.Job{Kind: kind})[0]
	r.awaitRuns(1)
	await(t, "it is canceled between attempts", func() bool { // a slow machine may miss some
		info := r.get(ref)
		if info.State != durable.Waiting || info.Attempt == 0 {
			return false
		}
		ok, err := r.Cancel(within(t), ref)
		require.NoError(t, err)
		return ok
	})
	n := len(r.ran())
	time.Sleep(4 * time.Second)
	require.Len(t, r.ran(), n)
	empty(t, r)
}

func envInt(name string, normal int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return normal
}

// races returns how many races are run.
func races() int { return envInt("ENGINETEST_RACES", 200) }

// Of a Cancel and a Claim of one job at one time one wins: never both, never neither.
func cancelAgainstClaim(t *testing.T, s Store) {
	e, other := s.Open(t), s.Open(t)
	r := open(t, e)
	w := newCrashing(t, e, "w", func(c *driver.WorkConfig) { c.Lease, c.Ahead = time.Minute, time.Second })
	claims, cancels := 0, 0
	var lead time.Duration
	for n := races(); n > 0; {
		size := min(n, 100)
		n -= size
		refs := r.add(spread(size, 0, 0)...)
		c, k := raceEach(t, w, other, w.takeAll(refs), &lead)
		claims, cancels = claims+c, cancels+k
	}
	t.Logf("%d claims and %d cancels won", claims, cancels)
	require.Positive(t, claims)
	require.Positive(t, cancels)
	empty(t, r)
}

// raceEach claims in groups what is canceled one by one at the same time.
// lead is the head start of the cancel. The winner of a group starts the next one later,
// so that both sides win on any engine and the races stay close.
func raceEach(t *testing.T, w driver.Worker, e driver.Engine, held []*driver.Delivery, lead *time.Duration) (claims, cancels int) {
	const step = time.Millisecond / 4
	for group := range slices.Chunk(held, 5) {
		canceled := make([]bool, len(group))
		unsure := make([]bool, len(group)) // the answer was lost: it is canceled, or it was claimed
		mine := make([]bool, len(group))
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(-*lead)
			for i, h := range group {
				oks, errs := e.Cancel(within(t), []durable.Ref{h.Ref})
				canceled[i] = oks[0]
				if unsure[i] = errors.Is(errs[0], durable.ErrUncertain); !unsure[i] && errs[0] != nil {
					t.Error(errs[0])
				}
			}
		})
		wg.Go(func() {
			time.Sleep(*lead)
			for _, h := range endGranted(t, w, group, nil) {
				mine[slices.Index(group, h)] = true
			}
		})
		wg.Wait()
		won := 0
		for i := range group {
			require.True(t, canceled[i] != mine[i] || unsure[i], "canceled %v, claimed %v", canceled[i], mine[i])
			if mine[i] {
				won++
			}
		}
		claims, cancels = claims+won, cancels+len(group)-won
		if won > len(group)/2 {
			*lead += step
		} else {
			*lead -= step
		}
	}
	return claims, cancels
}

// endGranted claims jobs, ends those that it is granted as done, and returns them. It asks again
// for those of the kinds that it can run, nil for all.
func endGranted(t *testing.T, w driver.Worker, hs []*driver.Delivery, kinds *driver.KindGate) (ended []*driver.Delivery) {
	var outs []driver.Completion
	for i, v := range w.Claim(context.Background(), hs) {
		if v.Status == driver.RetryLater && (kinds == nil || kinds.Has(hs[i].Record.Kind)) {
			v = claimPatiently(t, w, hs[i])
		}
		if v.Status == driver.Granted {
			ended = append(ended, hs[i])
			outs = append(outs, driver.Completion{Delivery: hs[i], End: driver.Done})
		}
	}
	for _, err := range w.Finish(context.Background(), outs) {
		if err != nil {
			t.Error(err)
		}
	}
	return ended
}

func claimPatiently(t testing.TB, w driver.Worker, h *driver.Delivery) driver.ClaimResult {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		v := w.Claim(within(t), []*driver.Delivery{h})[0]
		if v.Status != driver.RetryLater {
			return v
		}
		time.Sleep(min(v.After, 50*time.Millisecond))
	}
	t.Error("no end of Later")
	return driver.ClaimResult{}
}

// Jobs that are added some seconds ahead, and canceled at any time until they are due,
// run or were canceled: never both, never neither, wherever they are kept at that moment.
func cancelOnTheWay(t *testing.T, s Store) {
	r := open(t, s.Open(t)).handle(kind, nil).start()
	c := open(t, s.Open(t))
	ran, canceled := 0, 0
	for ahead := 3 * time.Second; canceled == 0; ahead *= 4 { // a slow machine may be too late for all
		require.Less(t, ahead, patience, "all were too late")
		ran, canceled = cancelWithin(t, r, c, ahead, ran)
	}
	t.Logf("%d canceled", canceled)
	empty(t, r)
}

// cancelWithin adds jobs to r that are due so far ahead and twice as far, has c cancel half of
// them, and returns how many have run in all, of which so many before, and were canceled.
func cancelWithin(t *testing.T, r, c *rig, ahead time.Duration, before int) (int, int) {
	const n = 300
	refs := r.add(spread(n, ahead, ahead/n)...)
	canceled := map[durable.Ref]bool{}
	for i := range n {
		if i%2 == 1 {
			continue
		}
		ref := refs[(i*7)%n] // near and far, some of them too late
		ok, err := c.Cancel(within(t), ref)
		require.NoError(t, err)
		if ok {
			canceled[ref] = true
		}
		time.Sleep(2 * ahead / n)
	}
	await(t, "all ran or were canceled", func() bool { return len(eachOnce(t, before, r))+len(canceled) >= n })
	time.Sleep(again)
	seen := eachOnce(t, before, r)
	for ref := range seen {
		require.False(t, canceled[ref], "canceled, and ran")
	}
	require.Equal(t, n, len(seen)+len(canceled))
	return len(r.ran()), len(canceled)
}
