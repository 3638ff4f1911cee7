package run

import "sync/atomic"

// Queue is the default executor. Goroutines pull tasks from it, and
//
//	while a task waits, there is a goroutine that was spawned and has not yet begun,
//	or one that has begun and is about to take a task or to spawn the next.
//
// (The driver that has just added tasks is one that has begun: it is about to pull.) The
// spawned one is the successor. When the running task blocks, the scheduler runs the
// successor. The successor first spawns the next one, and then runs a task. When nothing
// blocks, one goroutine runs the whole batch, and the successor finds nothing left. A
// processor that is idle steals the successor, so the work spreads.
//
// So a function that blocks delays no other, as with a goroutine for each, at a fraction
// of the price. And a function that ends its goroutine takes no other task with it.
//
// Nothing here ever waits: a waiting goroutine would look like a blocked task and cause
// another to be spawned. With a mutex around the queue, which was tried, 100,000 tasks
// that only counted left 971 goroutines contending for it; now there are a handful.
//
// Also rejected: `go f()` for each task, for its price; and a fixed set of workers, since
// a slow task for each worker brings it to a halt. A Pool is for those who want just
// that. It has the same queue. Once it has all the goroutines that it may have, they need
// no successor.
type Queue struct {
	first     atomic.Pointer[batch] // the oldest that may have tasks left
	last      atomic.Pointer[batch] // the newest
	successor atomic.Bool           // spawned, not yet begun
	semaphore *semaphore            // of a Pool; nil: none
	Stranger  Runner                // of tasks that come through Execute and belong to no wheel
}

// batch holds tasks of one wheel that came together. The goroutine that raises taken to n gets task
// n-1.
type batch struct {
	tasks  []Task
	runner *Runner
	taken  atomic.Int64
	next   atomic.Pointer[batch]
}

// NewBatch returns a batch with these tasks, which it copies. For up to eight it makes one
// allocation: 64 bytes for one task, 176 for more. Most batches of a wheel whose timers are due on
// ticks of their own have one. With 176 bytes for these, 200,000 timers that came due within a
// second on ticks of 1 us took 1.07 times the processor time.
func NewBatch(tasks ...Task) *batch {
	if len(tasks) == 1 {
		b := new(struct {
			batch
			one [1]Task
		})
		b.one[0] = tasks[0]
		b.tasks = b.one[:]
		return &b.batch
	}
	b := new(struct {
		batch
		few [8]Task
	})
	b.tasks = append(b.few[:0], tasks...)
	return &b.batch
}

// poolTask is a task that wants to know that it runs on a goroutine of a Pool.
type poolTask interface {
	EnterPool() // called before Run, by the goroutine that calls Run
}

func NewQueue(b *semaphore) *Queue {
	q := &Queue{semaphore: b}
	empty := new(batch)
	q.first.Store(empty)
	q.last.Store(empty)
	return q
}

// Execute queues the tasks.
func (q *Queue) Execute(tasks []func()) {
	q.Stranger.Admit(len(tasks))
	q.push(NewBatch(functions(tasks)...), &q.Stranger)
}

func (q *Queue) ExecuteTasks(tasks []Task, r *Runner) {
	q.push(NewBatch(tasks...), r)
	clear(tasks)
}

// push queues the tasks of a batch.
func (q *Queue) push(b *batch, r *Runner) {
	q.Enqueue(b, r)
	q.ensureSuccessor()
}

// Enqueue is push without a successor: Start or Work must come after it.
func (q *Queue) Enqueue(b *batch, r *Runner) {
	b.runner = r
	// Several wheels may push at the same time. Thanks to Swap each links its batch
	// behind the one whose place it took.
	q.last.Swap(b).next.Store(b)
}

// Start sees to it that there is a successor, if a task waits.
func (q *Queue) Start() {
	if q.hasTasks() {
		q.ensureSuccessor()
	}
}

// pull has the goroutine that calls it run tasks until none is left, also if there is a
// successor: that one has no processor yet. A task may end the goroutine. It must not be
// called on a queue with a bound.
func (q *Queue) pull() {
	if q.hasTasks() {
		ClearLabels()
		q.runTasks()
	}
}

// Work runs t, or queues it if older tasks wait. If t is nil, it does neither. Then it
// pulls. So it must not be called on a queue with a bound.
func (q *Queue) Work(t Task, r *Runner) {
	if t != nil && !q.queueBehind(t, r) {
		r.Run(t) // not runOne: there is no bound, and a frame less is on the stack
	}
	q.pull()
}

// queueBehind queues t if older tasks wait, and reports whether it did. It is apart for the
// frame of Work.
func (q *Queue) queueBehind(t Task, r *Runner) bool {
	if !q.hasTasks() {
		return false
	}
	q.Enqueue(NewBatch(t), r)
	return true
}

// ensureSuccessor spawns the successor, unless there is one. If there are as many
// goroutines as the bound permits, it spawns none. Then a goroutine that ends looks
// again. That one may have found the flag raised, and have ended. So whoever lowers the
// flag must look whether there is room by now.
func (q *Queue) ensureSuccessor() {
	for !q.successor.Load() && q.successor.CompareAndSwap(false, true) {
		if q.semaphore == nil || q.semaphore.enter() {
			go q.run()
			return
		}
		q.successor.Store(false)
		if q.semaphore.isFull() || !q.hasTasks() {
			return
		}
	}
}

// run is the life of a goroutine: it begins as the successor.
func (q *Queue) run() {
	q.successor.Store(false)
	ClearLabels() // those of the goroutine that spawned it
	if q.semaphore != nil {
		defer q.retire()
	}
	q.runTasks()
}

// runTasks runs tasks until none is left.
func (q *Queue) runTasks() {
	for {
		t, r, more := q.take()
		if t == nil {
			return
		}
		if more {
			q.ensureSuccessor()
		}
		q.runOne(t, r)
		ClearLabels()
	}
}

func (q *Queue) runOne(t Task, r *Runner) {
	if q.semaphore != nil {
		defer q.semaphore.release()
		if t, ok := t.(poolTask); ok {
			t.EnterPool()
		}
	}
	r.Run(t)
}

// retire is the end of a goroutine under a bound. A task may have come while there were as
// many goroutines as the bound permits. Then none was spawned for it, and this one has to
// look.
func (q *Queue) retire() {
	q.semaphore.leave()
	q.Start()
}

// hasTasks reports whether a task waits.
func (q *Queue) hasTasks() bool {
	for b := q.first.Load(); b != nil; b = b.next.Load() {
		if int(b.taken.Load()) < len(b.tasks) {
			return true
		}
	}
	return false
}

// Standstill tells for how long nobody has taken a task of a queue. It refers to tasks that
// may have run since, so it must not be kept.
type Standstill struct {
	first *batch
	taken int64
	looks int
}

// Look looks at the queue, and returns how many looks ago a task was last taken; 0 if no
// task waits.
//
// It does not ask for the successor. On a busy machine one has often not begun while others
// take one task after the other. Then 100,000 tasks that were due on one tick took 26 ms
// instead of 17.
func (s *Standstill) Look(q *Queue) int {
	first := q.first.Load()
	taken := first.taken.Load()
	if first != s.first || taken != s.taken || !q.hasTasks() {
		s.first, s.taken, s.looks = first, taken, 0
		return 0
	}
	s.looks++
	return s.looks
}

// take removes the oldest task, and tells whether more wait. It returns nil when there is
// none. If one comes at that moment, push finds that the successor has begun, and spawns
// another.
func (q *Queue) take() (t Task, r *Runner, more bool) {
	for {
		b := q.first.Load()
		n := int(b.taken.Add(1))
		if n <= len(b.tasks) {
			t = b.tasks[n-1]
			b.tasks[n-1] = nil // keep no closure
			return t, b.runner, n < len(b.tasks) || b.next.Load() != nil
		}
		next := b.next.Load()
		if next == nil {
			return nil, nil, false
		}
		q.first.CompareAndSwap(b, next)
	}
}
