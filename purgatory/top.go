package purgatory

import (
	"cmp"
	"fmt"
	"slices"
)

// KeyCount is a key and its number of operations, as [Purgatory.Top] returns it.
type KeyCount struct {
	Key     string // The key, as fmt.Sprint writes it.
	Pending int    // Operations parked under the key. One under two keys counts in both.
}

// Top returns the n keys with the most parked operations, those with most first. It
// returns fewer if there are fewer keys, and none if n is not positive. It picks any of
// several keys with equal counts. Top is for diagnosis, not for decisions: operations
// come and go while it counts, and the figures of different keys are from different
// moments.
//
// It counts anew at each call: O(keys + operations that share a key), 40 to 400 ms with a
// million parked. It holds one stripe's lock at a time: for one pass over 1/64 of the
// keys (2 ms of a million), and then for 32 operations at a time. It formats the n keys
// with no lock held. Top may be called at any time, after Close too.
func (p *Purgatory[K]) Top(n int) []KeyCount {
	p.mustBeMade("Top")
	var most []crowd[K]
	for i := range p.stripes {
		s := &p.stripes[i]
		most = append(most, s.crowds(s.keys(n))...)
		slices.SortFunc(most, func(a, b crowd[K]) int { return cmp.Compare(b.n, a.n) })
		most = most[:min(len(most), max(n, 0))]
	}
	top := make([]KeyCount, 0, len(most))
	for _, c := range most {
		top = append(top, KeyCount{fmt.Sprint(c.key), c.n})
	}
	slices.SortFunc(top, func(a, b KeyCount) int {
		return cmp.Or(cmp.Compare(b.Pending, a.Pending), cmp.Compare(a.Key, b.Key))
	})
	return top
}

// crowd is a key, and how many operations are parked under it.
type crowd[K comparable] struct {
	key K
	n   int
}

// crowds counts the operations of keys that are not counted yet. It leaves out those that
// have none any more.
func (s *stripe[K]) crowds(keys []crowd[K]) []crowd[K] {
	for i := range keys {
		if c := &keys[i]; c.n == 0 {
			for v := (visit[K]{stripe: s, key: c.key}); v.op() != nil; {
				c.n++
			}
		}
	}
	return slices.DeleteFunc(keys, func(c crowd[K]) bool { return c.n == 0 })
}

// keys returns the keys of the stripe with more than one operation, not counted yet, and
// singles at most of those with one.
func (s *stripe[K]) keys(singles int) (keys []crowd[K]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, head := range s.heads.All() {
		switch {
		case head.next != head:
			keys = append(keys, crowd[K]{key, 0})
		case singles > 0:
			singles--
			keys = append(keys, crowd[K]{key, 1})
		}
	}
	return keys
}
