package engine

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/delayqueue"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// hub is what the shards and their driver share. A shard knows the hub, and not the driver.
type hub struct {
	clock    *clock
	queue    *delayqueue.DelayQueue[*slot] // of the open buckets of all shards
	runner   *run.Runner
	limit    *limit // nil: none
	bits     uint   // log2 of the slots of a wheel
	manual   bool   // somebody calls Drive or Advance, and no goroutine of ours drives
	lateHint lateHint
	host     host
	atOnce   *run.Queue // runs what is due when it is added, without the driver; nil: the driver takes it

	gate       gate          // what is due must pass it on its way to the executor; nil: none
	room       run.Admission // of the executor; nil: it has room for everything
	numWaiting atomic.Int64  // entries that wait at the gate, of all shards
	profile    profiler      // nil: none
}

// host is what shards, gates and the handoff need of the driver.
type host interface {
	run.Waiter
	startWorkers()                           // for what was handed on, before something that takes long
	driveOn()                                // the goroutine that calls it becomes the driver
	takeWaiting(tasks []run.Task) []run.Task // a slice of what waits, in the memory of tasks
}

func (h *hub) init(c *clock, queue *delayqueue.DelayQueue[*slot], r *run.Runner, l *limit, bits uint, manual bool) {
	h.clock, h.queue, h.runner, h.limit, h.bits, h.manual = c, queue, r, l, bits, manual
	h.lateHint.oneOf = asked
	h.lateHint.next(math.MaxInt64)
}

// offer puts a bucket that was just opened into the queue, which counts from the clock's start.
func (h *hub) offer(b *slot, at time.Duration) {
	b.cascade.openBuckets++
	h.lateHint.expect(at) // first, or the driver may have come and gone
	h.queue.Offer(b, h.clock.Start.Add(at))
}

// after returns the delay d from now, see Handle.After.
func (h *hub) after(d time.Duration) Delay {
	var now time.Duration
	if h.clock.plain { // as in Here
		now = time.Since(h.clock.base)
	} else {
		now = h.clock.Now()
	}
	if h.lateHint.isLate(now) {
		h.clock.Check(now)
		h.lateHint.yield(now)
	}
	return Delay{now, d}
}

// gate stands between the wheel and an executor that cannot take every task at once. An
// entry that does not get through stays pending: it waits on its shard, in the order in which it
// came due. The handoff is a gate, and so is roomGate. The default executor has none.
type gate interface {
	// lets reports whether all entries of the present slice may pass, so that hold need not
	// be called; false if that is not known for all. The driver calls it before a slice, with
	// s.mu held: hold took 34 of the 600 instructions of firing an entry inline.
	lets() bool

	// hold decides about an entry that is due and in no bucket. Either it makes the entry
	// wait (shard.wait), and returns true. Or it takes room for one task, and returns false;
	// never while another of the shard waits. The caller holds s.mu.
	hold(s *shard, i bucket.Index) bool
}

// roomGate is the gate of an executor with an admission.
type roomGate struct{ *hub }

func (g roomGate) lets() bool { return false } // there may be room for some of the tasks only

func (g roomGate) hold(s *shard, i bucket.Index) bool {
	if g.room.TryAcquire() {
		return false
	}
	s.wait(i)
	g.room.Join(g.host)
	return true
}
