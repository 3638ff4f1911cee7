package timingwheel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Timer that was reset once is pushed back without a lock: also while somebody has it.
func TestPushBackTakesNoLock(t *testing.T) {
	w := New(WithShards(1))
	defer w.Stop()
	timer := w.AfterFunc(time.Hour, noop)
	require.True(t, timer.Reset(time.Hour))
	const most = 1023 // so many between two counts, see Counts.Reset
	timer.entry.LockShard()
	for range most {
		require.True(t, timer.Reset(2*time.Hour))
	}
	timer.entry.UnlockShard()
	require.True(t, timer.Reset(2*time.Hour), "this one takes the lock")
	require.EqualValues(t, most+2, w.Stats().Reset)
	at, ok := timer.Deadline()
	require.True(t, ok)
	require.Greater(t, time.Until(at), 90*time.Minute)
	require.True(t, timer.Stop())
	require.False(t, timer.Reset(time.Hour), "it is not pending")
	require.NotZero(t, timer.lazy.Word.Load(), "the next push would take the lock")
	require.True(t, timer.Stop())
}
