package run

import (
	"context"
	"sync/atomic"
)

// semaphore limits a run queue: the number of its tasks, those that run included, and the
// number of the goroutines that run them.
type semaphore struct {
	workers  int64
	capacity int64        // of workers and queue together
	tasks    atomic.Int64 // accepted and not ended; and the closedBit
	active   atomic.Int64 // goroutines
	changed  notice       // is told when tasks or active change
	freed    func()       // called when a task has ended; nil: nothing
}

const closedBit = 1 << 62

func (b *semaphore) init(workers, queue int) {
	b.workers = int64(workers)
	b.capacity = min(int64(workers), closedBit/2-1) + min(int64(queue), closedBit/2)
}

// take makes room for up to n tasks, and returns for how many. There is none once the
// bound is closed.
func (b *semaphore) take(n int) int {
	for {
		tasks := b.tasks.Load()
		room := min(int64(n), b.capacity-tasks) // negative when closed
		if room <= 0 {
			return 0
		}
		if b.tasks.CompareAndSwap(tasks, tasks+room) {
			return int(room)
		}
	}
}

// release gives back the room of a task that has ended.
func (b *semaphore) release() {
	b.giveBack()
	if b.freed != nil {
		b.freed()
	}
}

func (b *semaphore) giveBack() {
	b.tasks.Add(-1)
	b.changed.Tell()
}

// enter counts another goroutine, if the bound permits one. When a closed bound has no
// task left, it permits none. close looks at tasks first and then at active. enter looks
// at them in the opposite order. So one of the two sees the other.
func (b *semaphore) enter() bool {
	if b.active.Add(1) <= b.workers && b.tasks.Load() != closedBit {
		return true
	}
	b.leave()
	return false
}

func (b *semaphore) leave() {
	b.active.Add(-1)
	b.changed.Tell()
}

func (b *semaphore) isFull() bool { return b.active.Load() >= b.workers }

func (b *semaphore) isClosed() bool { return b.tasks.Load()&closedBit != 0 }

// count returns how many tasks were accepted and have not ended.
func (b *semaphore) count() int64 { return b.tasks.Load() &^ closedBit }

// wait takes room for one task, as soon as there is some, and reports false if the bound
// is closed.
func (b *semaphore) wait() bool {
	taken := false
	b.changed.Until(nil, func() bool {
		taken = b.take(1) == 1
		return taken || b.isClosed()
	})
	return taken
}

// close closes the bound and waits until its tasks have ended and its goroutines are
// gone. It returns ctx.Err() if ctx ends first.
func (b *semaphore) close(ctx context.Context) error {
	b.tasks.Or(closedBit)
	b.changed.Tell()
	over := func() bool { return b.tasks.Load() == closedBit && b.active.Load() == 0 }
	if !b.changed.Until(ctx.Done(), over) {
		return ctx.Err()
	}
	return nil
}
