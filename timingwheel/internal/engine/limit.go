package engine

import "sync/atomic"

// limit bounds the pending one-shots of all shards. A nil limit has no bound.
//
// All shards write one word, twice a timer, so an add and a cancel take 1.1 to 1.6 times as
// long while two processors do nothing else, and the same time on one. Only a wheel of
// WithMaxPending pays that. Rejected: shards that borrow places in lots. They saved this
// on two processors, but an exact bound then needs a sweep of what other shards have
// borrowed, which was six times as much code.
//
// The invariant: max is free plus the places that are taken. So a take fails exactly if fewer
// places are free.
type limit struct {
	max  int64
	free atomic.Int64 // below 0 after force
}

// newLimit returns a limit of max places, and nil for 0.
func newLimit(max int) *limit {
	if max == 0 {
		return nil
	}
	l := &limit{max: int64(max)}
	l.free.Store(l.max)
	return l
}

// take takes n places if as many are free, and none otherwise. It does not subtract first
// and undo that if it was too much: meanwhile it could refuse a caller for whom a place has
// become free.
func (l *limit) take(n int64) bool {
	if l == nil {
		return true
	}
	for {
		free := l.free.Load()
		if n > free {
			return false
		}
		if l.free.CompareAndSwap(free, free-n) {
			return true
		}
	}
}

// force takes a place, whether or not one is free.
func (l *limit) force() {
	if l != nil {
		l.free.Add(-1)
	}
}

// release gives a place back.
func (l *limit) release() {
	if l != nil {
		l.free.Add(1)
	}
}

// taken returns how many places are taken.
func (l *limit) taken() int64 { return l.max - l.free.Load() }
