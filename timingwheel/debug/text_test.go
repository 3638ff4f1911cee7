package debug

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
)

func TestText(t *testing.T) {
	f := newFake()
	s := sample{Name: "a", Stats: f.stats, Snapshot: f.snapshot, now: time.Now()}
	for _, in := range []time.Duration{-time.Millisecond, -time.Microsecond, 5 * time.Millisecond, 5 * time.Millisecond, 90 * time.Second, 90*time.Second + time.Millisecond} {
		s.Snapshot.Next = append(s.Snapshot.Next, s.now.Add(in))
	}
	var out strings.Builder
	writeText(&out, s)
	require.Equal(t, `"a": 1234 pending, made 1m23.46s ago, tick 1ms, shards 2

  scheduled  expired  stopped  handed back  reset  cascaded  rejected  caller runs  discarded  refused  panicked  waiting for room  in executor  wake-ups
      10000     6000     2766            0     55      4444         3            0          2        4         1                 5            7       900

   slot     ring  slots   hand at  buckets  entries  cascaded
    1ms    512ms    512  1m23.46s      100      234         0
  512ms  4m22.1s    512  1m23.46s      101     1000      4444

lateness since the start: p50 1.024ms, p99 1.7ms, max 1.7ms
lateness of the last minute: this is the first sample; ask again
next: 2 overdue by up to 1ms, 2 in 5ms, 2 in 1m30s
`, out.String())

	s.Recent.Span = 61_234_567_890
	s.Recent.Lateness = s.Stats.Lateness.Sub(timingwheel.Histogram{Counts: [timingwheel.HistogramBuckets]int64{10: 5900}, Max: s.Stats.Lateness.Max})
	s.Stats.Closed, s.Stats.Precise = true, true
	s.Stats.HeldUp, s.Stats.HeldUpBy = 2*time.Second, "main.work"
	out.Reset()
	writeText(&out, s)
	require.Contains(t, out.String(), `"a": 1234 pending, stopped, made 1m23.46s ago, tick 1ms, shards 2, precise wake-ups`+"\nheld up for 2s by \"main.work\"\n")
	require.Contains(t, out.String(), "\nlateness of the last 1m1.2s: p50 1.7ms, p99 1.7ms, max 1.7ms\n")
}

// Names are the program's own, but they may come from elsewhere.
const evil = "</script><img src=x onerror=alert(1)>\x1b[2J\n"

func TestEvilName(t *testing.T) {
	h := NewHandler()
	h.add(evil, newFake())
	for _, query := range []string{"?format=text", "?format=json", "?format=html", "?format=html&wheel=%3Cimg%3E"} {
		body := get(h, "/"+query).Body.String()
		require.NotContains(t, body, "\x1b", query)
		if !strings.Contains(query, "text") { // no browser takes that for markup
			require.NotContains(t, body, "<img", query)
		}
	}
	event := string(h.event(""))
	require.NotContains(t, event, "<")
	require.Equal(t, 3, strings.Count(event, "\n"), "a name does not end an event")
	for _, query := range []string{"?format=%3Cimg%3E", "?file=%3Cimg%3E", "?format=json&wheel=%3Cimg%3E"} {
		require.NotContains(t, get(h, "/"+query).Body.String(), "img", "nothing is sent back")
	}
}

// A timer of years is on a level whose interval is the longest Duration.
func TestTextOfAFarTimer(t *testing.T) {
	w := timingwheel.New()
	defer w.Stop()
	w.AfterFunc(3*365*24*time.Hour, func() {})
	h := NewHandler()
	h.Add("a", w)
	require.Contains(t, get(h, "/?format=text").Body.String(), "2561944h26m40s")
}

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1.235ms": 1_234_567, "-12.35ms": -12_345_678, "1m23.46s": 83_456_789_012, "26h20m0s": 94_800_123_456_789,
		"2561944h26m40s": math.MaxInt64, "-2561944h26m40s": math.MinInt64,
	} {
		require.Equal(t, want, short(d).String())
	}
}
