package purgatory

// link is an operation's place under one of its keys. All links of a key form a ring, in
// the order of parking; the stripe's map has the first, the head. So a key costs its slot
// in the map and nothing else, and leaves the map together with its last operation.
//
// A link without an operation is a mark of a visit, see visit.go. A ring that has only
// marks left is out of the map, and its marks leave it when their visits end.
//
// Next and prev are guarded by the lock of the key's stripe. The rest does not change.
type link[K comparable] struct {
	op         *Op[K]   // nil: a mark
	next, prev *link[K] // in the ring; nil while in none
	more       *link[K] // of the same operation under its next key
	key        K
}

// insertBefore puts l into the ring of at, before it.
func (l *link[K]) insertBefore(at *link[K]) {
	l.prev, l.next = at.prev, at
	l.prev.next, l.next.prev = l, l
}

// takeOut takes l out of its ring, and returns the next link of that, or nil if it was
// alone.
func (l *link[K]) takeOut() (next *link[K]) {
	next = l.next
	l.prev.next, next.prev = next, l.prev
	l.next, l.prev = nil, nil
	if next == l {
		return nil
	}
	return next
}

// hasOps reports whether there are operations in a ring. O(visits that are under way).
func hasOps[K comparable](ring *link[K]) bool {
	if ring == nil {
		return false
	}
	for l := ring; l.op == nil; {
		if l = l.next; l == ring {
			return false
		}
	}
	return true
}

// append puts the link of an operation at the end of its key's ring. O(1).
func (s *stripe[K]) append(l *link[K]) {
	s.watched++
	if head, ok := s.heads.Get(l.key); ok {
		l.insertBefore(head)
		return
	}
	l.next, l.prev = l, l
	s.heads.Set(l.key, l)
}

// remove takes a link out of its ring, and reports false if it is in none. O(1).
func (s *stripe[K]) remove(l *link[K]) bool {
	if l.next == nil {
		return false
	}
	next := l.takeOut()
	if l.op != nil {
		s.watched--
	}
	if l.op != nil && !hasOps(next) {
		s.heads.Delete(l.key)
		return true
	}
	// The head is another ring's, or nil, for a mark whose own ring has no operations.
	if head, _ := s.heads.Get(l.key); head == l {
		s.heads.Set(l.key, next)
	}
	return true
}
