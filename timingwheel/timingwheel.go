package timingwheel

import (
	"context"
	"sync"
	"time"
)

// TimingWheel schedules functions. Make one with [New] and end it with
// [TimingWheel.Stop]; the zero value is not usable. All its methods are safe for
// concurrent use, and may be called from inside a task.
type TimingWheel struct {
	clock   clock
	shards  []shard
	ctx     context.Context // ends when the wheel stops
	cancel  context.CancelCauseFunc
	wall    func() time.Time // time.Now, but in tests
	driver  driver
	runner  *runner       // on its own: an executor's queue may refer to it for longer than anybody to the wheel
	driving chan struct{} // holds one token while Drive drives; nil without manual drive

	// batches is held for reading by a batch that is added in several slices, and for writing
	// while the shards are closed. So a batch is accepted as a whole. Lock order: batches,
	// shard.
	batches sync.RWMutex

	// tokens has the shard of each processor: a sync.Pool is the one thing in the
	// standard library that is kept by processor.
	tokens sync.Pool // of *shard
}

// New returns a wheel that is running, with the given options over the defaults:
// ticks of 1ms, 512 slots a wheel, a shard or so a processor, and an executor under
// which a task that blocks delays no other. It panics on an option out of range.
//
// A wheel is cheap to make, some microseconds and two kilobytes a shard. The first task on a
// shard takes about 50 KB, and a further level, which is made when first needed,
// about 12: share one wheel rather than make one for each connection. It has one
// goroutine, the driver, which is there while something is pending (or was, before it was
// canceled, and its time has not come), and sleeps while nothing is due. So a wheel
// that is forgotten without Stop still fires what is pending, and then is garbage like
// anything else; unless a job or a ticker goes on for ever. A wheel that was never used has
// no goroutine.
func New(opts ...Option) *TimingWheel {
	c := newConfig(opts)
	queue := c.newQueue()
	w := &TimingWheel{
		clock:  newClock(c.tick),
		shards: make([]shard, c.shards),
		wall:   time.Now,
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.runner = &runner{panicHandler: c.panicHandler, tracer: c.tracer, log: c.log}
	w.driver = driver{ctx: w.ctx, queue: queue, shards: w.shards, runner: w.runner, manual: c.manual}
	w.driver.connect(c.executor, c.gate, c.mayBlock)
	limit := newLimit(c.maxPending)
	for i := range w.shards {
		next := &w.shards[(i+1)%len(w.shards)]
		w.shards[i].init(&w.clock, &w.driver, limit, log2(c.slots), next)
	}
	if c.manual {
		w.driving = make(chan struct{}, 1)
		w.driver.alive.Store(true)
	}
	return w
}

// lock returns, locked, the shard of the processor that it runs on. The choice
// must follow the processor: with one at random, a shard's cache lines travel
// between cores at every call, which is three times the price. A processor that
// finds its shard locked moves on to the next for good, so that two that share a
// shard by chance part, and nobody waits for a slice of a cascade while another
// shard is free.
func (w *TimingWheel) lock() *shard {
	s, ok := w.tokens.Get().(*shard)
	if !ok {
		s = &w.shards[0] // whoever finds it taken moves on
	}
	if !s.tryLock() {
		s = s.next
		s.lock()
	}
	w.tokens.Put(s)
	return s
}

// Len returns how much is pending: tasks that were neither handed to the executor
// nor canceled nor handed back, and with them channel timers, tickers and the
// deadlines of contexts. It is exact when nothing else is under way. O(shards).
func (w *TimingWheel) Len() int {
	n := 0
	for i := range w.shards {
		n += w.shards[i].len()
	}
	return n
}

// Stop ends the wheel at once and returns the functions that will not run, in no order:
// all of [TimingWheel.AfterFunc], [TimingWheel.Schedule] and [Keyed] that were pending,
// each exactly once. Pending channel timers and contexts move to package time, and
// tickers end. A pending [Job] or [Future] is not returned: it ends, with [ErrStopped].
// What has been handed to the executor runs on; Stop does not wait for it (a
// sync.WaitGroup of your own does), nor for the driver to hand over what it has just
// taken. What is scheduled after Stop is refused; what races with it is either refused or
// handed back (or has run).
//
// Stop may be called any number of times, from anywhere, a task included; calls after the
// first return nil, as the first does when nothing is pending; of calls at the same time
// each returns a part. It costs a pass over what is pending, and holds each shard's lock
// for its part of that.
func (w *TimingWheel) Stop() []Pending {
	w.cancel(ErrStopped)
	pending := w.stopShards()
	// Let go of the buckets too, for the sake of those who keep a Timer.
	for b, _, ok := w.driver.queue.Peek(); ok; b, _, ok = w.driver.queue.Peek() {
		w.driver.queue.DropHead(b)
	}
	w.driver.queue.Close()
	if w.driver.gate != nil {
		w.driver.gate.leave(&w.driver)
	}
	return pending
}

func (w *TimingWheel) stopShards() (pending []Pending) {
	w.batches.Lock()
	defer w.batches.Unlock()
	for i := range w.shards {
		pending = append(pending, w.shards[i].stop()...)
	}
	return pending
}
