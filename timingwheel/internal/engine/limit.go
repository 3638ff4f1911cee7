package engine

import "sync/atomic"

// limit counts the pending one-shots of all shards. Nil is no limit.
type limit struct {
	max     int64
	pending atomic.Int64
}

func newLimit(n int) *limit {
	if n == 0 {
		return nil
	}
	return &limit{max: int64(n)}
}

// take takes n places if there are as many, and none otherwise. It does not add first and
// undo that if it was too much: meanwhile it could refuse another caller for whom a place
// has become free.
func (l *limit) take(n int64) bool {
	if l == nil {
		return true
	}
	for {
		pending := l.pending.Load()
		if n > l.max-pending { // a sum could overflow
			return false
		}
		if l.pending.CompareAndSwap(pending, pending+n) {
			return true
		}
	}
}

// force takes a place, whether or not there is one.
func (l *limit) force() {
	if l != nil {
		l.pending.Add(1)
	}
}

func (l *limit) release() {
	if l != nil {
		l.pending.Add(-1)
	}
}
