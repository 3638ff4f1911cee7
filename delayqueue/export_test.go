package delayqueue

// Waiting returns how many consumers wait.
func (q *DelayQueue[T]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.consumers)
}
