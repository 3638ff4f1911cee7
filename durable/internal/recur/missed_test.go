package recur

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/cron"
	"github.com/tickwheel/tickwheel/durable/driver"
)

// Whatever was missed, for however long, lastOf finds what one finds who goes through all, in
// a number of calls that does not depend on that.
func TestLastOfMissed(t *testing.T) {
	begin := time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for _, text := range []string{"* * * * * *", "* * * * *", "* * * 1 * *", "* * * * 1 *", "*/7 * 1-3 * *", "0 0 1 1 *", "@every 17s", "0 0 30 2 *"} {
		spec, err := cron.Parse(text)
		require.NoError(t, err)
		for _, missed := range []time.Duration{0, time.Second, 3 * time.Second, time.Minute, 3 * day, 30 * day, 20 * 365 * day} {
			to := begin.Add(missed)
			if missed > 0 {
				to = to.Add(rand.N(time.Second))
			}
			var all []time.Time
			if missed <= 3*day {
				for at := spec.Next(begin); !at.IsZero() && !at.After(to); at = spec.Next(at) {
					all = append(all, at)
				}
			}
			for _, n := range []int{1, 2, 3, 10} {
				calls := 0
				next := func(prev time.Time) time.Time { calls++; return spec.Next(prev) }
				got := lastOf(next, begin, to, n)
				require.LessOrEqual(t, calls, 130*(n+1), "%s, the last %d in %v", text, n, missed)
				if missed <= 3*day {
					want := time.Time{}
					if len(all) > 0 {
						want = all[max(0, len(all)-n)]
					}
					require.True(t, want.Equal(got), "%s, the last %d in %v: %v, not %v", text, n, missed, got, want)
				}
			}
		}
	}
}

// The ID of an occurrence says when it was made, by which it is known to have been late then, and whether its job has a Retain.
func TestOccurrenceIDs(t *testing.T) {
	at, born := time.Date(2026, 1, 30, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 9, 0, 0, 1000, time.UTC)
	for _, retain := range []time.Duration{0, time.Hour} {
		r, err := (&Schedule{}).occurrence("s", 7, nil, &Template{Kind: "k", MaxAttempts: 1, Retain: retain.Microseconds()}, at, at, born)
		require.NoError(t, err)
		require.True(t, born.Equal(madeAt(r.ID)), r.ID)
		require.Equal(t, retain > 0, driver.MayRetain(r.ID))
	}
	require.Zero(t, madeAt("x-kept"))
}
