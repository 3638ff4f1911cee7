package timingwheel

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
)

// verify checks the invariants of the whole wheel. The driver must be asleep, or the
// drive manual, and no call may be under way.
func (w *TimingWheel) verify(t testing.TB) {
	t.Helper()
	require.NoError(t, engine.Verify(w.engine()))
}

// waitForCallers waits until so many goroutines wait for a mutex, as callers do whose shard is
// locked.
func waitForCallers(t testing.TB, n int) {
	t.Helper()
	waitUntil(t, func() bool { return blocked("sync.Mutex.Lock") == n })
}

// blocked returns how many goroutines wait for a reason, as tracebacks call it.
func blocked(reason string) int {
	buf := make([]byte, 1<<16)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), " ["+reason)
}

// requireAccounts checks what is true at any moment, whatever is under way.
func requireAccounts(t testing.TB, st Stats) {
	t.Helper()
	if st.Scheduled != st.Expired+st.Stopped+st.HandedBack+st.Pending {
		require.Fail(t, "accounts", "%+v", st.Counts)
	}
}
