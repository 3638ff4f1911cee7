package pool

import "sync/atomic"

// Local is a variable of which each worker of a [Pool] has a value of its own: a buffer,
// an encoder, a connection. It is like a thread-local variable, in the manner of Netty's
// FastThreadLocal: an index finds the value, without a hash and without a lock. Make one
// with [NewLocal]. Get, Peek and Remove may be called for several Workers at the same
// time, and Close by any goroutine.
//
//	encoders := pool.NewLocal(p, newEncoder, nil)
//	p.Schedule(w, time.Second, func(k *pool.Worker) {
//		(*encoders.Get(k)).Encode(event)
//	})
//
// A Local and its values live as long as the Pool, unless the Local is closed. A Local
// that is dropped without Close keeps its values, and 16 bytes in each worker. If a
// program drops the Pool without closing it, all its Locals are garbage, and remove is
// not called.
type Local[T any] struct {
	workers *workers
	seat    seat
	init    func(*Worker) T // nil: the zero value
	remove  func(T)         // nil: nothing to do
	closed  atomic.Bool
}

// NewLocal returns a Local of the Pool.
//
// init makes a worker's value, at the worker's first Get and at the first after the value
// was removed. A nil init makes the zero value. If init panics or ends its goroutine
// (runtime.Goexit), there is no value. init may call Get of other Locals, but not of its
// own.
//
// remove is called exactly once for each value that init has made: by Local.Remove and
// Worker.Clear; by Close; and by Close and Shutdown of the Pool, once the Pool's tasks
// have ended. It gets a copy of the value as it is then. A nil remove does nothing.
// remove is called with no lock held. Calls for different workers' values may overlap. It
// must not use a Worker. A panic in it reaches the caller; the other values are removed
// all the same.
//
// NewLocal panics on a nil Pool. O(1).
func NewLocal[T any](p *Pool, init func(*Worker) T, remove func(T)) *Local[T] {
	if p == nil {
		panic("pool: NewLocal: nil Pool")
	}
	return &Local[T]{workers: &p.workers, seat: p.workers.open(), init: init, remove: remove}
}

// localValue is a worker's value of a Local. It names the Local, so that Get finds out
// with one comparison that the Worker is one of another Pool.
type localValue[T any] struct {
	local *Local[T]
	value T
}

func (v *localValue[T]) Remove() {
	if v.local.remove != nil {
		v.local.remove(v.value)
	}
}

// Get returns the worker's value, and makes it if the worker has no value. The value is
// the worker's until it is removed: it may be changed through the pointer, and must not
// be used after the function that has the Worker has returned.
//
// Get panics on a Worker of another Pool. It also panics if the Local is closed and the
// worker has no value: a function that has one keeps it until it returns.
//
// O(1). It allocates only when it makes the value.
func (l *Local[T]) Get(k *Worker) *T {
	if v := l.find(k); v != nil {
		return &v.value
	}
	return l.make(k)
}

// find returns the worker's value, or nil.
func (l *Local[T]) find(k *Worker) *localValue[T] {
	if l.seat.index < len(k.values) {
		if v, ok := k.values[l.seat.index].(*localValue[T]); ok && v.local == l {
			return v
		}
	}
	return nil
}

// make makes the worker's value. A Close that comes meanwhile finds the worker busy, and
// the value is removed when the worker is given back.
func (l *Local[T]) make(k *Worker) *T {
	if k.owner != l.workers {
		panic("pool: Local.Get: the Worker is of another Pool")
	}
	if l.closed.Load() {
		panic("pool: Local.Get: the Local is closed")
	}
	v := &localValue[T]{local: l}
	if l.init != nil {
		v.value = l.init(k)
	}
	if l.find(k) != nil {
		defer v.Remove() // this one was never anybody's
		panic("pool: Local.Get: called by the Local's own init")
	}
	k.set(l.seat.index, v)
	return &v.value
}

// Peek returns the worker's value, or nil and false if it has none.
func (l *Local[T]) Peek(k *Worker) (*T, bool) {
	v := l.find(k)
	if v == nil {
		return nil, false
	}
	return &v.value, true
}

// Remove removes the worker's value, and reports whether it had one. The next Get makes
// another.
func (l *Local[T]) Remove(k *Worker) bool {
	v := l.find(k)
	if v == nil {
		return false
	}
	k.values[l.seat.index] = nil
	v.Remove()
	return true
}

// Close ends the Local and removes its values. The value of a worker that runs a function
// of [Pool.Schedule] at this moment is removed when that function returns; Close does not
// wait for it. Later calls do nothing. The Pool's other Locals stay as they are.
// O(workers).
func (l *Local[T]) Close() {
	if l.closed.CompareAndSwap(false, true) {
		removeAll(l.workers.close(&l.seat))
	}
}
