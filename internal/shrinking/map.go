// Package shrinking provides a map that gives its memory back. Go's maps do not: one that
// held two million keys keeps the room for them as long as it lives.
//
// To make a Go map anew when it has become much too large is simple, and O(1) if the cost
// is spread over the operations before. But the operation that does it has to copy all
// that is left, which is a long pause for a large map. So a [Map] is many small Go maps,
// the parts, and makes them anew one at a time. The number of parts follows the number of
// keys, one part at a time, by linear hashing (Litwin 1980).
package shrinking

import (
	"iter"
	"math/bits"
	"slices"
)

const (
	// splitAt and mergeAt bound the keys for each part, on average: with more there is
	// one part more, with fewer one part less. No operation touches more keys than a few
	// times splitAt. The two are far apart, so that a map of a steady size does neither.
	splitAt = 256
	mergeAt = 64

	// keep: a part that never had more keys than this is not made anew. A Go map with so
	// few keys has a single group of slots.
	keep = 8
)

// Map is a map whose room is bounded by a few times its keys, whatever it has held. All
// methods but All are O(1). It is not safe for concurrent use. Make one with [New].
//
// The methods take the hash of the key from the caller, who often has it already.
type Map[K comparable, V any] struct {
	parts []part[K, V]
	len   int
	hash  func(K) uint64
}

// A part has the keys whose hash ends in its number. See find.
type part[K comparable, V any] struct {
	m    map[K]V
	most int // keys that m has had
}

// New returns an empty map. The lowest bits of the hash decide where a key goes. The hash
// of a key must be the same at any time.
func New[K comparable, V any](hash func(K) uint64) Map[K, V] { return Map[K, V]{hash: hash} }

// Len returns the number of keys.
func (m *Map[K, V]) Len() int { return m.len }

// Get returns the value of a key, and false if there is none.
func (m *Map[K, V]) Get(hash uint64, key K) (v V, ok bool) {
	if m.len == 0 {
		return v, false
	}
	v, ok = m.find(hash).m[key]
	return v, ok
}

// Set gives a key a value.
func (m *Map[K, V]) Set(hash uint64, key K, v V) {
	if m.parts == nil {
		m.parts = []part[K, V]{{}}
	}
	m.len += m.find(hash).set(key, v)
	if m.len > splitAt*len(m.parts) {
		m.split()
	}
}

// Delete forgets a key, if it is there.
func (m *Map[K, V]) Delete(hash uint64, key K) {
	if m.len == 0 {
		return
	}
	m.len -= m.find(hash).delete(key)
	switch n := len(m.parts); {
	case m.len == 0:
		m.parts = nil
	case n > 1 && m.len < mergeAt*n:
		m.merge()
	}
}

// All iterates over the keys and their values, in no order. The map must not change
// meanwhile.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for i := range m.parts {
			for k, v := range m.parts[i].m {
				if !yield(k, v) {
					return
				}
			}
		}
	}
}

// Clear forgets all keys.
func (m *Map[K, V]) Clear() { m.parts, m.len = nil, 0 }

// find returns the part of a hash. With n parts, and the power of two w for which w <= n
// < 2w, the part is the hash modulo 2w. If there is no such part yet, it is the one from
// which that will be split: the hash modulo w.
func (m *Map[K, V]) find(hash uint64) *part[K, V] {
	n := uint64(len(m.parts))
	mask := uint64(1)<<bits.Len64(n) - 1
	i := hash & mask
	if i >= n {
		i = hash & (mask >> 1)
	}
	return &m.parts[i]
}

// buddy returns the number of the part from which part i was split.
func buddy(i int) int { return i &^ (1 << (bits.Len(uint(i)) - 1)) }

// split adds a part, and moves into it the keys of its buddy that belong there.
func (m *Map[K, V]) split() {
	last := len(m.parts)
	m.parts = append(m.parts, part[K, V]{})
	from, to := &m.parts[buddy(last)], &m.parts[last]
	for k, v := range from.m {
		if m.find(m.hash(k)) == to {
			to.set(k, v)
			delete(from.m, k)
		}
	}
}

// merge moves the keys of the last part to its buddy, and removes it.
func (m *Map[K, V]) merge() {
	last := len(m.parts) - 1
	to := &m.parts[buddy(last)]
	for k, v := range m.parts[last].m {
		to.set(k, v)
	}
	m.parts[last] = part[K, V]{}
	m.parts = m.parts[:last]
	if cap(m.parts) > 4*max(last, keep) {
		m.parts = slices.Clone(m.parts)
	}
}

// set returns how many keys it has added.
func (p *part[K, V]) set(key K, v V) int {
	if p.m == nil {
		p.m = make(map[K]V)
	}
	before := len(p.m)
	p.m[key] = v
	p.most = max(p.most, len(p.m))
	return len(p.m) - before
}

// delete returns how many keys it has removed. It makes the map anew when most of its
// room is not needed: the keys that it copies are fewer than those removed since.
func (p *part[K, V]) delete(key K) int {
	before := len(p.m)
	delete(p.m, key)
	if p.most > keep && len(p.m) < p.most/4 {
		fresh := make(map[K]V, len(p.m))
		for k, v := range p.m {
			fresh[k] = v
		}
		p.m, p.most = fresh, len(fresh)
	}
	return before - len(p.m)
}
