package driver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that is set back by an hour leaves tokens and turns an hour ahead: nothing waits for
// these.
func TestTakeAfterTheClockWasSetBack(t *testing.T) {
	limits := []*StoredLimit{{ID: 1, Limit: Limit{Running: 1, Rate: 10, Burst: 3}}}
	c, now := &Counter{}, time.Now()
	take := func(worker string, at time.Time) ClaimResult {
		return Take(limits, []*Counter{c}, []bool{false}, worker, at)
	}
	require.Equal(t, Granted, take("a", now).Status)
	require.Equal(t, Throttled, take("dead", now).Status, "it has the next turn")
	c.Taken = 0
	now = now.Add(-time.Hour)
	began := 0
	for ms := range 1000 {
		if take("a", now.Add(time.Duration(ms)*time.Millisecond)).Status == Granted {
			began++
			c.Taken = 0
		}
	}
	require.GreaterOrEqual(t, began, 10)
	require.LessOrEqual(t, began, 3+10+1, "never above Burst + Rate * t, and one that is taken ahead")
}
