package timingwheel

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/delayqueue"
)

// driver moves the clocks of all shards. Only one goroutine drives at a time: the
// driver goroutine, or the caller of Drive. So nothing here needs a lock,
// and since all that has to outlast a step is in these fields rather than on
// that goroutine's stack, another goroutine can carry on where a task ended the
// last one (runtime.Goexit, under an executor that runs tasks on the driver).
//
// The driver goroutine is there while the queue is not empty. So a wheel that was
// forgotten without Stop is garbage once nothing is pending.
type driver struct {
	ctx      context.Context // ends when the wheel stops
	queue    *delayqueue.DelayQueue[*slot]
	executor ownExecutor
	runner   *runner
	contexts *runQueue // ends contexts; nil until first needed

	alive    atomic.Bool // the driver goroutine is there; always true under manual drive
	cascades []*cascade  // under way, the innermost last
	expired  expired
	behind   bool // what expired last was too late, and that was logged
}

// expired is what a slice has found to be due. It is filled while a shard flushes a slice, by
// expire and end, and emptied by hand before the next slice.
type expired struct {
	tasks    []task        // for the executor
	contexts []task        // for the wheel's own, which nothing of a user's can block
	late     time.Duration // the most by which one was that fired; -1 if none did
}

// expire notes a task for the executor, and end one for the driver's own run queue. The
// driver's goroutine calls them, with the lock of a shard held.
func (d *driver) expire(t task) { d.expired.tasks = append(d.expired.tasks, t) }
func (d *driver) end(t task)    { d.expired.contexts = append(d.expired.contexts, t) }

// ensure starts the driver goroutine if there is none. It is called after each offer.
func (d *driver) ensure() {
	if !d.alive.Load() && d.alive.CompareAndSwap(false, true) {
		go d.drive()
	}
}

// rest lets the driver goroutine end if the queue is empty, and reports whether it has
// to. Who offers a bucket looks at alive after that, so one of the two sees the other.
func (d *driver) rest() bool {
	if d.queue.Len() > 0 {
		return false
	}
	d.alive.Store(false)
	return d.queue.Len() == 0 || !d.alive.CompareAndSwap(false, true)
}

// drive is the driver goroutine: it blocks until the earliest bucket expires and
// flushes it, until nothing waits any more or the wheel is stopped.
func (d *driver) drive() {
	d.runner.tracer.label() // instead of those of the goroutine that called for it
	returned := false
	defer func() {
		if !returned {
			go d.drive() // a task ended this goroutine, or panicked: then the program is ending
		}
	}()
	d.hand() // what the last one has left, see keep
	d.finish()
	for d.dropEmpty(); !d.rest(); d.dropEmpty() {
		b, err := d.queue.Take(d.ctx)
		if err != nil {
			break
		}
		d.flush(b)
		if t := d.runner.tracer; t != nil {
			t.label() // again: an executor of the user's may have run tasks here, see wrap
		}
	}
	returned = true
}

// dropEmpty drops buckets whose entries have all been canceled from the head of
// the queue, so that the driver does not sleep toward them. One that is emptied
// only while it sleeps will wake it.
func (d *driver) dropEmpty() {
	for {
		b, _, ok := d.queue.Peek()
		if !ok || !b.cascade.shard.dropEmpty(b) {
			return
		}
	}
}

// flush advances the clocks to the expiration of a bucket, passes its entries
// back through add, so that they cascade down or fire, and returns how many were
// handed to the executor.
func (d *driver) flush(b *slot) (handed int) {
	if t := d.runner.tracer; t != nil {
		defer t.startFlush().End()
	}
	return d.begin(b) + d.finish()
}

// finish completes the cascades under way. Between two slices of a cascade one
// bucket that has expired meanwhile is flushed, so that a long cascade does not
// make the finer ones late. One, and then the cascade goes on; and nothing is
// added to a cascade that is under way. So each ends, however much comes due.
//
// The limit: when a cascade takes longer than a tick of its level, the next bucket
// of that level comes due, has to wait for its end, and all that expires later
// waits behind it.
func (d *driver) finish() (handed int) {
	for len(d.cascades) > 0 {
		n, more := d.step()
		handed += n
		if !more {
			continue
		}
		if b, ok := d.poll(); ok {
			handed += d.begin(b)
		}
	}
	return handed
}

// poll returns the earliest bucket if it has expired and no other of its level is
// cascading.
func (d *driver) poll() (*slot, bool) {
	b, at, ok := d.queue.Peek()
	if !ok || at.After(time.Now()) || slices.Contains(d.cascades, b.cascade) {
		return nil, false
	}
	return b, d.queue.DropHead(b) // rather than Poll: another may be the head by now
}

// begin flushes the first slice of a bucket.
func (d *driver) begin(b *slot) (handed int) {
	if b.cascade.shard.expire(b) {
		d.cascades = append(d.cascades, b.cascade)
	}
	return d.hand()
}

// step flushes a slice of the innermost cascade, and reports whether it has more.
func (d *driver) step() (handed int, more bool) {
	last := len(d.cascades) - 1
	c := d.cascades[last]
	more = c.shard.flush(c)
	if !more {
		d.cascades = d.cascades[:last]
	}
	return d.hand(), more
}

// hand hands on what has expired, and returns how many tasks went to the executor.
// What ends contexts goes first, since the logger and the executor may block, or end the
// goroutine.
func (d *driver) hand() int {
	tasks, contexts, late := d.expired.tasks, d.expired.contexts, d.expired.late
	d.expired = expired{tasks[:0], contexts[:0], -1}
	if len(contexts) > 0 {
		if d.contexts == nil {
			d.contexts = newRunQueue(nil)
		}
		d.contexts.stranger.running.admit(len(contexts))
		d.contexts.execute(contexts, &d.contexts.stranger)
	}
	if len(tasks) > 0 {
		defer d.keep(tasks)
	}
	if late >= 0 && d.runner.log != nil {
		d.noteLateness(late)
	}
	if len(tasks) > 0 {
		d.executor.execute(tasks, d.runner)
	}
	return len(tasks)
}

// keep keeps for the next hand the tasks that one before them in the slice has kept from
// running, by a panic that the caller of Drive recovers; or the logger, by that or
// by ending the goroutine. The others are nil.
func (d *driver) keep(tasks []task) {
	d.expired.tasks = slices.DeleteFunc(tasks, func(t task) bool { return t == nil })
}

// flushAll flushes b and whatever else had expired by limit. Each due bucket is
// flushed once, and what is added to it meanwhile is left for another time, also
// while the clock stands still, as it does in a bubble of testing/synctest. (What
// finish lets past a long cascade it does not count.)
func (d *driver) flushAll(b *slot, limit time.Time) (handed int) {
	var due, reopened []*slot
	defer func() { // deferred, in case a task ends the goroutine
		for _, b := range reopened {
			d.queue.Offer(b, limit)
		}
	}()
	for {
		switch {
		case !b.cascade.due:
			handed += d.flush(b)
		case slices.Contains(due, b):
			reopened = append(reopened, b)
		default:
			due = append(due, b)
			handed += d.flush(b)
		}
		_, at, ok := d.queue.Peek()
		if !ok || at.After(limit) {
			return handed
		}
		if b, ok = d.queue.Poll(); !ok {
			return handed // Stop was faster
		}
	}
}

// tooLate is what a driver has to be late by to say so.
const tooLate = time.Second

// noteLateness is told how late the latest was of what has just expired.
func (d *driver) noteLateness(late time.Duration) {
	wasBehind := d.behind
	d.behind = late > tooLate // first: the logger may end the goroutine
	if d.behind && !wasBehind {
		d.runner.log.Warn("timingwheel: driver is late", "late", late)
	}
}
