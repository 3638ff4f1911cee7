package engine

import (
	"math"
	"slices"
	"time"

	"github.com/tickwheel/tickwheel/internal/stack"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// driver moves the clocks of all shards. It waits until the earliest bucket expires,
// advances each wheel's currentTime, and flushes the bucket back through add, so that its
// entries cascade down to a finer wheel, or fire.
//
// One goroutine drives at a time: the driver goroutine, or the caller of Drive. So the
// fields below need no lock. All that has to outlast a step is in these fields. So another
// goroutine can carry on where a task has ended the last one (runtime.Goexit), or holds it
// up (see handoff).
//
// The driver has a goroutine only while something is due. The queue starts it, with the
// bucket that has expired. When nothing more is due, the goroutine registers the next driver
// with the queue, and only then runs tasks itself. So a wake-up costs one timer and one
// goroutine, like one of time.AfterFunc, and a task that blocks holds up nobody. Beside a
// driver goroutine that slept and woke a worker, 1000 timers a second, each alone, took 0.75
// of the processor time. And a wheel that was forgotten without Stop is garbage once nothing
// is pending.
type driver struct {
	hub
	shards  []shard
	handoff handoff
	workers *run.Queue // the executor if it is Goroutines; nil: another

	// Only the one who drives uses what follows.
	onDue    func(b *slot) // live
	stack    *stack.Habit
	alone    run.Task   // for the workers, and not yet handed to them; nil: none
	cascades []*cascade // under way, the innermost last
	sliced   bool       // the last slice was one of a cascade that has more
	found    dueTasks
	internal *run.Queue // runs what runInternal of a shard has noted; nil until first needed
	behind   bool       // what expired last was too late, and that was logged
	marks    *marks     // nil without a logger
}

// connect gives the driver its executor, and the executor's admission if it has one. If
// the executor may run a user's function on the driver, the gate is the handoff.
func (d *driver) connect(e run.Executor, a run.Admission, mayBlock bool) {
	d.host, d.admission = d, a
	d.handoff = handoff{hub: &d.hub, executor: e, patience: time.Millisecond, began: run.Stopwatch{Made: d.clock.made()}}
	d.workers, _ = e.(*run.Queue)
	if !d.manual {
		d.atOnce = d.workers
	}
	switch {
	case a != nil:
		d.gate = admissionGate{&d.hub}
	case mayBlock && !d.manual:
		d.gate = &d.handoff
	}
}

// start has the queue start the driver when the first bucket expires.
func (d *driver) start() {
	d.onDue, d.stack = d.live, new(stack.Habit)
	d.queue.TakeFunc(d.onDue)
}

// live is the life of the driver goroutine. The queue calls it with a bucket that has
// expired. After drive has returned, another goroutine may drive, and this one works for the
// default executor.
//
// The goroutine begins with a stack of 2 KB, 1.1 of which are for frames. To flush a bucket of
// few entries takes less than that. When it took 1.13 KB, each wake-up made the stack
// grow, which was 5 to 11 % of the processor time of timers that come due alone. So what is
// seldom needed has a frame of its own: see shrinking.Map, and Tracer.StartFlush. And drive has
// returned before a function runs, which then has 0.8 KB. For those that need more, see stack.Habit.
func (d *driver) live(b *slot) {
	var here byte
	habit := d.stack // a function that blocks must not keep d, and so the wheel
	begin, measure := stack.Position(&here), habit.Begin()
	if alone := d.drive(b); d.workers != nil {
		d.workers.Work(alone, d.runner)
	}
	if measure {
		habit.End(stack.Position(&here) != begin)
	}
}

// drive drives as loop does, after the flush of b if that is not nil. It is not inlined: see
// live.
//
//go:noinline
func (d *driver) drive(b *slot) (alone run.Task) {
	d.surviveGoexit(func() {
		if b != nil {
			d.flushFirst(b)
		}
		alone = d.loop()
	})
	return alone
}

// driveOn is the life of a goroutine that becomes the driver while a flush is under way.
func (d *driver) driveOn() { d.live(nil) }

// surviveGoexit runs a part of the driver goroutine's life. If a task ends the goroutine,
// another one resumes.
func (d *driver) surviveGoexit(part func()) {
	d.runner.Tracer.Label() // instead of the labels of the goroutine that called for it
	returned := false
	defer func() {
		if !returned {
			go d.surviveGoexit(d.resume) // or a task has panicked: then the program is ending
		}
	}()
	part()
	returned = true
}

// patience is for how many slices of a cascade, some 10 us each, the driver waits for
// somebody to take a task.
const patience = 8

// loop drives until nothing more is due, or another goroutine drives on. It returns the
// task that is left for the goroutine to run, or nil.
//
// A goroutine that is started for tasks may wait behind the driver for a processor, for up
// to the 10 ms after which the scheduler takes the driver off. So a driver that sees nobody
// take a task starts another driver, and runs the tasks itself. Beside a cascade of 4 M,
// single functions were late by 7 to 16 ms at the 99th percentile without that, and by 2
// with it.
func (d *driver) loop() (alone run.Task) {
	var still run.Standstill // of this loop: it refers to tasks
	for d.handOver() {
		if d.continueCascades() {
			if d.workers != nil && still.Look(d.workers) >= patience {
				go d.driveOn()
				return nil
			}
			continue
		}
		d.dropEmpty()
		alone, d.alone = d.alone, nil // once TakeFunc returns false, d is the next driver's
		b, ok := d.queue.TakeFunc(d.onDue)
		if !ok {
			return alone
		}
		d.alone = alone
		d.startWorkers()
		d.flushFirst(b)
	}
	return nil
}

// resume carries on for a goroutine that a task has ended.
func (d *driver) resume() {
	if d.handoff.returned() {
		d.loop()
	}
}

// dropEmpty drops buckets whose entries were all canceled from the head of the queue, so
// that the driver does not sleep toward them. For a bucket that is emptied while the driver
// sleeps, see shard.dropEmptied. The tasks that were handed on do not wait until many are dropped.
func (d *driver) dropEmpty() {
	for dropped := 0; ; dropped++ {
		if dropped == 16 {
			d.startWorkers()
		}
		b, at, ok := d.queue.Peek()
		if !ok {
			d.lateHint.next(math.MaxInt64)
			return
		}
		if !d.shards[b.cascade.shard].dropEmpty(b) {
			d.lateHint.next(at.Sub(d.clock.Start))
			return
		}
	}
}

// flushFirst flushes the first slice of a bucket that was taken from the queue.
func (d *driver) flushFirst(b *slot) {
	end := d.runner.Tracer.StartFlush()
	d.sliced = d.shards[b.cascade.shard].expire(b, &d.found)
	end()
	if d.sliced {
		d.cascades = append(d.cascades, b.cascade)
	}
}

// continueCascades flushes one slice more, and reports false if no cascade is under way.
//
// Between two slices of a cascade it flushes one bucket that has expired meanwhile, so
// that a long cascade does not make the finer buckets late. After that one bucket the
// cascade goes on. Nothing is added to a cascade that is under way. So each cascade ends,
// however much comes due.
//
// The limit: when a cascade takes longer than a tick of its level, the next bucket of
// that level comes due. It waits for the end of the cascade, and all that expires later
// waits behind it.
func (d *driver) continueCascades() bool {
	if len(d.cascades) == 0 {
		return false
	}
	d.startWorkers() // also when nothing more of this cascade is due
	if d.sliced {
		if b, ok := d.poll(); ok {
			d.flushFirst(b)
			return true
		}
	}
	d.flushNext()
	return true
}

// poll returns the earliest bucket if it has expired and no other of its level is
// cascading.
func (d *driver) poll() (*slot, bool) {
	b, at, ok := d.queue.Peek()
	if !ok || at.Sub(d.clock.Start) > d.clock.Now() || slices.Contains(d.cascades, b.cascade) {
		return nil, false
	}
	return b, d.queue.DropHead(b) // rather than Poll: another may be the head by now
}

// flushNext flushes a slice of the innermost cascade.
func (d *driver) flushNext() {
	end := d.runner.Tracer.StartFlush()
	last := len(d.cascades) - 1
	c := d.cascades[last]
	d.sliced = d.shards[c.shard].flush(c, &d.found)
	end()
	if !d.sliced {
		d.cascades = d.cascades[:last]
	}
}

// handOver hands on what has expired. It reports false if the executor took so long that
// another goroutine drives on: then the caller must not touch the driver any more. The
// tasks of the wheel's own run queue go first, since the executor may end the goroutine.
func (d *driver) handOver() (driving bool) {
	tasks, internal, late := d.found.tasks, d.found.internal, d.found.late
	if d.found.held && d.admission != nil {
		d.admission.Serve()
	}
	d.found = dueTasks{tasks: tasks[:0], internal: internal[:0], late: -1}
	if late >= 0 && d.runner.Log != nil {
		internal = d.noteLateness(late, internal)
	}
	if len(internal) > 0 {
		d.runInternal(internal)
	}
	if len(tasks) == 0 {
		return true
	}
	if d.workers != nil {
		d.handToWorkers(tasks)
		return true
	}
	if d.manual {
		defer d.keep(tasks)
		d.handoff.execute(tasks)
		return true
	}
	return d.handoff.call(tasks)
}

// handToWorkers is handOver for the executor Goroutines. The driver's goroutine is a worker as
// soon as it no longer drives. So no other is started, unless the driver has more to do.
//
// A task that is alone does not even go through the queue. So in most wake-ups the driver
// allocates nothing, and does not have to help the garbage collector. Through the queue,
// functions without delay, one after the other, took 1.16 of the processor time.
func (d *driver) handToWorkers(tasks []run.Task) {
	if len(tasks) == 1 {
		d.alone = tasks[0] // startWorkers has taken the one before
	} else {
		d.workers.Enqueue(run.NewBatch(tasks...), d.runner)
	}
	clear(tasks)
}

// startWorkers starts a goroutine for what was handed on. See host.
func (d *driver) startWorkers() {
	if d.workers == nil {
		return
	}
	if d.alone != nil {
		d.workers.Enqueue(run.NewBatch(d.alone), d.runner)
		d.alone = nil
	}
	d.workers.Start()
}

// runInternal runs tasks on the wheel's own run queue.
func (d *driver) runInternal(tasks []run.Task) {
	if d.internal == nil {
		d.internal = run.NewQueue(nil)
	}
	r := &d.internal.Stranger
	if d.clock.IsManual() {
		r = d.runner // settle waits for these as well
	}
	r.Admit(len(tasks))
	d.internal.ExecuteTasks(tasks, r)
}

func (d *driver) shard(id int) *shard { return &d.shards[id] }

// takeWaiting implements host: the slice is of the shard that has waited longest.
func (d *driver) takeWaiting(tasks []run.Task) []run.Task {
	out := dueTasks{tasks: tasks[:0]}
	d.longestWaiting().takeWaiting(&out, SliceLen)
	return out.tasks
}

// Waits and LetIn implement run.Waiter.
func (d *driver) Waits() int64 { return d.numWaiting.Load() }

func (d *driver) LetIn() (used bool) {
	return d.longestWaiting().takeWaiting(new(dueTasks), 1) > 0
}

// longestWaiting returns the shard whose first entry at the gate was due first.
// O(shards).
func (d *driver) longestWaiting() *shard {
	longest := &d.shards[0]
	for i := range d.shards {
		if s := &d.shards[i]; s.waitsSince.Load() < longest.waitsSince.Load() {
			longest = s
		}
	}
	return longest
}

// tooLate is the lateness from which on the driver logs it.
const tooLate = time.Second

// noteLateness is told the greatest lateness of what has just expired. If that is to be
// logged, it appends a task that does so: a logger is a user's function, which may block.
func (d *driver) noteLateness(late time.Duration, tasks []run.Task) []run.Task {
	d.markLateness()
	wasBehind := d.behind
	d.behind = late > tooLate
	if d.behind && !wasBehind {
		log, all := d.runner.Log, d.lateness()
		last := all.Sub(d.marks.older)
		tasks = append(tasks, run.Function(func() {
			log.Warn("timingwheel: the driver is late", "late", late,
				"p99", last.Quantile(0.99), "p99_since_start", all.Quantile(0.99))
		}))
	}
	return tasks
}

// marks are what the histogram of lateness was some time ago. The difference to the older
// one is the lateness of the last minute, without a hiccup at the start.
type marks struct {
	older, newer Histogram
	at           time.Duration // of newer
}

// markLateness makes a new mark each half minute in which something expires.
func (d *driver) markLateness() {
	if d.marks == nil {
		d.marks = new(marks)
	}
	if now := d.shards[0].clock.Now(); now-d.marks.at >= 30*time.Second {
		d.marks.older, d.marks.newer, d.marks.at = d.marks.newer, d.lateness(), now
	}
}

// lateness returns the lateness of all shards.
func (d *driver) lateness() (all Histogram) {
	for i := range d.shards {
		s := &d.shards[i]
		s.lockForDriver()
		if s.history != nil {
			all.merge(&s.history.lateness)
		}
		s.unlock()
	}
	return all
}
