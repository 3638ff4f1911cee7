package worker

import "time"

// Rarely spaces log lines that are about one thing: the zero rarely lets the first one
// through, and then one in ten seconds.
type Rarely struct{ last time.Time }

// Now reports whether a line may be logged now, and notes that it is.
func (r *Rarely) Now() bool {
	if !r.last.IsZero() && time.Since(r.last) < 10*time.Second {
		return false
	}
	r.last = time.Now()
	return true
}
