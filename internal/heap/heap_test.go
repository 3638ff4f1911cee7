package heap

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// verify checks that the least of all items is in its place, that no item is recycled while
// in use, and that recycled items hold nothing.
func (h *Heap[T]) verify(t *testing.T) {
	t.Helper()
	all := map[*item[T]]bool{}
	if h.least != nil {
		all[h.least] = true
	}
	for _, v := range h.rest.Values() {
		it := v.(*item[T])
		require.False(t, all[it], "an item twice in the heap")
		all[it] = true
		require.Less(t, compare[T](h.least, it), 0)
	}
	require.Len(t, all, h.Len())
	require.LessOrEqual(t, len(h.spare), maxSpare)
	for _, it := range h.spare {
		require.False(t, all[it], "a spare item is in the heap")
		require.Zero(t, *it)
	}
}

// TestModel steps a sorted slice beside the heap. Times repeat, so the order of pushes
// decides often.
func TestModel(t *testing.T) {
	type elem struct {
		id int
		at time.Duration
	}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := New[int]()
		var model []elem
		for id := range 400 {
			pushes := 1 + 2*(id/50%2) // of 4: the heap becomes empty and full alternately
			if r.IntN(4) < pushes {
				e := elem{id, time.Duration(r.IntN(40) - 20)}
				h.Push(e.id, e.at)
				n, _ := slices.BinarySearchFunc(model, e.at, func(m elem, at time.Duration) int {
					if m.at <= at {
						return -1
					}
					return 1
				})
				model = slices.Insert(model, n, e)
			} else if v, at, ok := h.Pop(); len(model) == 0 {
				require.False(t, ok)
			} else {
				require.True(t, ok)
				require.Equal(t, model[0], elem{v, at})
				model = model[1:]
			}
			h.verify(t)
			require.Equal(t, len(model), h.Len())
			v, at, ok := h.Peek()
			require.Equal(t, len(model) > 0, ok)
			if ok {
				require.Equal(t, model[0], elem{v, at})
			}
		}
	}
}

func TestItemsAreRecycledUpToABound(t *testing.T) {
	h := New[*int]()
	for range 2 * maxSpare {
		h.Push(new(int), 0)
	}
	for h.Len() > 0 {
		h.Pop()
	}
	require.Len(t, h.spare, maxSpare)
	h.verify(t)

	v := new(int)
	pushAndPop := func() { h.Push(v, 1); h.Pop() }
	require.Zero(t, testing.AllocsPerRun(100, pushAndPop), "alone")
	for range 100 { // gods itself reallocates when a short list shrinks
		h.Push(v, 0)
	}
	require.Zero(t, testing.AllocsPerRun(100, pushAndPop))
}

func BenchmarkPushPop2000(b *testing.B) {
	h := New[*int]()
	v := new(int)
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		h.Push(v, time.Duration(r.Int64N(1e9)))
	}
	b.ReportAllocs()
	for b.Loop() {
		_, at, _ := h.Pop()
		h.Push(v, at+time.Duration(r.Int64N(1e9)))
	}
}
