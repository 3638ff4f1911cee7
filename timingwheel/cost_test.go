package timingwheel

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestAllocations(t *testing.T) {
	w := New()
	defer w.Stop()
	// Another timer keeps the arena's chunk and the bucket in being.
	w.AfterFunc(time.Hour, noop)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		timeout, _ := w.Schedule(time.Hour, noop)
		timeout.Cancel()
	}), "Schedule and Cancel")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { w.AfterFunc(time.Hour, noop).Stop() }), 1.0, "AfterFunc and Stop")
	timer := w.AfterFunc(time.Hour, noop)
	require.Zero(t, testing.AllocsPerRun(1000, func() { timer.Reset(time.Hour) }), "Reset")
	timeout, _ := w.Schedule(time.Hour, noop)
	require.Zero(t, testing.AllocsPerRun(1000, func() { timeout.Reset(time.Hour); timeout.Deadline() }), "Timeout.Reset")
	require.LessOrEqual(t, int(unsafe.Sizeof(Timer{})), 48, "a size class of the allocator")
	require.Zero(t, (unsafe.Offsetof(timer.lazy)+unsafe.Offsetof(timer.lazy.Word))%16, "in the cache line of entry.shard")
	require.Equal(t, unsafe.Offsetof(timer.lazy)+unsafe.Offsetof(timer.lazy.Word)+8, unsafe.Offsetof(timer.entry), "the shard is its first field")
}
