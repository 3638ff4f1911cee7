package engine

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// On one processor, a function that comes due in a cascade runs long before its end: the
// driver runs it, and another drives on. The rest of the cascade is the wheel's own tasks, so
// that only the one function calls for a worker.
func TestFunctionDoesNotWaitForTheDriversProcessor(t *testing.T) {
	const n = 200 * SliceLen
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, end := range []func(){func() {}, runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			e := newTestWheel(withShards(1))
			defer e.Stop()
			s := &e.shards[0]
			var flushed, before atomic.Int64
			after := Delay{s.clock.Now(), time.Millisecond}
			s.lock()
			_, err := s.accept(after, func() { before.Store(flushed.Load()); end() }, OneShot)
			require.NoError(t, err)
			for range n {
				s.add(after, func() { flushed.Add(1) }, Internal|NoExecutor)
			}
			s.unlock()
			time.Sleep(time.Second)
			synctest.Wait()
			require.EqualValues(t, n, flushed.Load())
			require.Less(t, before.Load(), int64(n/2), "the function waited for the cascade")
			require.Zero(t, e.Len())
			e.verify(t)
		})
	}
}

// Drivers that change places lose nothing and run nothing twice.
func TestDriversThatChangePlaces(t *testing.T) {
	const n = 100 * SliceLen
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := newTestWheel(withShards(2))
	ran := make([]atomic.Int32, n)
	for i := range e.shards {
		s := &e.shards[i]
		for k := i; k < n; k += 2 {
			s.lock()
			_, err := s.accept(Delay{0, 30 * time.Millisecond}, func() { ran[k].Add(1) }, OneShot)
			s.unlock()
			require.NoError(t, err)
		}
	}
	require.NoError(t, e.Drain(t.Context()))
	for k := range ran {
		require.EqualValues(t, 1, ran[k].Load(), "function %d", k)
	}
	e.verify(t)
}
