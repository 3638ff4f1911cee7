package recur

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/cron"
)

// Whatever was missed, for however long, lastOf finds what one finds who goes through all, in
// a number of calls that does not depend on that.
func TestLastOfMissed(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{"* * * * * *", "* * * * *", "* * * 1 * *", "*/7 * 1-3 * *", "0 0 1 1 *", "@every 17s", "0 0 30 2 *"} {
		spec, err := cron.Parse(text)
		require.NoError(t, err)
		for _, n := range []int{1, 2, 3, 10} {
			for _, missed := range []time.Duration{0, time.Second, 3 * time.Second, time.Minute, 40 * time.Hour, 40 * 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
				to := begin.Add(missed)
				if missed > 0 {
					to = to.Add(rand.N(time.Second))
				}
				calls := 0
				next := func(prev time.Time) time.Time { calls++; return spec.Next(prev) }
				got := lastOf(next, begin, to, n)
				require.LessOrEqual(t, calls, 130*(n+1), "%s, the last %d in %v", text, n, missed)
				if missed > 41*24*time.Hour {
					continue
				}
				var all []time.Time
				for at := spec.Next(begin); !at.IsZero() && !at.After(to); at = spec.Next(at) {
					if all = append(all, at); len(all) > n {
						all = all[1:]
					}
				}
				want := time.Time{}
				if len(all) > 0 {
					want = all[0]
				}
				require.True(t, want.Equal(got), fmt.Sprint(text, n, missed, want, got))
			}
		}
	}
}
