package timingwheel

import (
	"context"
	"runtime"
	"runtime/pprof"
	"time"

	"github.com/tickwheel/tickwheel/delayqueue"
)

// driver moves the clocks of all shards. Only one goroutine drives at a time: the
// driver goroutine, or the caller of AdvanceClock. So nothing here needs a lock,
// and since all that has to outlast a step is in these fields rather than on
// that goroutine's stack, another goroutine can carry on where a task ended the
// last one (runtime.Goexit, under an executor that runs tasks on the driver).
type driver struct {
	queue    *delayqueue.DelayQueue[*slot]
	executor Executor
	cascades []*cascade // under way, the innermost last
	tasks    []func()   // scratch for step
}

// drive is the driver goroutine: it blocks until the earliest bucket expires and
// flushes it, until ctx ends.
func (d *driver) drive(ctx context.Context) {
	// A fresh goroutine has the pprof labels of its creator, which has nothing to
	// do with what runs here.
	pprof.SetGoroutineLabels(context.Background())

	returned := false
	defer func() {
		if !returned {
			go d.drive(ctx) // a task ended this goroutine, or panicked: then the program is ending
		}
	}()
	d.finish()
	for {
		b, err := d.take(ctx)
		if err != nil {
			returned = true
			return
		}
		d.flush(b)
	}
}

// take waits for the earliest bucket to expire. It does not sleep toward a bucket
// whose entries have all been cancelled, as far as it can tell beforehand.
func (d *driver) take(ctx context.Context) (*slot, error) {
	for {
		b, _, ok := d.queue.Peek()
		if !ok || !b.cascade.shard.dropEmpty(b) {
			return d.queue.Take(ctx)
		}
	}
}

// flush advances the clocks to the expiration of a bucket, passes its entries
// back through add, so that they cascade down or fire, and returns how many were
// handed to the executor. Between two slices of a cascade one bucket that has
// expired meanwhile is flushed, so that a long cascade does not make the finer
// ones late. One, and then the cascade goes on: however much comes due, it ends.
func (d *driver) flush(b *slot) (handed int) {
	d.begin(b)
	return d.finish()
}

// finish completes the cascades under way, and returns how many tasks it handed
// to the executor.
func (d *driver) finish() (handed int) {
	for len(d.cascades) > 0 {
		n, more := d.step()
		handed += n
		if more {
			if b, ok := d.queue.Poll(); ok {
				d.begin(b)
			}
		}
	}
	return handed
}

func (d *driver) begin(b *slot) {
	if b.cascade.shard.expire(b) {
		d.cascades = append(d.cascades, b.cascade)
	}
}

// step flushes one slice of the innermost cascade, hands over what is due, and
// returns how many that was, and whether the cascade has more.
func (d *driver) step() (handed int, more bool) {
	last := len(d.cascades) - 1
	c := d.cascades[last]
	tasks, more := c.shard.flush(c, d.tasks[:0])
	if !more {
		d.cascades = d.cascades[:last]
	}
	if len(tasks) > 0 {
		d.hand(tasks)
	}
	if more || len(tasks) > 0 {
		// To release the lock is not enough for those who wait for it: the driver
		// would take it straight back, until sync.Mutex declares starvation after
		// 1 ms. And tasks that were handed over should start before the next slice.
		runtime.Gosched()
	}
	return len(tasks), more
}

func (d *driver) hand(tasks []func()) {
	d.tasks = tasks
	defer clear(tasks) // keep no closure
	d.executor.Execute(tasks)
}

// AdvanceClock drives a wheel made with [WithManualDrive]: it waits up to timeout
// for the next bucket to expire, does all that is due by then, and returns how
// many tasks it handed to the executor. With a timeout that is not positive it
// does not wait. It returns 0 when nothing came due in time, when the bucket's
// tasks only moved to a finer wheel, and once the wheel is stopped. It moves no
// clock but the wheel's own: time itself passes as always.
//
// One call drives at a time; another waits for its turn, up to its timeout. A
// call from a task that runs inline can therefore do nothing but wait its
// timeout out. On a wheel that drives itself AdvanceClock panics.
func (w *TimingWheel) AdvanceClock(timeout time.Duration) int {
	if w.turn == nil {
		panic("timingwheel: AdvanceClock of a wheel without WithManualDrive")
	}
	ctx, cancel := context.WithTimeout(w.ctx, timeout)
	defer cancel()
	if !w.takeTurn(ctx) {
		return 0
	}
	defer func() { <-w.turn }()

	d := &w.driver
	handed := d.finish()
	b, ok := d.queue.Poll()
	if !ok {
		var err error
		if b, err = d.take(ctx); err != nil {
			return handed
		}
	}
	for limit := time.Now(); ; {
		handed += d.flush(b)
		_, at, ok := d.queue.Peek()
		if !ok || at.After(limit) {
			return handed
		}
		if b, ok = d.queue.Poll(); !ok {
			return handed
		}
	}
}

// takeTurn prefers the turn to the end of ctx.
func (w *TimingWheel) takeTurn(ctx context.Context) bool {
	select {
	case w.turn <- struct{}{}:
		return true
	default:
	}
	select {
	case w.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
