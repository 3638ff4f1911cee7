package timingwheel

import "sync"

// runQueue is the default executor. Goroutines pull tasks from it, and
//
//	while a task waits, one goroutine has been spawned and has not yet begun.
//
// That goroutine is the successor. When the running task blocks, the scheduler
// has the successor to run, which spawns the next one before it runs a task in
// its turn; when nothing blocks, one goroutine runs the whole batch and the
// successor finds nothing left; and a processor that is idle steals the successor,
// so that work spreads. So a function that blocks delays no other, as with a
// goroutine each, at a fraction of the price (50 ns a task against 365), and
// one that ends its goroutine takes nothing along.
//
// The rejected alternatives: `go f()` for each task, for its price; and a fixed
// set of workers, which as many slow tasks as there are workers bring to a halt.
type runQueue struct {
	mu        sync.Mutex
	tasks     []func() // waiting from head on; guarded by mu
	head      int      // guarded by mu
	successor bool     // spawned, not yet begun; guarded by mu
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
// nothing is due. One executor may serve several wheels.
func Goroutines() Executor { return new(runQueue) }

// maxIdleTasks bounds what an empty queue keeps of its array: 32 KB.
const maxIdleTasks = 4096

// Execute queues the tasks.
func (q *runQueue) Execute(tasks []func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head > len(q.tasks)/2 {
		// Amortized: what is moved is less than what was taken since.
		n := copy(q.tasks, q.tasks[q.head:])
		clear(q.tasks[n:])
		q.tasks, q.head = q.tasks[:n], 0
	}
	q.tasks = append(q.tasks, tasks...)
	q.ensureSuccessor()
}

// ensureSuccessor keeps the invariant. Called with q.mu held.
func (q *runQueue) ensureSuccessor() {
	if !q.successor && q.head < len(q.tasks) {
		q.successor = true
		go q.run()
	}
}

// run is the life of a goroutine: it begins as the successor.
func (q *runQueue) run() {
	q.mu.Lock()
	q.successor = false
	for q.head < len(q.tasks) {
		task := q.tasks[q.head]
		q.tasks[q.head] = nil
		q.head++
		q.ensureSuccessor()
		q.mu.Unlock()
		task()
		clearLabels()
		q.mu.Lock()
	}
	q.tasks, q.head = q.tasks[:0], 0
	if cap(q.tasks) > maxIdleTasks {
		q.tasks = nil
	}
	q.mu.Unlock()
}
