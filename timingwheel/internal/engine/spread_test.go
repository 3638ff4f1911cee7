package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Processors that add for the first time get the shards in turn, and so all are used also if
// no two processors ever collide.
func TestProcessorsGetShardsInTurn(t *testing.T) {
	e := newTestWheel(withShards(4))
	defer e.Stop()
	for range 2 * len(e.shards) {
		e.tokens = sync.Pool{} // the next add is the first of a processor
		_, err := e.Schedule(time.Hour, mustNotRun)
		require.NoError(t, err)
	}
	for i := range e.shards {
		require.Equal(t, 2, e.shards[i].len(), "shard %d", i)
	}
}

// Wherever processors are when their number changes, they come to the first shards, as many
// as there are processors, and to no others.
func TestShardsInUseFollowGOMAXPROCS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(128))
	all := newTestWheel(withShards(0))
	defer all.Stop()
	require.Len(t, all.shards, mostChosen)

	runtime.GOMAXPROCS(16)
	e := newTestWheel(withShards(0))
	defer e.Stop()
	least := len(e.shards) // or more: those of the machine
	require.GreaterOrEqual(t, least, 16)
	fixed := newTestWheel(withShards(32))
	defer fixed.Stop()

	for _, c := range []struct{ procs, used int }{{16, 16}, {2, 2}, {3, 4}, {1, 1}, {8, 8}, {128, least}, {5, 8}} {
		runtime.GOMAXPROCS(c.procs)
		s, seen := &e.shards[least-1], map[int]bool{}
		for range least { // so many collisions lead past the last at least once
			s = e.after(s)
		}
		for range 2 * c.used {
			seen[e.join().id] = true
		}
		require.Len(t, seen, c.used, "%d processors", c.procs)
		for range 2 * least {
			require.Less(t, s.id, c.used, "%d processors", c.procs)
			seen[s.id], s = true, e.after(s)
		}
		require.Len(t, seen, c.used, "%d processors", c.procs)

		seen, s = map[int]bool{}, &fixed.shards[0]
		for range fixed.shards {
			seen[s.id], s = true, fixed.after(s)
		}
		require.Len(t, seen, 32, "a number that was given stays")
	}
}

// While GOMAXPROCS rises and falls, everything fires, and new processors get shards that were
// not used before.
func TestGOMAXPROCSChangesDuringARun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	w := newTestWheel(withShards(0), withTick(100*time.Microsecond))
	defer w.Stop()
	used := func() (n int) {
		for i := range w.shards {
			s := &w.shards[i]
			s.lock()
			if s.counts.Scheduled > 0 {
				n++
			}
			s.unlock()
		}
		return n
	}

	runtime.GOMAXPROCS(2)
	var added, fired atomic.Int64
	var adders sync.WaitGroup
	var end atomic.Bool
	defer adders.Wait()
	defer end.Store(true)
	for i := range 8 {
		adders.Go(func() {
			for n := 0; !end.Load(); n++ {
				if added.Load()-fired.Load() > 10_000 {
					runtime.Gosched()
					continue
				}
				added.Add(1)
				_, err := w.Schedule(time.Duration((n*7+i)%20)*time.Millisecond, func() { fired.Add(1) })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	phase := func(done func() bool) {
		n := fired.Load()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if fired.Load() > n+1000 && done() {
				return
			}
		}
		t.Errorf("%d fired of %d, %d shards are used", fired.Load(), added.Load(), used())
	}
	any := func() bool { return true }
	phase(any)
	require.LessOrEqual(t, used(), 2)
	runtime.GOMAXPROCS(8)
	phase(func() bool { return used() >= 8 })
	runtime.GOMAXPROCS(1)
	phase(any)
	runtime.GOMAXPROCS(4)
	phase(any)

	end.Store(true)
	adders.Wait()
	require.Eventually(t, func() bool { return fired.Load() == added.Load() && w.Len() == 0 }, time.Minute, time.Millisecond)
	w.verify(t)
}
