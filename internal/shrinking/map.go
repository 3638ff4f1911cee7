// Package shrinking provides a map that gives its memory back. Go's maps do not: one that
// held two million keys keeps the room for them as long as it lives.
package shrinking

import "iter"

// keep: a map that never had more keys than this is not made anew. A Go map with so few
// keys has a single group of slots.
const keep = 8

// Map is a Go map that is made anew when it has less than a quarter of the keys that it
// had at most. The zero Map is empty. It is not safe for concurrent use.
//
// The cost of making it anew is spread over the keys that were deleted since, so each
// method but All is O(1) on average. But the Delete that does it copies what is left. So
// a large map whose pauses matter has to be many small ones: with 64 of them, the longest
// Delete among a million keys took 0.2 ms (it copies 4,000).
type Map[K comparable, V any] struct {
	m    map[K]V
	most int // keys that m has had
}

// Len returns the number of keys.
func (m *Map[K, V]) Len() int { return len(m.m) }

// Get returns the value of a key, and false if there is none.
func (m *Map[K, V]) Get(key K) (v V, ok bool) {
	v, ok = m.m[key]
	return v, ok
}

// Set gives a key a value.
func (m *Map[K, V]) Set(key K, v V) {
	if m.m == nil {
		m.m = make(map[K]V)
	}
	m.m[key] = v
	m.most = max(m.most, len(m.m))
}

// Delete forgets a key, if it is there.
func (m *Map[K, V]) Delete(key K) {
	delete(m.m, key)
	if m.most > keep && len(m.m) < m.most/4 {
		m.remake()
	}
}

// remake has a frame of its own: a goroutine with a small stack may call Delete.
//
//go:noinline
func (m *Map[K, V]) remake() {
	fresh := make(map[K]V, len(m.m))
	for k, v := range m.m {
		fresh[k] = v
	}
	m.m, m.most = fresh, len(fresh)
}

// All iterates over the keys and their values, in no order. The map must not change
// meanwhile.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for k, v := range m.m {
			if !yield(k, v) {
				return
			}
		}
	}
}

// Clear forgets all keys.
func (m *Map[K, V]) Clear() { m.m, m.most = nil, 0 }
