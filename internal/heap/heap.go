// Package heap is a typed min-heap over the binary heap of [github.com/emirpasic/gods].
//
// The order is by the time with which a value was pushed. Values of equal times are in
// the order of their pushes: first in, first out. Each item keeps its own copy of its
// time, so nothing that is written to a value later can break the order.
//
// Push and Pop cost O(log n), Peek and Len O(1). Items are pointers, and Pop recycles
// them: gods stores interfaces, and only a pointer goes into an interface without an
// allocation.
package heap

import (
	"cmp"
	"time"

	"github.com/emirpasic/gods/trees/binaryheap"
)

// maxSpare bounds the items kept for reuse, and so what an emptied heap holds on to.
const maxSpare = 1024

// Heap is a min-heap of values by time. It is not safe for concurrent use. Make one with
// [New].
//
// The least item is in a place of its own. So a look at it is cheap, and a heap that has one
// item at most, again and again, makes no garbage: a list of gods that is emptied gives its
// array back.
type Heap[T any] struct {
	least *item[T]         // nil if the heap is empty
	rest  *binaryheap.Heap // of *item[T], none before least
	spare []*item[T]       // popped items, their values cleared
	seq   uint64           // of the last Push
}

type item[T any] struct {
	value T
	at    time.Duration
	seq   uint64
}

// New returns an empty heap.
func New[T any]() *Heap[T] {
	return &Heap[T]{rest: binaryheap.NewWith(compare[T])}
}

func compare[T any](a, b any) int {
	x, y := a.(*item[T]), b.(*item[T])
	if c := cmp.Compare(x.at, y.at); c != 0 {
		return c
	}
	return cmp.Compare(x.seq, y.seq)
}

// Push adds v under the time at.
func (h *Heap[T]) Push(v T, at time.Duration) {
	h.seq++
	it := h.item()
	*it = item[T]{value: v, at: at, seq: h.seq}
	switch {
	case h.least == nil:
		h.least = it
	case at < h.least.at:
		h.rest.Push(h.least)
		h.least = it
	default:
		h.rest.Push(it)
	}
}

func (h *Heap[T]) item() *item[T] {
	last := len(h.spare) - 1
	if last < 0 {
		return new(item[T])
	}
	it := h.spare[last]
	h.spare[last] = nil
	h.spare = h.spare[:last]
	return it
}

// Peek returns the least value and its time. ok is false on an empty heap.
func (h *Heap[T]) Peek() (v T, at time.Duration, ok bool) {
	if h.least == nil {
		return v, 0, false
	}
	return h.least.value, h.least.at, true
}

// Pop removes the least value and returns it with its time. ok is false on an empty heap.
func (h *Heap[T]) Pop() (v T, at time.Duration, ok bool) {
	it := h.least
	if it == nil {
		return v, 0, false
	}
	h.least = nil
	if next, ok := h.rest.Pop(); ok {
		h.least = next.(*item[T])
	}
	v, at = it.value, it.at
	if len(h.spare) < maxSpare {
		*it = item[T]{}
		h.spare = append(h.spare, it)
	}
	return v, at, true
}

// Len returns the number of values.
func (h *Heap[T]) Len() int {
	if h.least == nil {
		return 0
	}
	return 1 + h.rest.Size()
}
