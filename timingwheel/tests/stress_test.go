package timingwheel_test

import (
	"github.com/tickwheel/tickwheel/timingwheel"

	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stressExecutors run every task, some of them on the driver.
var stressExecutors = []struct {
	name     string
	inline   bool
	executor func() timingwheel.Executor
}{
	{"goroutines", false, timingwheel.Goroutines},
	{"inline", true, timingwheel.Inline},
	{"pool, block", false, func() timingwheel.Executor { return newPool(8, 10, fullWait) }},
	{"pool, caller runs", true, func() timingwheel.Executor { return newPool(2, 1, fullCallerRuns) }},
	{"pool, discard", true, func() timingwheel.Executor { return newPool(2, 10, fullDiscard(func(task func()) { task() })) }},
}

// If many goroutines cancel one task, exactly one gets true. None gets true if the task has run.
func TestExactlyOneCancelIsTrue(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	for range 2000 {
		var ran, canceled atomic.Int64
		timer := w.AfterFunc(time.Duration(rand.Int64N(int64(2*time.Millisecond))), func() { ran.Add(1) })
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if timer.Stop() {
					canceled.Add(1)
				}
			})
		}
		wg.Wait()
		if canceled.Load() == 0 {
			waitFor(t, func() bool { return ran.Load() == 1 })
		}
		require.EqualValues(t, 1, ran.Load()+canceled.Load())
	}
}

// Several Stops at the same time hand back each task once, all together.
func TestConcurrentStops(t *testing.T) {
	for range 50 {
		w := timingwheel.New(timingwheel.WithShards(8))
		const tasks = 1000
		seen := make([]atomic.Int64, tasks)
		// From several goroutines, so that the tasks are in several shards.
		var wg sync.WaitGroup
		for i := range tasks {
			wg.Go(func() { w.Schedule(time.Hour, func() { seen[i].Add(1) }) })
		}
		wg.Wait()
		for range 4 {
			wg.Go(func() {
				for _, p := range w.Stop() {
					p.Func()
				}
			})
		}
		wg.Wait()
		for i := range seen {
			require.EqualValues(t, 1, seen[i].Load())
		}
	}
}
