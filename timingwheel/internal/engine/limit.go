package engine

import "sync/atomic"

// Limit counts the pending one-shots of all shards. Nil is no limit.
type Limit struct {
	Max     int64
	Pending atomic.Int64
}

func newLimit(n int) *Limit {
	if n == 0 {
		return nil
	}
	return &Limit{Max: int64(n)}
}

// Take takes n places if there are as many, and none otherwise. It does not add first and
// undo that if it was too much: meanwhile it could refuse another caller for whom a place
// has become free.
func (l *Limit) Take(n int64) bool {
	if l == nil {
		return true
	}
	for {
		pending := l.Pending.Load()
		if n > l.Max-pending { // a sum could overflow
			return false
		}
		if l.Pending.CompareAndSwap(pending, pending+n) {
			return true
		}
	}
}

// force takes a place, whether or not there is one.
func (l *Limit) force() {
	if l != nil {
		l.Pending.Add(1)
	}
}

func (l *Limit) release() {
	if l != nil {
		l.Pending.Add(-1)
	}
}
