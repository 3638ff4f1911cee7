package driver

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Durations are rounded up to whole microseconds: a MaxWait of less is not one without a bound.
func TestDurationsOfRecords(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Microsecond, time.Microsecond: time.Microsecond, time.Microsecond + 1: 2 * time.Microsecond,
		math.MaxInt64: time.Duration(math.MaxInt64).Truncate(time.Microsecond),
	} {
		r, err := NewRecord(Job{Kind: "k", Key: "k", OnKey: KeyLater, MaxWait: d, Timeout: d}, time.Now())
		require.NoError(t, err)
		require.Equal(t, want, r.MaxWait)
		require.Equal(t, want, r.Timeout)
	}
}
