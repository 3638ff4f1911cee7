// Package batch collects items that come at about one time, so that they share a commit.
package batch

import (
	"sync"
	"time"
)

// Max is how many items a batch has at most: what a JetStream server takes in one atomic batch.
const Max = 1000

const flushers = 2 // while one commit is on its way the next one is built

// Batcher passes items on in batches. While a batch is on its way the next one collects,
// so that the batches grow with the load. With a linger the first of a batch waits that
// long for others, unless enough of them come; without one a single item waits for nobody.
type Batcher[T any] struct {
	flush  func([]T)
	linger time.Duration
	enough int // items that wait for no others
	wg     sync.WaitGroup

	mu        sync.Mutex
	waiting   []T
	lingering bool // what waits is flushed when the linger is over
	flying    int  // calls of flush, at most flushers
	closed    bool
}

// New returns a Batcher that passes batches on to flush, two at a time. An item waits for others for
// linger, or until enough of them wait; with a linger of 0 it waits for none.
func New[T any](flush func([]T), linger time.Duration, enough int) *Batcher[T] {
	return &Batcher[T]{flush: flush, linger: linger, enough: enough}
}

// Put hands items over; false if the batcher is closed.
func (b *Batcher[T]) Put(items ...T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.waiting = append(b.waiting, items...)
	switch {
	case b.linger == 0 || len(b.waiting) >= b.enough:
		b.start()
	case !b.lingering && len(b.waiting) > 0:
		b.lingering = true
		b.wg.Add(1)
		time.AfterFunc(b.linger, b.endLinger)
	}
	return true
}

// Hurry flushes the waiting items without a linger.
func (b *Batcher[T]) Hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lingering = false
	b.start()
}

func (b *Batcher[T]) endLinger() {
	defer b.wg.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lingering = false
	b.start()
}

// start starts a goroutine for what waits, if none more than flushers are at work. b.mu
// is held.
func (b *Batcher[T]) start() {
	if b.flying < flushers && len(b.waiting) > 0 {
		b.flying++
		b.wg.Go(b.run)
	}
}

func (b *Batcher[T]) run() {
	for {
		b.mu.Lock()
		if len(b.waiting) == 0 || b.lingering && len(b.waiting) < b.enough {
			b.flying--
			b.mu.Unlock()
			return
		}
		n := min(len(b.waiting), Max)
		batch := b.waiting[:n:n]
		if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
			b.waiting = nil
		}
		b.mu.Unlock()
		b.flush(batch)
	}
}

// Close accepts no more, and waits until all that was accepted has been flushed.
func (b *Batcher[T]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}
