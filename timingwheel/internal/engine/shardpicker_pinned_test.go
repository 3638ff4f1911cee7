//go:build gc && go1.26 && !go1.28 && !tickwheel_pool

package engine

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Each processor has a shard of its own. A caller that finds it locked takes another.
func TestProcessorsHaveShards(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so the caller is on processor 0
	e := newTestWheel(withShards(4))
	defer e.Stop()
	lock := func() *shard {
		s := e.lock()
		defer s.unlock()
		return s
	}
	require.Equal(t, 0, lock().id)
	e.shards[0].lock()
	other := lock()
	e.shards[0].unlock()
	require.Equal(t, 1, other.id)
	require.Equal(t, 0, lock().id)

	alone := newTestWheel(withShards(1))
	defer alone.Stop()
	alone.shards[0].lock()
	var waits sync.WaitGroup
	waits.Go(func() {
		_, err := alone.Schedule(time.Hour, mustNotRun)
		require.NoError(t, err)
	})
	alone.shards[0].unlock()
	waits.Wait()
	require.Equal(t, 1, alone.Len())
}

// The number of a processor is less than GOMAXPROCS, as the shards are.
func TestProcessorsAreNumbered(t *testing.T) {
	needsProcessors(t)
	const procs = 8
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]bool{}
	for deadline := time.Now().Add(time.Minute); len(seen) < procs && time.Now().Before(deadline); {
		for range procs {
			all.Go(func() {
				for begin := time.Now(); time.Since(begin) < 100*time.Microsecond; {
					id := procPin()
					procUnpin()
					mu.Lock()
					seen[id] = true
					mu.Unlock()
				}
			})
		}
		all.Wait()
	}
	require.Len(t, seen, procs)
	for id := range seen {
		require.Less(t, id, procs)
	}
}
