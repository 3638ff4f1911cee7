package timingwheel

import (
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

func (w *TimingWheel) verifySettled(t testing.TB) {
	t.Helper()
	require.NoError(t, engine.VerifySettled(w.engine()))
}

func (w *TimingWheel) pushes() int64 { return engine.Pushes(w.engine()) }

// requireAccounts checks what is true at any moment, whatever is under way.
func requireAccounts(t testing.TB, st Stats) {
	t.Helper()
	if st.Scheduled != st.Fired+st.Canceled+st.HandedBack+st.Pending {
		require.Fail(t, "accounts", "%+v", st.Counts)
	}
}
