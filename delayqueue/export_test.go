package delayqueue

// Waiting returns how many consumers wait.
func (q *DelayQueue[T]) Waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.waiters.first; w != nil; w = w.next {
		n++
	}
	return n
}
