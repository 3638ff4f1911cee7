package driver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// A pause covers its jobs from about when it was set until its end, also when it was stored and read. If several cover
// a job, the longest counts.
func TestPauseRest(t *testing.T) {
	since := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	const d = time.Minute
	f, err := driver.DecodeFlowControl(1, driver.NewFlowControl(1, nil, []driver.Pause{
		{Pausable: driver.Pausable{Kind: "k"}, Since: since, Until: since.Add(d)},
		{Pausable: driver.Pausable{Lane: "l"}, Since: since, Until: since.Add(2 * d)},
		{Pausable: driver.Pausable{Kind: "for ever", Lane: "l"}, Since: since},
	}).Encode())
	require.NoError(t, err)
	for _, c := range []struct {
		kind, lane string
		at         time.Duration
		rest       time.Duration
	}{
		{"k", "", 0, d}, {"k", "x", d - 1, 1}, {"k", "", d, 0}, {"k", "", time.Hour, 0}, {"other", "", 0, 0}, {"other", "x", 0, 0},
		{"k", "l", 0, 2 * d}, {"k", "l", d, d}, {"other", "l", 2 * d, 0}, {"for ever", "l", time.Hour, driver.Forever}, {"for ever", "", 0, 0},
		{"k", "", -driver.RetryInterval, d + driver.RetryInterval}, {"k", "", -driver.RetryInterval - 1, 0}, {"for ever", "l", -time.Hour, driver.Forever},
	} {
		limits, rest := f.Covering(c.kind, c.lane, since.Add(c.at))
		require.Empty(t, limits)
		require.Equal(t, c.rest, rest, "%+v", c)
	}
	require.Equal(t, driver.ClaimResult{Status: driver.Throttled, After: driver.RetryInterval}, driver.Paused(driver.Forever))
	require.Equal(t, driver.ClaimResult{Status: driver.Throttled, After: 1}, driver.Paused(1))
}
