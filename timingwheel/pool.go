package timingwheel

import (
	"fmt"
	"slices"
)

// Pool is an Executor that runs so many tasks at once and no more. Make one with
// [NewPool], give it to one wheel or several (of one synctest bubble) by
// [WithExecutor], and end it with [Pool.Close] when these are stopped.
//
// It is a run queue like that of [Goroutines], with a bound: a goroutine that takes
// tasks one after the other, and while tasks are left another that will, up to as many
// as there are workers. It has no goroutine while it has no task. What Goroutines says
// of state that is kept by goroutine is true here, too.
type Pool struct {
	queue *runQueue
	bound bound
	full  WhenFull
}

// NewPool returns a Pool of so many workers, each of which runs a task at a time, with
// room for so many others to wait: with a queue of 0, a task that finds no worker free
// finds the Pool full. What happens then full says. NewPool panics on less than one worker,
// on a negative queue, and on a nil full.
//
// Tasks begin nearly in the order of their deadlines; with one worker, a wheel of one
// shard and [FullBlock], in the order of [Inline]. Tasks that wait for one another need a
// worker each. A task may end its goroutine (runtime.Goexit).
func NewPool(workers, queue int, full WhenFull) *Pool {
	switch {
	case workers < 1:
		panic(fmt.Sprintf("timingwheel: NewPool: %d workers, must be at least 1", workers))
	case queue < 0:
		panic(fmt.Sprintf("timingwheel: NewPool: negative queue %d", queue))
	case full == nil:
		panic("timingwheel: NewPool: nil WhenFull")
	}
	p := &Pool{full: full}
	p.bound.init(workers, queue)
	p.queue = newRunQueue(&p.bound)
	return p
}

// Close lets the Pool accept no more, and waits until the tasks that it has accepted have
// ended and its goroutines are gone. A task that calls it waits for itself, for ever.
// Close may be called any number of times, by several goroutines.
//
// A closed Pool is full: what its wheels fire later the driver runs, or it is discarded,
// as the Pool's WhenFull says; FullBlock then is [FullCallerRuns]. To lose nothing and end
// in peace, call Shutdown of the wheels first, and then Close.
func (p *Pool) Close() { p.bound.close() }

// Execute runs the tasks as the Pool does those of a wheel.
func (p *Pool) Execute(tasks []func()) {
	r := &p.queue.stranger
	r.running.admit(len(tasks))
	p.execute(functions(tasks), r)
}

// execute passes on what there is room for in one go, and the rest one by one.
func (p *Pool) execute(tasks []task, r *runner) {
	n := p.bound.take(len(tasks))
	if n > 0 {
		p.queue.push(slices.Clone(tasks[:n]), r)
		clear(tasks[:n])
	}
	each(tasks[n:], func(t task) {
		if p.bound.take(1) == 1 {
			p.queue.push([]task{t}, r)
		} else {
			p.full.whenFull(p, t, r)
		}
	})
}

// WhenFull says what happens to a task that is due when a [Pool] is full: one of
// [FullCallerRuns], [FullBlock] and [FullDiscard].
type WhenFull interface {
	whenFull(p *Pool, t task, r *runner)
}

type whenFull int

const (
	// FullCallerRuns has the driver run the task itself. Nothing is lost, and the driver
	// fires no faster than tasks are run. But while it runs one it fires nothing, on no
	// shard: all that comes due meanwhile is late by as long as that takes, channel timers
	// and contexts included, and a task that blocks for ever stops the wheel. Stats counts
	// these in CallerRuns. The conditions of [Inline] hold for every task of the Pool.
	FullCallerRuns whenFull = iota

	// FullBlock has the driver wait until there is room. Nothing is lost, and no task runs
	// on the driver; but while it waits it fires nothing, as with FullCallerRuns. A wheel
	// that is stopped meanwhile is stopped all the same; its driver goroutine ends when the
	// tasks that it had taken have found room.
	FullBlock
)

func (f whenFull) whenFull(p *Pool, t task, r *runner) {
	if f == FullBlock && p.bound.wait() {
		p.queue.push([]task{t}, r)
		return
	}
	r.callerRuns.Add(1)
	runAll([]task{t}, r)
}

// FullDiscard has the driver call f with the task instead of running it, so that nothing
// that comes due is late. f may run the function that it gets, or keep it for later, or
// drop it, and usually counts or logs. It runs on the driver, under the conditions of
// [Inline]; a panic in it is one of the task. FullDiscard panics on nil.
//
// What f gets is the function that was scheduled. Of a Job it is that as well, but it is
// no run of the Job any more, which goes on to its next time. The key of a Keyed is gone.
// A Future has ended with [ErrDiscarded], and what f gets does nothing. Stats counts what
// was discarded.
func FullDiscard(f func(task func())) WhenFull {
	if f == nil {
		panic("timingwheel: FullDiscard(nil)")
	}
	return discardTo(f)
}

type discardTo func(task func())

func (f discardTo) whenFull(_ *Pool, t task, r *runner) {
	r.discarded.Add(1) // first: f may end the goroutine
	runAll([]task{discarded{t, f}}, r)
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
