package attempt

import (
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = time.Second
	maxBackoff   = time.Hour
)

// Backoff returns a second, two, four, up to an hour, less up to a half at random: the default.
func Backoff(attempt int) time.Duration {
	d := maxBackoff
	if n := max(attempt, 1) - 1; n < 12 {
		d = min(firstBackoff<<n, maxBackoff)
	}
	return d - rand.N(d/2)
}
