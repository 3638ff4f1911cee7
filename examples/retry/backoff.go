package main

import "time"

// backoff says how long to wait before the next attempt.
type backoff struct {
	base, cap time.Duration
	random    func() float64 // from 0 up to 1; called with a lock held
}

// after returns the wait after this many failures. It is base, doubled with each failure
// after the first, but at most cap; of that, the upper half is random. Without the random
// part, calls that have failed together would come back together, and fail again.
func (b backoff) after(failures int) time.Duration {
	most := b.cap
	if doublings := failures - 1; b.base <= b.cap>>doublings { // so that nothing overflows
		most = b.base << doublings
	}
	half := most / 2
	return half + time.Duration(b.random()*float64(most-half))
}
