package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewIsLight(t *testing.T) {
	const wheels, shards = 1000, 4 // as many on each machine
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range wheels {
		timingwheel.New(timingwheel.WithShards(shards)).Stop()
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/wheels, uint64(shards*3<<10), "bytes for each New and Stop")
}

// The arena gives memory back when it has emptied.
func TestMemoryIsGivenBack(t *testing.T) {
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	tasks := unlessShort(500_000, 100_000)
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	timeouts := make([]timingwheel.Timeout, tasks)
	before := held()
	for i := range timeouts {
		timeouts[i], _ = w.Schedule(time.Hour, noop)
	}
	full := held() - before
	require.Less(t, full/int64(tasks), int64(40), "bytes for each pending task")
	for _, timeout := range timeouts {
		timeout.Cancel()
	}
	waitFor(t, func() bool { return held()-before < 1<<20 })
	runtime.KeepAlive(timeouts)
}

// A wheel that has had many gives the memory back when few are left, wherever these are and
// however far off: one survivor in 1024, and the sawtooths of a load that comes and goes.
// The traffic meanwhile is mixed, and handles find their entries.
func TestMemoryFollowsWhatIsPending(t *testing.T) {
	tasks := unlessShort(200_000, 50_000)
	w := timingwheel.New(timingwheel.WithShards(1), timingwheel.WithManualDrive())
	defer w.Stop()
	timeouts, kept := make([]timingwheel.Timeout, tasks), []timingwheel.Timeout(nil)
	before := int64(heapInUse())
	for range 3 {
		for i := range timeouts {
			timeouts[i], _ = w.Schedule(time.Hour+time.Duration(i)*time.Millisecond, noop)
		}
		for i, timeout := range timeouts {
			if i%1024 == 0 {
				kept = append(kept, timeout)
			} else {
				require.True(t, timeout.Cancel())
			}
		}
		for range tasks / 4 {
			timeout, _ := w.Schedule(time.Minute, noop)
			require.True(t, timeout.Cancel())
		}
		verify(t, w)
		require.Equal(t, len(kept), w.Len())
		const levels = 256 << 10 // what is there whatever is pending: levels, two chunks, the queue
		waitFor(t, func() bool { return int64(heapInUse())-before < 4*32*int64(len(kept))+levels })
	}
	for _, timeout := range kept {
		require.True(t, timeout.Cancel())
		require.False(t, timeout.Cancel())
	}
	require.Zero(t, w.Len())
	verify(t, w)
	runtime.KeepAlive(timeouts)
}
