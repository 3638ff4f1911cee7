package timingwheel

import (
	"context"
	"sync/atomic"
)

// bound limits a run queue: the number of its tasks, those that run included, and the
// number of the goroutines that run them.
type bound struct {
	workers  int64
	capacity int64        // of workers and queue together
	tasks    atomic.Int64 // accepted and not ended; and the bit boundClosed
	active   atomic.Int64 // goroutines
	changed  notice       // is told when tasks or active change
	freed    func()       // called when a task has ended; nil: nothing
}

const boundClosed = 1 << 62

func (b *bound) init(workers, queue int) {
	b.workers = int64(workers)
	b.capacity = min(int64(workers), boundClosed/2-1) + min(int64(queue), boundClosed/2)
}

// take makes room for up to n tasks, and returns for how many. There is none once the
// bound is closed.
func (b *bound) take(n int) int {
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
func (b *bound) release() {
	b.giveBack()
	if b.freed != nil {
		b.freed()
	}
}

func (b *bound) giveBack() {
	b.tasks.Add(-1)
	b.changed.tell()
}

// enter counts another goroutine, if the bound permits one. When a closed bound has no
// task left, it permits none. close looks at tasks first and then at active. enter looks
// at them in the opposite order. So one of the two sees the other.
func (b *bound) enter() bool {
	if b.active.Add(1) <= b.workers && b.tasks.Load() != boundClosed {
		return true
	}
	b.leave()
	return false
}

func (b *bound) leave() {
	b.active.Add(-1)
	b.changed.tell()
}

func (b *bound) isFull() bool { return b.active.Load() >= b.workers }

func (b *bound) isClosed() bool { return b.tasks.Load()&boundClosed != 0 }

// count returns how many tasks were accepted and have not ended.
func (b *bound) count() int64 { return b.tasks.Load() &^ boundClosed }

// wait takes room for one task, as soon as there is some, and reports false if the bound
// is closed.
func (b *bound) wait() bool {
	taken := false
	b.changed.until(nil, func() bool {
		taken = b.take(1) == 1
		return taken || b.isClosed()
	})
	return taken
}

// close closes the bound and waits until its tasks have ended and its goroutines are
// gone. It returns ctx.Err() if ctx ends first.
func (b *bound) close(ctx context.Context) error {
	b.tasks.Or(boundClosed)
	b.changed.tell()
	over := func() bool { return b.tasks.Load() == boundClosed && b.active.Load() == 0 }
	if !b.changed.until(ctx.Done(), over) {
		return ctx.Err()
	}
	return nil
}
