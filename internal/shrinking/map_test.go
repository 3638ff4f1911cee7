package shrinking

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func hash(k int) uint64 {
	h := uint64(k) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

func newMap() Map[int, int] { return New[int, int](hash) }

// verify checks that each key is in its part, and that the parts are as many and as large
// as they may be.
func verify(t testing.TB, m *Map[int, int]) {
	t.Helper()
	n := 0
	for i := range m.parts {
		p := &m.parts[i]
		n += len(p.m)
		for k := range p.m {
			require.Same(t, p, m.find(hash(k)))
		}
		require.LessOrEqual(t, len(p.m), p.most)
		require.True(t, p.most <= keep || len(p.m) >= p.most/4, "%d keys in the room for %d", len(p.m), p.most)
		require.LessOrEqual(t, len(p.m), 8*splitAt, "an operation touches a part's keys")
	}
	require.Equal(t, m.Len(), n)
	require.LessOrEqual(t, n, splitAt*len(m.parts))
	require.LessOrEqual(t, cap(m.parts), 4*max(len(m.parts), keep))
	if n == 0 {
		require.Empty(t, m.parts)
	} else if len(m.parts) > 1 {
		require.GreaterOrEqual(t, n, mergeAt*len(m.parts)-mergeAt)
	}
}

// TestModel steps a map of Go's beside it, which grows and shrinks in turn.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m, model := newMap(), map[int]int{}
	for step := range 200_000 {
		k := r.IntN(30_000)
		if grow := step/40_000%2 == 0; grow == (r.IntN(8) > 0) {
			m.Set(hash(k), k, step)
			model[k] = step
		} else {
			m.Delete(hash(k), k)
			delete(model, k)
		}
		v, ok := m.Get(hash(k), k)
		if want, has := model[k]; ok != has || v != want || len(model) != m.Len() {
			require.Fail(t, "model", "%d: %d, %t, want %d, %t", k, v, ok, want, has)
		}
		if step%5000 == 0 {
			verify(t, &m)
			require.Equal(t, model, maps.Collect(m.All()))
		}
	}
	for range m.All() {
		break
	}
	for k := range model {
		m.Delete(hash(k), k)
	}
	verify(t, &m)
	m.Set(hash(1), 1, 1)
	m.Clear()
	verify(t, &m)
	_, ok := m.Get(hash(1), 1)
	require.False(t, ok)
	m.Delete(hash(1), 1)
}

// What a map holds follows its keys, up and down.
func TestMemoryIsGivenBack(t *testing.T) {
	held := func() int {
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int(s.HeapAlloc)
	}
	const keys = 500_000
	order := rand.New(rand.NewPCG(3, 4)).Perm(keys)
	before := held()
	m := newMap()
	for k := range keys {
		m.Set(hash(k), k, k)
	}
	full := held() - before
	for left := keys; left > 400; left /= 2 {
		for _, k := range order[left/2 : left] {
			m.Delete(hash(k), k)
		}
		verify(t, &m)
		require.Less(t, (held()-before-64<<10)*keys, 5*full*(left/2), "with %d keys left", left/2)
	}
	runtime.KeepAlive(&m)
	runtime.KeepAlive(order)
}
