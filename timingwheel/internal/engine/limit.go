package engine

import (
	"sync"
	"sync/atomic"
)

// limit bounds the pending one-shots of all shards. Each of its places is taken, or free for
// everyone, or spare: kept by the shard where it was last taken.
//
// A count of what is pending would be a third of the lines. But every processor would write
// that line twice a timer: an add and a cancel took 1.1 to 1.6 times as long with two busy
// processors, and with more of them the line is all that they do. So a shard gets its places
// in lots as long as there are plenty, and keeps what it gives back. Its writes then are on
// a line of its own.
//
// The bound stays exact. Before a take fails, all that is spare becomes free for everyone.
type limit struct {
	max    int64
	plenty int64        // with fewer free places, shards take and give back one at a time
	shares []*share     // of all shards
	free   atomic.Int64 // below 0 after force

	// moving is held while places move between free and a share. So a sweep misses
	// none that is on its way. Lock order: shard, moving.
	moving sync.Mutex
	lent   atomic.Int32 // none, sweeping or some
}

// The spare places, as far as they are known. A take that fails need not look through the
// shares if there are none, which is so where many fail.
const (
	none     = iota // there are none, but for one that is given back at this moment
	sweeping        // they are being made free
	some            // there may be some
)

// lot is how many places move at a time.
const lot = 64

func newLimit(max, shards int) *limit {
	if max == 0 {
		return nil
	}
	l := &limit{max: int64(max), plenty: int64(shards * lot)}
	l.free.Store(l.max)
	return l
}

// share is what a shard has of a limit. The caller of its methods holds the lock of the
// shard. Without a limit they do nothing.
type share struct {
	limit *limit       // nil: none
	spare atomic.Int64 // lowered also by others, to 0
}

func (s *share) join(l *limit) {
	if l != nil {
		s.limit = l
		l.shares = append(l.shares, s)
	}
}

func (s *share) exists() bool { return s.limit != nil }

// take takes n places if there are as many, and none otherwise. It fails only if there are
// fewer, or if places are given back behind its back, while it looks through the shares.
func (s *share) take(n int64) bool {
	l := s.limit
	if l == nil || n == 1 && (s.takeSpare() || s.takeLot()) {
		return true
	}
	before := l.lent.Load()
	if l.take(n) {
		return true
	}
	if before == none && l.lent.Load() == none { // both: a sweep or a lot may have come in between
		return false
	}
	l.moving.Lock()
	defer l.moving.Unlock()
	l.sweep()
	return l.take(n)
}

// takeSpare takes a place that is spare.
func (s *share) takeSpare() bool {
	for {
		spare := s.spare.Load()
		if spare == 0 {
			return false
		}
		if s.spare.CompareAndSwap(spare, spare-1) {
			return true
		}
	}
}

// takeLot takes a place, and makes others spare, if there are plenty.
func (s *share) takeLot() bool {
	l := s.limit
	if l.free.Load() <= l.plenty {
		return false
	}
	l.moving.Lock()
	defer l.moving.Unlock()
	l.lent.Store(some) // first: no take fails while the lot is on its way
	if !l.take(lot) {
		return false
	}
	s.spare.Add(lot - 1)
	return true
}

// force takes a place, whether or not there is one.
func (s *share) force() {
	if s.limit != nil && !s.takeSpare() {
		s.limit.free.Add(-1)
	}
}

// release gives a place back. The compiler inlines it, so that it costs nothing where there
// is no limit.
func (s *share) release() {
	if s.limit != nil {
		s.giveBack()
	}
}

func (s *share) giveBack() {
	l := s.limit
	if l.free.Load() < l.plenty {
		l.free.Add(1)
		return
	}
	spare := s.spare.Add(1)
	if l.lent.Load() != some { // after the Add: a sweep finds the place, or leaves this
		l.lent.Store(some)
	}
	if spare > 2*lot {
		s.returnLot()
	}
}

// returnLot makes what is spare beyond a lot free for everyone.
func (s *share) returnLot() {
	l := s.limit
	l.moving.Lock()
	defer l.moving.Unlock()
	if spare := s.spare.Load(); spare > lot {
		s.spare.Store(lot)
		l.free.Add(spare - lot)
	}
}

// take takes n free places if there are as many. It does not add first and undo that if
// it was too much: meanwhile it could refuse another caller for whom a place has become
// free.
func (l *limit) take(n int64) bool {
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

// sweep makes all that is spare free for everyone. The caller holds moving.
func (l *limit) sweep() {
	l.lent.Store(sweeping)
	for _, s := range l.shares {
		if s.spare.Load() > 0 {
			l.free.Add(s.spare.Swap(0))
		}
	}
	l.lent.CompareAndSwap(sweeping, none)
}

// taken returns how many places are taken. No other call may be under way.
func (l *limit) taken() int64 {
	taken := l.max - l.free.Load()
	for _, s := range l.shares {
		taken -= s.spare.Load()
	}
	return taken
}
