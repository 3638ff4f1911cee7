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
	needsProcessors(t)
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

// More shards than processors do not come into use, however many there are and however often
// callers collide.
func TestShardsBeyondTheProcessorsAreNotUsed(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for _, n := range []int{1, 2, 64} {
		e := newTestWheel(withShards(n))
		var adders sync.WaitGroup
		for range 8 {
			adders.Go(func() {
				for i := range 10_000 {
					s := e.lock()
					if i%100 == 0 {
						runtime.Gosched() // so that the others find it locked
					}
					s.counts.Scheduled++
					s.unlock()
				}
			})
		}
		adders.Wait()
		used := 0
		for i := range e.shards {
			if e.shards[i].counts.Scheduled > 0 {
				used++
			}
		}
		require.Equal(t, min(n, 2), used, "%d shards", n)
		e.Stop()
	}
}
