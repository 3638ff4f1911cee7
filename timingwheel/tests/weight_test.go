package timingwheel_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// A wheel for each tenant or each pool of connections must be affordable.
func TestWeightOfAWheel(t *testing.T) {
	const wheels, most = 100, 16 << 10
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	all := make([]*timingwheel.TimingWheel, wheels)
	before := heap()
	for i := range all {
		all[i] = timingwheel.New(timingwheel.WithShards(2))
		_, err := all[i].Schedule(time.Hour, func() {})
		require.NoError(t, err)
	}
	require.Less(t, (heap()-before)/wheels, int64(most))
	for _, w := range all {
		w.Stop()
	}
}
