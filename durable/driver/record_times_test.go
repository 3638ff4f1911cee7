package driver

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A time is checked as it is stored: in whole microseconds, rounded up.
func TestTimesOfRecords(t *testing.T) {
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	last := time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	most := time.Unix(1<<63-62135596801, 999999999) // the last that time.Time has
	for _, at := range []time.Time{last, last.Add(-1), last.In(time.FixedZone("east", 14*3600))} {
		r, err := NewRecord(Job{Kind: "k", At: at}, now)
		require.NoError(t, err, at)
		require.True(t, r.Due.Equal(last) && r.At.Equal(last), "%v is stored as %v", at, r.Due)
		r, err = NewRecord(Job{Kind: "k", Expires: at}, now)
		require.NoError(t, err, at)
		require.True(t, r.Expires.Equal(last), "%v is stored as %v", at, r.Expires)
	}
	for _, at := range []time.Time{last.Add(1), last.Add(900), last.Add(time.Microsecond), most} {
		_, err := NewRecord(Job{Kind: "k", At: at}, now)
		require.ErrorIs(t, err, ErrInvalid, at)
		_, err = NewRecord(Job{Kind: "k", Expires: at}, now)
		require.ErrorIs(t, err, ErrInvalid, at)
		require.ErrorContains(t, err, "beyond the year 9999")
	}
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Unix(0, -1), time.Unix(-86400, 0), time.Unix(-1<<62, 0), now, now.Add(-1)} {
		r, err := NewRecord(Job{Kind: "k", At: at}, now)
		require.NoError(t, err, at)
		require.True(t, r.Due.Equal(now), "%v has passed: %v", at, r.Due)
	}
	for _, d := range []time.Duration{-1, -999, -time.Microsecond, math.MinInt64} {
		_, err := NewRecord(Job{Kind: "k", Timeout: d}, now)
		require.ErrorIs(t, err, ErrInvalid, d)
		_, err = NewRecord(Job{Kind: "k", Key: "k", OnKey: KeyLater, MaxWait: d}, now)
		require.ErrorIs(t, err, ErrInvalid, d)
	}
	_, err := NewRecord(Job{Kind: "k", At: now.Add(100), Expires: now.Add(900)}, now)
	require.ErrorIs(t, err, ErrInvalid, "both are the same microsecond")
	r, err := NewRecord(Job{Kind: "k", At: now.Add(900), Expires: now.Add(1100)}, now)
	require.NoError(t, err)
	require.Equal(t, time.Microsecond, r.Expires.Sub(r.Due))
}
