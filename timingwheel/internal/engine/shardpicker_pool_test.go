//go:build !(gc && go1.26 && !go1.28 && !tickwheel_pool)

package engine

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Processors that add for the first time get the shards one after the other, so all shards are used
// even if no two processors ever collide.
func TestProcessorsGetShardsInTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
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
	fixed := newTestWheel(withShards(8))
	defer fixed.Stop()
	fixed.join()

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

		seen, s = map[int]bool{}, &fixed.shards[7]
		for range 2 * len(fixed.shards) {
			s = fixed.after(s)
			seen[s.id] = true
		}
		require.Len(t, seen, min(8, c.used), "of a number that was given, too")
	}
}
