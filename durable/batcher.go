package durable

import (
	"sync"
	"time"
)

const (
	maxBatch = 1000 // what a JetStream server takes in one atomic batch
	flushers = 2    // while one commit is on its way the next one is built
	enough   = 16   // items that wait for no others

	// endsLinger is how long the end of an attempt waits for others. Its price: a job that
	// has ended may run again for as much longer, if the process is killed.
	endsLinger = 5 * time.Millisecond
)

// batcher passes items on in batches. While a batch is on its way the next one collects,
// so that the batches grow with the load. With a linger the first of a batch waits that
// long for others, unless enough of them come; without one a single item waits for nobody.
type batcher[T any] struct {
	flush  func([]T)
	linger time.Duration
	wg     sync.WaitGroup

	mu        sync.Mutex
	waiting   []T
	lingering bool // what waits is flushed when the linger is over
	flying    int  // calls of flush, at most flushers
	closed    bool
}

func newBatcher[T any](flush func([]T), linger time.Duration) *batcher[T] {
	return &batcher[T]{flush: flush, linger: linger}
}

// put hands items over; false if the batcher is closed.
func (b *batcher[T]) put(items ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.waiting = append(b.waiting, items...)
	switch {
	case b.linger == 0 || len(b.waiting) >= enough:
		b.start()
	case !b.lingering && len(b.waiting) > 0:
		b.lingering = true
		b.wg.Add(1)
		time.AfterFunc(b.linger, b.endLinger)
	}
	return true
}

// hurry has what waits flushed without a linger.
func (b *batcher[T]) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lingering = false
	b.start()
}

func (b *batcher[T]) endLinger() {
	defer b.wg.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lingering = false
	b.start()
}

// start starts a goroutine for what waits, if none more than flushers are at work. b.mu
// is held.
func (b *batcher[T]) start() {
	if b.flying < flushers && len(b.waiting) > 0 {
		b.flying++
		b.wg.Go(b.run)
	}
}

func (b *batcher[T]) run() {
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 || b.lingering && len(b.waiting) < enough {
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
