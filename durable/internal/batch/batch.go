// Package batch collects items that come at about one time, so that they share a commit.
package batch

import (
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/internal/stack"
)

// Max is how many items a batch has at most: what a JetStream server takes in one atomic batch.
const Max = 1000

// While one commit is on its way the next one is built. A full batch would gain nothing by waiting for others, so it
// waits for fewer: with two flushers, callers with a thousand items each leave processors idle during the commits.
const (
	flushers     = 2
	fullFlushers = 4
)

// Batcher passes items on in batches. While a batch is on its way the next one collects,
// so that the batches grow with the load. With a linger a batch begins at the earliest that long
// after the one before, unless enough items wait; so an item that comes alone waits for nobody.
type Batcher[T any] struct {
	flush  func([]T)
	linger time.Duration
	enough int // items that wait for no others
	wg     sync.WaitGroup

	mu        sync.Mutex
	collected []T
	last      time.Time   // when the last batch began
	pause     *time.Timer // what waits is flushed when it is over; not nil only while fewer than enough wait
	flying    int         // calls of flush, at most flushers, or fullFlushers while full batches wait
	closed    bool
}

// New returns a Batcher that passes batches on to flush, two at a time. A batch begins when linger is
// over since the last one began, or when enough items wait; with a linger of 0, at once.
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
	b.collected = append(b.collected, items...)
	switch {
	case b.linger == 0 || len(b.collected) >= b.enough:
		b.hurry()
	case b.pause == nil && len(b.collected) > 0:
		if left := b.linger - time.Since(b.last); left > 0 {
			b.pause = time.AfterFunc(left, b.Hurry)
			break
		}
		b.start()
	}
	return true
}

// Hurry flushes the waiting items without a linger.
func (b *Batcher[T]) Hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hurry()
}

func (b *Batcher[T]) hurry() {
	if b.pause != nil {
		b.pause.Stop() // if it has fired, it flushes what waits then a little early
		b.pause = nil
	}
	b.start()
}

// start starts a goroutine for the items that wait, unless as many as allowed are at work. b.mu is held.
func (b *Batcher[T]) start() {
	if len(b.collected) > 0 && b.flying < b.most() {
		b.flying++
		b.wg.Go(b.run)
	}
}

// most returns how many flushers may be at work.
func (b *Batcher[T]) most() int {
	if len(b.collected) >= Max {
		return fullFlushers
	}
	return flushers
}

func (b *Batcher[T]) run() {
	stack.Grow()
	for {
		b.mu.Lock()
		if len(b.collected) == 0 || b.pause != nil || b.flying > b.most() {
			b.flying--
			b.mu.Unlock()
			return
		}
		n := min(len(b.collected), Max)
		batch := b.collected[:n:n]
		if b.collected = b.collected[n:]; len(b.collected) == 0 {
			b.collected = nil
		}
		if b.linger > 0 {
			b.last = time.Now()
		}
		b.mu.Unlock()
		b.flush(batch)
	}
}

// Close accepts no more, flushes what waits, and waits until all that was accepted has been flushed.
func (b *Batcher[T]) Close() {
	b.mu.Lock()
	b.closed = true
	b.hurry()
	b.mu.Unlock()
	b.wg.Wait()
}
