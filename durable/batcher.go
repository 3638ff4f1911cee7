package durable

import "sync"

const (
	maxBatch = 1000 // what a JetStream server takes in one atomic batch
	flushers = 2    // while one commit is on its way the next one is built
)

// batcher passes items on in batches. While a batch is on its way the next one collects,
// so that the batches grow with the load, and a single item waits for nobody.
type batcher[T any] struct {
	flush func([]T)
	wg    sync.WaitGroup

	mu      sync.Mutex
	waiting []T
	flying  int // calls of flush, at most flushers
	closed  bool
}

func newBatcher[T any](flush func([]T)) *batcher[T] {
	return &batcher[T]{flush: flush}
}

// put hands items over; false if the batcher is closed.
func (b *batcher[T]) put(items ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.waiting = append(b.waiting, items...)
	if b.flying < flushers && len(b.waiting) > 0 {
		b.flying++
		b.wg.Go(b.run)
	}
	return true
}

func (b *batcher[T]) run() {
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 {
			b.flying--
			b.mu.Unlock()
			return
		}
		n := min(len(b.waiting), maxBatch)
		batch := b.waiting[:n:n]
		if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
			b.waiting = nil
		}
		b.mu.Unlock()
		b.flush(batch)
	}
}

// close accepts no more, and waits until all that was accepted has been flushed.
func (b *batcher[T]) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}
