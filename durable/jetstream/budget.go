package jetstream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Messages that were requested and not handed on yet take memory here, and in the server, which
// cuts off a client that is 64 MiB behind. So the requests of a worker at one time, over all
// partitions and buckets, have a bound in bytes: readers take of it before a request, and give
// back when the messages were handed on. A reader that waits for new messages must not keep
// others from messages that are there, and a far bucket is to be moved though no handler is
// free, so each of these has a part of the bound for itself.
const (
	readBytes = 4 << 20 // of readers of messages that are there
	waitBytes = 4 << 20 // of readers that wait for new messages
	moveBytes = 1 << 20 // of readers that move far buckets

	// readSize is what one reader takes. The largest job fits, so every request makes
	// progress: a payload has 256 KiB at most. It also fits fetchSize small jobs.
	readSize = 1 << 20

	// waitSize is what one takes that waits, and less if many do. A job that does not fit
	// is read with readSize.
	waitSize = 128 << 10
)

// budget is a number of bytes that may be requested. Mu guards the fields below it. Free
// never falls below zero, and turns has one entry for each reader that waits in take.
type budget struct {
	size int

	users atomic.Int64 // readers that wait at queues

	mu    sync.Mutex
	freed *sync.Cond
	free  int
	turns []int64 // of those that wait
}

func newBudget(size int) *budget {
	b := &budget{size: size, free: size}
	b.freed = sync.NewCond(&b.mu)
	return b
}

// take waits until n bytes are free, and takes them; false if ctx has ended before. The lowest
// turn comes first. Readers of all overdue buckets wait here at the same time, and without an
// order the newest bucket would be read as soon as the oldest.
//
// A reader with the lowest turn stops all others until it has its bytes, also those whose
// request would fit already: small requests could keep a large one waiting for ever. The
// function that runs when ctx ends takes the lock, or its broadcast could fall between the
// check of ctx and the Wait.
func (b *budget) take(ctx context.Context, n int, turn int64) bool {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		b.freed.Broadcast()
		b.mu.Unlock()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turns = append(b.turns, turn)
	for (b.free < n || slices.Min(b.turns) < turn) && ctx.Err() == nil {
		b.freed.Wait()
	}
	i := slices.Index(b.turns, turn)
	b.turns = slices.Delete(b.turns, i, i+1)
	b.freed.Broadcast() // the next one may fit, too
	if ctx.Err() != nil {
		return false
	}
	b.free -= n
	return true
}

// give returns bytes. It wakes all readers, since only the one with the lowest turn may go
// on.
func (b *budget) give(n int) {
	b.mu.Lock()
	b.free += n
	b.mu.Unlock()
	b.freed.Broadcast()
}

// join adds n to the number of readers that use the budget.
func (b *budget) join(n int64) { b.users.Add(n) }

// part returns what one reader may take so that there is some for all. Those that wait at
// queues use it: each holds its bytes for as long as it waits, whether a job comes or not.
func (b *budget) part(most int) int {
	return min(most, b.size/max(1, int(b.users.Load())))
}

// budgets are those of a worker, for all its partitions together: the server counts what a
// client is behind by the connection, and not by the stream.
type budgets struct{ read, wait, move *budget }

func newBudgets() budgets {
	return budgets{newBudget(readBytes), newBudget(waitBytes), newBudget(moveBytes)}
}
