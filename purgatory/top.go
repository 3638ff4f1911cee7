package purgatory

import (
	"cmp"
	"fmt"
	"slices"
)

// KeyCount is what [Purgatory.Top] tells of a key.
type KeyCount struct {
	Key     string // as fmt.Sprint writes it
	Pending int    // operations that are parked under the key; one under two keys counts in both
}

// Top returns the n keys that most operations are parked under, those with most first,
// and fewer if there are fewer keys. Which ones of several with equally many it returns
// is left to chance. With an n that is not positive it returns none. It is for people who
// look, not for decisions: operations come and go while it counts, and one key's figure
// is older than the next one's.
//
// It counts afresh, since nobody keeps a count: O(keys + operations that share a key),
// which takes from 40 to 400 ms with a million parked. It holds one stripe's lock at a
// time: for one pass over the keys of that stripe, a part in 64 of all (2 ms if there are
// a million), and then for 32 operations at a time. Only the n keys become text, with no
// lock held. Top may be called at any time, after Close too.
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
