package bubble

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func date(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }

func isOff(d time.Duration) bool { return uint64(d) >= uint64(Off) }

// A base counts where its time was read, and is off in the other place, whatever the bubble's
// date is.
func TestBase(t *testing.T) {
	require.True(t, known, "this release of Go has another time.Time")
	start := time.Now()
	ofOutside := Base(start)
	later := start.Add(3 * time.Second)
	require.Equal(t, 3*time.Second, later.Sub(ofOutside))
	require.Less(t, time.Since(ofOutside)-time.Since(start), time.Minute)
	require.False(t, Inside())

	for _, at := range []time.Time{date(2000), date(2001), date(2020), start, start.Add(time.Hour), date(2030), date(2040),
		date(2060), date(2156), date(2158), date(2262)} {
		var ofBubble time.Time
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(at))
			begin := time.Now()
			ofBubble = Base(begin)
			require.True(t, Inside())
			require.True(t, isOff(time.Since(ofOutside)), at)
			require.True(t, isOff(begin.Sub(ofOutside)), at)
			require.Zero(t, time.Since(ofBubble), at)
			time.Sleep(time.Hour + 1)
			require.Equal(t, time.Hour+1, time.Since(ofBubble), at)
			now := time.Now()
			require.Equal(t, time.Hour+1, now.Sub(ofBubble), at)
		})
		require.True(t, isOff(time.Since(ofBubble)), at)
		now := time.Now()
		require.True(t, isOff(now.Sub(ofBubble)), at)
	}
}

// A Time of another release of Go is left alone.
func TestBaseOfAnotherGo(t *testing.T) {
	defer func(was bool) { known = was }(known)
	known = false
	now := time.Now()
	require.Equal(t, now, Base(now))
}
