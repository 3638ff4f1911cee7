package timingwheel

import "context"

// bounded is an executor that limits how many tasks run at once: a run queue with a bound,
// and what to do with a task that finds no room.
type bounded struct {
	queue   *runQueue
	bound   bound
	line    line // of wheels that wait, under waits
	full    fullPolicy
	discard func(task func()) // under discards
}

// fullPolicy says what happens to a task that finds no room.
type fullPolicy int

const (
	unset      fullPolicy = iota
	callerRuns            // the driver runs it
	waits                 // it waits on its wheel, by admission
	discards              // the driver gives it to a function
)

func newBounded(workers, queue int, full fullPolicy, discard func(task func())) *bounded {
	b := &bounded{full: full, discard: discard}
	b.bound.init(workers, queue)
	if full == waits {
		b.bound.freed = b.serve
	}
	b.queue = newRunQueue(&b.bound)
	return b
}

// door leads from what a user has of a bounded to the bounded. Who embeds a door has its
// method, and so has a user's type that embeds that. Its own Execute, which may count or
// wrap the tasks, must be called all the same. So the door knows whose it is.
type door struct {
	inside *bounded
	owner  any
}

func (b *bounded) doorOf(owner any) door { return door{b, owner} }

// open returns the bounded of owner, and nil if the door is another's.
func (d door) open(owner any) *bounded {
	if d.owner != owner {
		return nil
	}
	return d.inside
}

// close makes it accept no more. It waits until the tasks have ended and the goroutines
// are gone, and returns ctx.Err() if ctx ends first.
func (b *bounded) close(ctx context.Context) error { return b.bound.close(ctx) }

// boundedStats are those of a Pool.
type boundedStats struct {
	Workers int
	Queue   int
	Running int64
	Queued  int64
	Waiting int64
	Closed  bool
}

func (b *bounded) stats() boundedStats {
	waiting := b.line.waiting() // first, since a task goes that way: it is seen in one place at least
	tasks := b.bound.count()
	running := min(tasks, b.bound.workers, b.bound.active.Load())
	return boundedStats{
		Workers: int(b.bound.workers),
		Queue:   int(b.bound.capacity - b.bound.workers),
		Running: running,
		Queued:  tasks - running,
		Waiting: waiting,
		Closed:  b.bound.isClosed(),
	}
}

// Execute is for tasks that belong to no wheel. Under waits it waits for room; once closed
// it runs the tasks itself.
func (b *bounded) Execute(tasks []func()) {
	r := &b.queue.stranger
	r.admit(len(tasks))
	n := b.accept(functions(tasks), r)
	each(tasks[n:], func(f func()) { b.overflow(function(f), r, b.full == waits) })
}

// execute passes on what there is room for in one go, and the rest one by one. Under
// waits nothing comes here: the tasks pass the admission.
func (b *bounded) execute(tasks []task, r *runner) {
	n := b.accept(tasks, r)
	each(tasks[n:], func(t task) { b.overflow(t, r, false) })
}

// accept takes the first tasks, as many as there is room for, and returns how many.
func (b *bounded) accept(tasks []task, r *runner) int {
	n := b.bound.take(len(tasks))
	if n > 0 {
		b.queue.push(newBatch(tasks[:n]...), r)
		clear(tasks[:n])
	}
	return n
}

// overflow is called with a task that found no room. If there is room by now, the task
// takes it. Otherwise overflow does what the policy says.
func (b *bounded) overflow(t task, r *runner, wait bool) {
	if b.bound.take(1) == 1 || wait && b.bound.wait() {
		b.queue.push(newBatch(t), r)
		return
	}
	if b.full == discards {
		r.discarded.Add(1) // first: the user's function may end the goroutine
		runAll([]task{discarded{t, b.discard}}, r)
		return
	}
	r.callerRuns.Add(1)
	runAll([]task{t}, r)
}

// discarded is the task of discarding a task.
type discarded struct {
	task
	to func(task func())
}

func (d discarded) run() {
	if f := d.task.discard(); f != nil {
		d.to(f)
	}
}

// Under waits, a bounded is the admission of its wheels. A worker that has run a task
// makes room, and lets in the next task that waits.

func (b *bounded) tryAcquire() bool { return b.line.isEmpty() && b.bound.take(1) == 1 }

// release implements admission. A wheel that could not get this room is in the line by
// now, or is about to join it. serve serves that wheel.
func (b *bounded) release() { b.bound.giveBack() }

func (b *bounded) pass(tasks []task, r *runner) { b.queue.push(newBatch(tasks...), r) }

func (b *bounded) join(w waiter)  { b.line.join(w) }
func (b *bounded) leave(w waiter) { b.line.leave(w) }

// serve implements admission.
//
// No wake-up is lost. An entry joins the line, and then its driver calls serve. A worker
// gives back its room, and then calls serve. So one of the two sees the other.
func (b *bounded) serve() {
	for !b.line.isEmpty() && b.bound.take(1) == 1 {
		if !b.letIn() {
			b.bound.giveBack()
		}
	}
}

// letIn lets in one task, for which there is room, and reports false if the room was not
// needed, or was given back because the task was none.
func (b *bounded) letIn() bool {
	w := b.line.next()
	if w == nil {
		return false
	}
	used := w.letIn()
	b.line.leave(w)
	return used
}
