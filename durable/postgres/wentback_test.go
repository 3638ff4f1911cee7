package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One slow comparison of claims does not delay the next one, whether it has an answer or not. If two are slow, so is the
// server, and comparisons are rare.
func TestPauseAfterASlowComparison(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	var p past
	pause := func(took time.Duration, err error) time.Duration {
		p.compared(0, err, 0, lease, took)
		return time.Until(p.from)
	}
	for _, slow := range []struct {
		took time.Duration
		err  error
	}{{5 * time.Second, nil}, {time.Minute, errors.New("no answer")}} {
		require.LessOrEqual(t, pause(time.Millisecond, nil), lease/3)
		require.LessOrEqual(t, pause(slow.took, slow.err), lease/3)
		require.LessOrEqual(t, pause(time.Millisecond, nil), lease/3)
	}
	pause(5*time.Second, nil)
	require.Greater(t, pause(5*time.Second, nil), time.Hour)
}
