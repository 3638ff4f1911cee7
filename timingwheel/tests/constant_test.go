package timingwheel_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// An add, a reset and a cancel cost the same beside many pending functions as beside few. The
// bound leaves room for the caches, which many functions do not fit into, and none for a
// walk, nor for a list in order. The fastest of many rounds is compared, and a round is shorter than the
// time for which a busy machine lets a thread run.
func TestCostIsConstant(t *testing.T) {
	few, many := costBeside(10), costBeside(500_000)
	t.Logf("beside 10: %v, beside 500,000: %v", few, many)
	require.Less(t, many, 3*few)
}

// costBeside returns what 100 adds, resets and cancels cost beside n pending functions.
func costBeside(n int) time.Duration {
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	delay := func(i int) time.Duration { return time.Hour + time.Duration(i%100_000)*time.Second }
	for i := range n {
		w.Schedule(delay(i*7919), func() {})
	}
	best := time.Hour
	for range 500 {
		began := time.Now()
		for i := range 100 {
			timeout, _ := w.Schedule(delay(i*104729), func() {})
			timeout.Reset(delay(i * 15485863))
			timeout.Cancel()
		}
		best = min(best, time.Since(began))
	}
	return best
}
