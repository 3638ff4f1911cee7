package clock

import "time"

// WholeMicros rounds up, so that what an engine stores is not early.
func WholeMicros(t time.Time) time.Time {
	if rest := time.Duration(t.Nanosecond()) % time.Microsecond; rest > 0 {
		t = t.Add(time.Microsecond - rest)
	}
	return t.Round(0)
}
