package shrinking

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// verify checks that the room is for at most four times the keys.
func verify(t testing.TB, m *Map[int, int]) {
	t.Helper()
	require.LessOrEqual(t, len(m.m), m.most)
	require.True(t, m.most <= keep || len(m.m) >= m.most/4, "%d keys in the room for %d", len(m.m), m.most)
}

// TestModel steps a built-in map beside it. The map grows and shrinks alternately.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m Map[int, int]
	model := map[int]int{}
	for step := range 200_000 {
		k := r.IntN(30_000)
		if grow := step/40_000%2 == 0; grow == (r.IntN(8) > 0) {
			m.Set(k, step)
			model[k] = step
		} else {
			m.Delete(k)
			delete(model, k)
		}
		v, ok := m.Get(k)
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
		m.Delete(k)
	}
	verify(t, &m)
	m.Set(1, 1)
	m.Clear()
	verify(t, &m)
	_, ok := m.Get(1)
	require.False(t, ok)
	m.Delete(1)
}

// The memory of a map follows its number of keys, up and down, whether or not other keys are set
// meanwhile. Clear frees all of it.
func TestMemoryIsGivenBack(t *testing.T) {
	for _, setting := range []bool{false, true} {
		const keys = 200_000
		order := rand.New(rand.NewPCG(3, 4)).Perm(keys)
		before := held()
		var m Map[int, int]
		fill := func() {
			for k := range keys {
				m.Set(k, k)
			}
		}
		fill()
		full := held() - before
		for left := keys; left > 400; left /= 2 {
			for _, k := range order[left/2 : left] {
				m.Delete(k)
				if setting {
					m.Set(order[0], k)
				}
			}
			verify(t, &m)
			require.Less(t, (held()-before-64<<10)*keys, 9*full*int64(left/2), "with %d keys left", left/2)
		}
		fill()
		m.Clear()
		require.Less(t, held()-before, full/8, "cleared")
		runtime.KeepAlive(&m)
		runtime.KeepAlive(order)
	}
}

func held() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
