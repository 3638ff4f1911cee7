package pool

import (
	"sync"
	"testing"
)

// The benchmark compares the cost of a worker's own value with other ways to have one. All workers
// run at once.
func BenchmarkLocal(b *testing.B) {
	type buffer [64]byte
	newBuffer := func() *buffer { return new(buffer) }
	pool := New(64, 0, Wait)
	local := NewLocal(pool, func(*Worker) *buffer { return newBuffer() }, nil)

	b.Run("local", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			k := pool.workers.enter(true)
			defer pool.workers.leave(k)
			for pb.Next() {
				(*local.Get(k))[0]++
			}
		})
	})
	b.Run("sync.Pool", func(b *testing.B) {
		b.ReportAllocs()
		buffers := sync.Pool{New: func() any { return newBuffer() }}
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				v := buffers.Get().(*buffer)
				v[0]++
				buffers.Put(v)
			}
		})
	})
	b.Run("map", func(b *testing.B) {
		b.ReportAllocs()
		var mu sync.Mutex
		buffers := map[int]*buffer{}
		get := func(id int) *buffer {
			mu.Lock()
			defer mu.Unlock()
			v := buffers[id]
			if v == nil {
				v = newBuffer()
				buffers[id] = v
			}
			return v
		}
		b.RunParallel(func(pb *testing.PB) {
			k := pool.workers.enter(true)
			defer pool.workers.leave(k)
			for pb.Next() {
				get(k.ID())[0]++
			}
		})
	})
	b.Run("channel", func(b *testing.B) {
		b.ReportAllocs()
		free := make(chan *buffer, 64)
		for range cap(free) {
			free <- newBuffer()
		}
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				v := <-free
				v[0]++
				free <- v
			}
		})
	})
	// Pool.Schedule pays this much to find a Worker and to give it back, once a function.
	b.Run("worker", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				pool.workers.leave(pool.workers.enter(true))
			}
		})
	})
}
