package timingwheel

import (
	"sync"
	"sync/atomic"
)

// bound bounds a run queue: the tasks in it, those that run included, and the goroutines
// that run them.
type bound struct {
	workers  int64
	capacity int64
	tasks    atomic.Int64 // accepted and not ended; and the bit boundClosed
	active   atomic.Int64 // goroutines

	// Who waits for a change of tasks or active raises waiting, looks, and then waits.
	// Who changes one of them looks at waiting afterwards. So nobody waits for what has
	// happened already.
	waiting atomic.Int64
	mu      sync.Mutex
	changed sync.Cond
}

const boundClosed = 1 << 62

func (b *bound) init(workers, queue int) {
	b.workers = int64(workers)
	b.capacity = min(int64(workers), boundClosed/2-1) + min(int64(queue), boundClosed/2)
	b.changed.L = &b.mu
}

// take makes room for up to n tasks, and returns for how many.
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
	b.tasks.Add(-1)
	b.tell()
}

// enter counts a goroutine, if there may be another. When all is over there may be none:
// close looks at tasks and then at active, and enter the other way round.
func (b *bound) enter() bool {
	if b.active.Add(1) <= b.workers && b.tasks.Load() != boundClosed {
		return true
	}
	b.leave()
	return false
}

func (b *bound) leave() {
	b.active.Add(-1)
	b.tell()
}

func (b *bound) isFull() bool { return b.active.Load() >= b.workers }

// wait takes room for one task, as soon as there is some, and reports false if the bound
// is closed.
func (b *bound) wait() bool {
	taken := false
	b.until(func() bool {
		taken = b.take(1) == 1
		return taken || b.tasks.Load()&boundClosed != 0
	})
	return taken
}

func (b *bound) close() {
	b.tasks.Or(boundClosed)
	b.tell()
	b.until(func() bool { return b.tasks.Load() == boundClosed && b.active.Load() == 0 })
}

func (b *bound) until(ready func() bool) {
	b.waiting.Add(1)
	defer b.waiting.Add(-1)
	b.mu.Lock()
	defer b.mu.Unlock()
	for !ready() {
		b.changed.Wait()
	}
}

func (b *bound) tell() {
	if b.waiting.Load() > 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed.Broadcast()
	}
}
