package timingwheel

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The count of running tasks is at no time lower than what is running: Shutdown would
// return too early.
func TestRunningIsNeverTooLow(t *testing.T) {
	var r running
	r.admit(1) // one runs all the time
	var end atomic.Bool
	var wg sync.WaitGroup
	for l := range uint32(4) {
		wg.Go(func() {
			for !end.Load() {
				r.admit(1)
				r.end(l)
			}
		})
	}
	least := int64(1)
	for start := time.Now(); least == 1 && time.Since(start) < 300*time.Millisecond; {
		least = min(least, r.count())
	}
	end.Store(true)
	wg.Wait()
	require.EqualValues(t, 1, least)
	require.EqualValues(t, 1, r.count())
}
