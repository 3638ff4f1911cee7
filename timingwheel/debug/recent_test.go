package debug

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// One hiccup, half a minute after the start, is in the last minute for a minute. The
// count of each step shows that the last minute has every sample of its span.
func TestRecent(t *testing.T) {
	var h history
	var all timingwheel.Histogram
	start := time.Now()
	const step = 250 * time.Millisecond
	for n := range 2000 {
		now := start.Add(time.Duration(n) * step)
		all.Counts[3]++
		all.Max = max(all.Max, 7*time.Microsecond)
		if n == 120 {
			all.Counts[20]++
			all.Max = time.Second
		}
		r := h.add(now, all)
		switch {
		case n == 0:
			require.Equal(t, recent{}, r)
		case now.Sub(start) <= recentSpan:
			require.Equal(t, now.Sub(start), r.Span, "as long as there have been samples")
		default:
			require.GreaterOrEqual(t, r.Span, recentSpan)
			require.LessOrEqual(t, r.Span, recentSpan+recentStep)
		}
		require.Equal(t, int64(r.Span/step), r.Lateness.Counts[3])
		hiccup := n >= 120 && now.Add(-r.Span).Before(start.Add(120*step))
		require.Equal(t, hiccup, r.Lateness.Max > time.Millisecond, "sample %d", n)
		require.Equal(t, hiccup, r.Lateness.Counts[20] == 1, "sample %d", n)
		require.LessOrEqual(t, len(h.marks), 14)
	}
	require.Equal(t, time.Second, all.Max)
}

// There are no samples without a watcher. A task that was late then counts if it was within the
// last minute; otherwise the history begins anew.
func TestRecentAfterAGap(t *testing.T) {
	var h history
	now := time.Now()
	at := func(later time.Duration, count int64) recent {
		now = now.Add(later)
		return h.add(now, timingwheel.Histogram{Counts: [timingwheel.HistogramBuckets]int64{count}})
	}
	require.Zero(t, at(0, 10).Span)
	r := at(40*time.Second, 15)
	require.Equal(t, 40*time.Second, r.Span)
	require.Equal(t, int64(5), r.Lateness.Total())
	r = at(50*time.Second, 25) // the first mark is too old, the second is not
	require.Equal(t, 50*time.Second, r.Span)
	require.Equal(t, int64(10), r.Lateness.Total())
	require.Zero(t, at(time.Hour, 1000))
	require.Equal(t, time.Second, at(time.Second, 1001).Span)
}
