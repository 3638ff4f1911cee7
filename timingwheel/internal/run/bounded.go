package run

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Bounded is an executor that limits how many tasks run at once: a run queue with a bound,
// and what to do with a task that finds no room.
type Bounded struct {
	queue     *Queue
	semaphore semaphore
	room      int       // of its queue, as given
	wheels    wheelLine // under Waits
	Full      Policy
	discard   func(task func()) // under Discards
}

// Policy says where a task goes that finds no room.
type Policy int

const (
	Unset      Policy = iota
	CallerRuns        // the driver runs it
	Waits             // it waits on its wheel, by admission
	Discards          // the driver gives it to a function
)

func NewBounded(workers, queue int, full Policy, discard func(task func())) *Bounded {
	b := &Bounded{room: queue, Full: full, discard: discard}
	b.semaphore.init(workers, queue)
	if full == Waits {
		b.semaphore.freed = b.Serve
	}
	b.queue = NewQueue(&b.semaphore)
	return b
}

// Door leads from a pool.Pool, which embeds it, to the Bounded. A user's type that embeds the
// Pool has the Door too, but its own Execute must be called. So the Door knows whose it is.
type Door struct {
	inside *Bounded
	owner  any
}

func (b *Bounded) DoorOf(owner any) Door { return Door{b, owner} }

// Open returns the bounded of owner, and nil if the door is another's.
func (d Door) Open(owner any) *Bounded {
	if d.owner != owner {
		return nil
	}
	return d.inside
}

// Close makes it accept no more. It waits until the tasks have ended and the goroutines
// are gone, and returns ctx.Err() if ctx ends first.
func (b *Bounded) Close(ctx context.Context) error { return b.semaphore.close(ctx) }

// stats are those of a Pool.
type stats struct {
	Workers int
	Queue   int
	Running int64
	Queued  int64
	Waiting int64
	Closed  bool
}

func (b *Bounded) Stats() stats {
	waiting := b.wheels.tasks() // first, since a task goes that way: it is seen in one place at least
	tasks := b.semaphore.count()
	running := min(tasks, b.semaphore.workers, b.semaphore.active.Load())
	return stats{
		Workers: int(b.semaphore.workers),
		Queue:   b.room,
		Running: running,
		Queued:  tasks - running,
		Waiting: waiting,
		Closed:  b.semaphore.isClosed(),
	}
}

// Execute is for tasks that belong to no wheel. Under Waits it waits for room; once closed
// it runs the tasks itself.
func (b *Bounded) Execute(tasks []func()) {
	r := &b.queue.Stranger
	r.Admit(len(tasks))
	n := b.accept(functions(tasks), r)
	Each(tasks[n:], func(f func()) { b.overflow(Function(f), r, b.Full == Waits) })
}

// ExecuteTasks passes on what there is room for in one go, and the rest one by one. Under
// Waits nothing comes here: the tasks pass the admission.
func (b *Bounded) ExecuteTasks(tasks []Task, r *Runner) {
	n := b.accept(tasks, r)
	Each(tasks[n:], func(t Task) { b.overflow(t, r, false) })
}

// accept takes the first tasks, as many as there is room for, and returns how many.
func (b *Bounded) accept(tasks []Task, r *Runner) int {
	n := b.semaphore.take(len(tasks))
	if n > 0 {
		b.queue.push(NewBatch(tasks[:n]...), r)
		clear(tasks[:n])
	}
	return n
}

// overflow is called with a task that found no room. If there is room by now, the task
// takes it. Otherwise the policy decides.
func (b *Bounded) overflow(t Task, r *Runner, wait bool) {
	if b.semaphore.take(1) == 1 || wait && b.semaphore.wait() {
		b.queue.push(NewBatch(t), r)
		return
	}
	if b.Full == Discards {
		r.Discarded.Add(1) // first: the user's function may end the goroutine
		runAll([]Task{discarded{t, b.discard}}, r)
		return
	}
	r.CallerRuns.Add(1)
	runAll([]Task{t}, r)
}

// discarded is the task of discarding a task.
type discarded struct {
	Task
	to func(task func())
}

func (d discarded) Run() {
	if f := d.Task.Discard(); f != nil {
		d.to(f)
	}
}

// Under Waits, a Bounded is the admission of its wheels. A worker that has run a task
// makes room, and lets in the next task that waits.

func (b *Bounded) TryAcquire() bool { return b.wheels.none() && b.semaphore.take(1) == 1 }

// Release implements Admission. A wheel that could not get this room is in the line by
// now, or is about to join it. Serve serves that wheel.
func (b *Bounded) Release() { b.semaphore.giveBack() }

func (b *Bounded) Pass(tasks []Task, r *Runner) { b.queue.push(NewBatch(tasks...), r) }

func (b *Bounded) Join(w Waiter)  { b.wheels.join(w) }
func (b *Bounded) Leave(w Waiter) { b.wheels.leave(w) }

// Serve implements Admission.
//
// No wake-up is lost. An entry joins the line, and then its driver calls Serve. A worker
// gives back its room, and then calls Serve. So one of the two sees the other.
func (b *Bounded) Serve() {
	for !b.wheels.none() && b.semaphore.take(1) == 1 {
		if !b.letIn() {
			b.semaphore.giveBack()
		}
	}
}

// letIn lets in one task, for which there is room. It reports false if none waited any more,
// and true also if the task has given its room back itself.
func (b *Bounded) letIn() bool {
	w := b.wheels.next()
	if w == nil {
		return false
	}
	used := w.LetIn()
	b.wheels.leave(w)
	return used
}

// wheelLine is the line of the wheels whose tasks wait for room. Each wheel has one
// place, however many of its tasks wait. The wheel at the front gets the next room, for
// one task, and goes to the end. So a wheel with a burst does not keep the room from the
// others.
//
// The invariant: a wheel with an entry that waits is in the line, or is about to join it.
// A wheel whose entries were all canceled may be in it too, until its turn comes.
type wheelLine struct {
	mu     sync.Mutex // lock order: shard, mu
	line   []Waiter   // the next first; guarded by mu
	length atomic.Int32
}

// none needs no lock.
func (l *wheelLine) none() bool { return l.length.Load() == 0 }

// join puts a wheel at the end of the line, unless it is in it. O(wheels).
func (l *wheelLine) join(w Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.line, w) {
		l.line = append(l.line, w)
		l.length.Add(1)
	}
}

// next returns the wheel at the front, and moves it to the end; nil if there is none.
func (l *wheelLine) next() Waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) == 0 {
		return nil
	}
	w := l.line[0]
	l.line = append(slices.Delete(l.line, 0, 1), w)
	return w
}

// leave takes a wheel out of the line, unless one of its entries waits. An entry counts
// as waiting before its wheel joins. So no entry is left behind.
func (l *wheelLine) leave(w Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.line, w); i >= 0 && w.Waits() == 0 {
		l.line = slices.Delete(l.line, i, i+1)
		l.length.Add(-1)
	}
}

// tasks returns how many tasks wait on the wheels of the line.
func (l *wheelLine) tasks() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.line {
		n += w.Waits()
	}
	return n
}
