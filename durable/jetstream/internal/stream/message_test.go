package stream

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A TTL is never shorter than asked for, to the second, and so short that the server can add it to the time.
func TestTTLSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		1: 1, time.Second: 1, time.Second + 1: 2, 30 * 24 * time.Hour: 30 * 86400,
		longestTTL: 100 * 365 * 86400, longestTTL + 1: 100 * 365 * 86400, 290 * 365 * 24 * time.Hour: 100 * 365 * 86400, math.MaxInt64: 100 * 365 * 86400,
	} {
		require.Equal(t, want, ttlSeconds(d), d)
	}
	require.Positive(t, time.Now().Add(longestTTL).UnixNano())
}
