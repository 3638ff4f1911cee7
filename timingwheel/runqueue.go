package timingwheel

import (
	"slices"
	"sync/atomic"
)

// runQueue is the default executor. Goroutines pull tasks from it, and
//
//	while a task waits, one goroutine has been spawned and has not yet begun,
//	or one that has is about to take a task or to spawn the next.
//
// The spawned one is the successor. When the running task blocks, the scheduler
// has the successor to run, which spawns the next one before it runs a task in
// its turn; when nothing blocks, one goroutine runs the whole batch and the
// successor finds nothing left; and a processor that is idle steals the successor,
// so that work spreads. So a function that blocks delays no other, as with a
// goroutine each, at a fraction of the price, and one that ends its goroutine
// takes nothing along.
//
// Nothing here ever waits, or else who waits would be as good as a task that
// blocks, and call for one goroutine more: with a mutex around the queue, which
// was tried, 100,000 tasks that only counted left 971 goroutines contending for
// it, where now there are a handful.
//
// Also rejected: `go f()` for each task, for its price; and a fixed set of workers,
// which as many slow tasks as there are workers bring to a halt.
type runQueue struct {
	first     atomic.Pointer[batch] // the oldest that may have tasks left
	last      atomic.Pointer[batch] // the newest
	successor atomic.Bool           // spawned, not yet begun
}

// batch holds the tasks of one Execute. Who raises taken to n has task n-1.
type batch struct {
	tasks []func()
	taken atomic.Int64
	next  atomic.Pointer[batch]
}

// Goroutines returns an Executor that runs each task on a goroutine that is the
// task's alone until it returns: a task that blocks delays no other, and one that
// panics crashes the program, as with time.AfterFunc. This is the default. The
// order in which tasks begin is nearly that of their deadlines, but not promised.
//
// Tasks that return take turns on a goroutine, which shows only in state that is
// kept by goroutine. pprof labels are cleared between tasks. What a task must undo
// before it returns is runtime.LockOSThread and, with it, whatever it has done to
// its thread; debug.SetPanicOnFault; and a stack once grown stays grown for the
// next.
//
// The executor has a queue of its own, without bound, and no goroutine while
// nothing is due. Nor are its goroutines bounded: 100,000 tasks that block are
// 100,000 goroutines. A task may end its goroutine (runtime.Goexit). One executor may serve several wheels (of one synctest bubble).
func Goroutines() Executor {
	q := new(runQueue)
	empty := new(batch)
	q.first.Store(empty)
	q.last.Store(empty)
	return q
}

// Execute queues the tasks.
func (q *runQueue) Execute(tasks []func()) {
	b := &batch{tasks: slices.Clone(tasks)}
	// Swap makes room for several wheels at once: each links behind the one whose
	// place it took.
	q.last.Swap(b).next.Store(b)
	q.ensureSuccessor()
}

func (q *runQueue) ensureSuccessor() {
	if !q.successor.Load() && q.successor.CompareAndSwap(false, true) {
		go q.run()
	}
}

// run is the life of a goroutine: it begins as the successor.
func (q *runQueue) run() {
	q.successor.Store(false)
	clearLabels() // those of the goroutine that spawned it
	for {
		task, more := q.take()
		if task == nil {
			return
		}
		if more {
			q.ensureSuccessor()
		}
		task()
		clearLabels()
	}
}

// take removes the oldest task, and tells whether more wait; it returns nil when
// there is none. Should one come just then, Execute finds that the successor has
// begun, and spawns another.
func (q *runQueue) take() (task func(), more bool) {
	for {
		b := q.first.Load()
		n := int(b.taken.Add(1))
		if n <= len(b.tasks) {
			task = b.tasks[n-1]
			b.tasks[n-1] = nil // keep no closure
			return task, n < len(b.tasks) || b.next.Load() != nil
		}
		next := b.next.Load()
		if next == nil {
			return nil, false
		}
		q.first.CompareAndSwap(b, next)
	}
}
