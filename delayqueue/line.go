package delayqueue

// line is where consumers wait, in the order in which they came. Unlike a container/list it
// can use a place again. So a consumer that waits with TakeFunc again and again makes no
// garbage, and need not help the garbage collector when it is in a hurry.
type line[T any] struct {
	first, last *waiter[T]
	spare       *waiter[T] // has left, and nobody refers to it; or nil
}

// A waiter is a consumer that found nothing due: inside Take, or after TakeFunc.
type waiter[T any] struct {
	// look tells the waiter to look at the queue again. One slot is enough: a
	// second signal would say nothing that the first does not.
	look chan struct{}

	take func(v T) // of one after TakeFunc, which has no look

	next, prev *waiter[T]
}

func (w *waiter[T]) signal() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}

// withoutGoroutine returns a waiter that waits after TakeFunc.
func (l *line[T]) withoutGoroutine(take func(v T)) *waiter[T] {
	w := l.spare
	if l.spare = nil; w == nil {
		w = new(waiter[T])
	}
	w.take = take
	return w
}

// reuse keeps a waiter that has left for the next withoutGoroutine.
func (l *line[T]) reuse(w *waiter[T]) {
	w.take = nil
	l.spare = w
}

// join puts a waiter at the end.
func (l *line[T]) join(w *waiter[T]) {
	if w.prev = l.last; w.prev == nil {
		l.first = w
	} else {
		w.prev.next = w
	}
	l.last = w
}

// leave takes a waiter out, from wherever it is.
func (l *line[T]) leave(w *waiter[T]) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.next, w.prev = nil, nil
}
