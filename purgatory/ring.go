package purgatory

// link is an operation's place under one of its keys. All links of a key form a ring, in the
// order of parking; the stripe's map has the first, the head. So a key costs its slot in the
// map and nothing else, and leaves the map together with its last operation.
//
// A link without an operation is a mark of a visit, see visit.go. A ring that has only marks
// left is out of the map, and its marks leave it when their visits end.
//
// All of it is guarded by the stripe's lock, but for op, key, stripe and more, which do not
// change.
type link[K comparable] struct {
	op         *Op[K]   // nil: a mark
	next, prev *link[K] // in the ring; nil while in none
	more       *link[K] // of the same operation under its next key
	key        K
	n          int32 // of the head: operations in the ring
	stripe     uint8
}

// insertBefore puts l into the ring of at, before it.
func (l *link[K]) insertBefore(at *link[K]) {
	l.prev, l.next = at.prev, at
	l.prev.next, l.next.prev = l, l
}

// append puts the link of an operation at the end of its key's ring. O(1).
func (s *stripe[K]) append(l *link[K]) {
	s.watched++
	head := s.heads[l.key]
	if head != nil {
		l.insertBefore(head)
		head.n++
		return
	}
	l.next, l.prev, l.n = l, l, 1
	if s.heads == nil {
		s.heads = make(map[K]*link[K])
	}
	s.heads[l.key] = l
	s.most = max(s.most, len(s.heads))
}

// remove takes a link out of its ring. O(1). It reports false if the link is in none.
func (s *stripe[K]) remove(l *link[K]) bool {
	if l.next == nil {
		return false
	}
	head := s.heads[l.key] // of another ring, or nil, if that of l has only marks
	n := int32(0)
	if head != nil {
		n = head.n
	}
	if l.op != nil {
		s.watched--
		n--
		head.n = n
	}
	if head == l && n > 0 {
		l.next.n = n
		s.heads[l.key] = l.next
	}
	if l.op != nil && n == 0 {
		s.removeKey(l.key)
	}
	l.prev.next, l.next.prev = l.next, l.prev
	l.next, l.prev = nil, nil
	return true
}

// keepMap is how large a map may have been that an empty stripe keeps. Maps do not shrink.
const keepMap = 64

func (s *stripe[K]) removeKey(key K) {
	delete(s.heads, key)
	if len(s.heads) == 0 && s.most > keepMap {
		s.heads, s.most = nil, 0
	}
}
