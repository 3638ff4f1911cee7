package purgatory

import (
	"sync"
	"sync/atomic"

	"github.com/tickwheel/tickwheel/internal/shrinking"
)

// stripes is a power of two, and their numbers fit core.stripe.
const stripes = 64

// stripe has the operations of some of the keys. One stripe's lock is held at a time, and
// none while code of a user runs, nor together with a lock of the wheel.
type stripe[K comparable] struct {
	mu     sync.Mutex // guards what follows up to checks
	closed bool
	heads  shrinking.Map[K, *link[K]]

	// Of the operations whose first key is in this stripe.
	parked    int64
	pending   int64
	immediate int64
	ended     [Closed + 1]int64

	watched int64 // links in this stripe

	checks  atomic.Int64 // of those operations
	running atomic.Int32 // calls of their done, see trampoline
	_       [12]byte     // keeps the next stripe's lock out of this one's cache lines, with 64 bits
}

// count counts an operation that has ended without having been registered.
func (s *stripe[K]) count(o Outcome, immediate int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked++
	s.ended[o]++
	s.immediate += immediate
}

// link registers an operation under a key, and reports false after Close.
func (s *stripe[K]) link(l *link[K], home bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if home {
		s.parked++
		s.pending++
	}
	s.append(l)
	return true
}

// unlink takes an operation that has ended out from under a key. Outcome Pending means
// that it was never there.
func (s *stripe[K]) unlink(l *link[K], home bool, o Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.remove(l) || !home {
		return
	}
	s.pending--
	if o == Pending {
		s.parked--
	} else {
		s.ended[o]++
	}
}

// first returns the first operation under a key, and whether there is no other. It
// returns nil for a key that nothing is parked under, and, not alone, for a mark.
func (s *stripe[K]) first(key K) (o *Op[K], alone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	head, ok := s.heads.Get(key)
	if !ok {
		return nil, true
	}
	return head.op, head.next == head
}

// close refuses what comes later, and returns the operations that are linked here.
func (s *stripe[K]) close() []*Op[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	ops := make([]*Op[K], 0, s.watched)
	for _, head := range s.heads.All() {
		l := head
		for {
			if l.op != nil {
				ops = append(ops, l.op)
			}
			if l = l.next; l == head {
				break
			}
		}
	}
	return ops
}
