package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
