package timingwheel

import (
	"container/list"
	"context"
	"math"
	"sync"
	"time"
)

// TimingWheel schedules functions. Make one with [New] and end it with [TimingWheel.Stop]
// or [TimingWheel.Shutdown]. The zero value is not usable. All methods are safe for
// concurrent use, and may be called from inside a task.
type TimingWheel struct {
	clock   clock
	shards  []shard
	ctx     context.Context // ends when the wheel stops
	cancel  context.CancelCauseFunc
	wall    func() time.Time // instead of the clock; nil except in tests
	driver  driver
	runner  *runner       // apart, since an executor's queue may refer to it when nobody refers to the wheel
	driving chan struct{} // holds a token while a Drive is under way; nil without manual drive

	// batches is held for reading by a batch that is added in several slices, and for
	// writing while the shards are closed. So a batch is accepted as a whole. Lock order:
	// batches, shard.
	batches sync.RWMutex

	// tokens holds the shard of each processor. A sync.Pool is the only thing in the
	// standard library that is kept by processor.
	tokens sync.Pool // of *shard

	families families // of the contexts' parents
}

// New returns a wheel that is running. The options change the defaults: ticks of 1ms, 512
// slots a wheel, about one shard a processor, and an executor under which a task that
// blocks delays no other. New panics on an option that is out of range.
//
// A wheel is cheap to make: some microseconds, and two kilobytes a shard. The first task
// on a shard takes about 50 KB. Each further level takes about 20 KB, and is made when it
// is first needed. So share one wheel; do not make one for each connection.
//
// A wheel has a goroutine of its own, the driver, only while something is due. While
// something is pending, it has a timer of package time. So a wheel that is forgotten
// without Stop fires what is pending, and is then garbage like anything else, unless a job
// or a ticker goes on for ever. (If what was pending was canceled, the timer may keep the
// wheel until its time has come.)
func New(opts ...Option) *TimingWheel {
	c := newConfig(opts)
	queue := c.newQueue()
	w := &TimingWheel{
		clock:  c.newClock(),
		shards: make([]shard, c.shards),
	}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	w.runner = &runner{panicHandler: c.panicHandler, tracer: c.tracer, log: c.log}
	d := &w.driver // rather than a driver that is copied
	d.clock, d.queue, d.shards, d.runner, d.manual = &w.clock, queue, w.shards, w.runner, c.manual
	d.pulse.oneOf = asked
	d.pulse.next(math.MaxInt64)
	d.connect(c.executor, c.gate, c.mayBlock)
	limit := newLimit(c.maxPending)
	for i := range w.shards {
		next := &w.shards[(i+1)%len(w.shards)]
		w.shards[i].init(&w.clock, d, limit, log2(c.slots), next)
	}
	if c.manual {
		w.driving = make(chan struct{}, 1)
	} else {
		d.start()
	}
	return w
}

// lock returns the shard of the processor that it runs on, locked. The choice must follow
// the processor. If it were random, a shard's cache lines would travel between cores at
// every call, at three times the price. A processor that finds its shard locked moves on
// to the next shard for good. So two processors that share a shard by chance part, and
// nobody waits for a slice of a cascade while another shard is free.
func (w *TimingWheel) lock() *shard {
	s, ok := w.tokens.Get().(*shard)
	if !ok {
		s = &w.shards[0] // a processor that finds it taken moves on
	}
	if !s.tryLock() {
		s = s.next
		s.lock()
	}
	w.tokens.Put(s)
	return s
}

// yield lets the driver run first if it is late. The caller, who is about to add and holds
// no lock, has read the clock.
func (w *TimingWheel) yield(now time.Duration) { w.driver.pulse.yield(now) }

// Len returns how much is pending: tasks that were not handed to the executor, canceled
// or handed back. Channel timers, tickers and the deadlines of contexts count too. The
// number is exact while nothing else is under way. O(shards).
func (w *TimingWheel) Len() int {
	n := 0
	for i := range w.shards {
		n += w.shards[i].len()
	}
	return n
}

// Stop ends the wheel at once and returns the functions that will not run, in no order.
// These are all that were pending of [TimingWheel.AfterFunc], [TimingWheel.Schedule],
// [TimingWheel.ScheduleBatch], [Keyed] and [Group], each exactly once.
//
// What else is pending is not returned. Channel timers and contexts move to package time.
// Tickers end. A [Job] or [Future] ends with [ErrStopped].
//
// What has been handed to the executor goes on. Stop does not wait for it: use
// [TimingWheel.Shutdown], also after Stop, or a sync.WaitGroup of your own. Nor does Stop
// wait for the driver to hand over what it has just taken. What is scheduled after Stop
// is refused. What is scheduled at the same time is refused or handed back, or has run.
//
// Stop may be called any number of times, from anywhere, also from a task. The first call
// returns nil if nothing is pending, and later calls return nil. Of several calls at the
// same time each returns a part.
//
// Stop costs a pass over what is pending, and takes the memory that it returns, 32 bytes a
// function; that of the wheel is freed on the way. After every 256 functions it gives way
// to those who wait for the lock, so it holds nobody up. What it has not come to yet can
// be canceled meanwhile, and is not returned then.
func (w *TimingWheel) Stop() []Pending {
	w.cancel(ErrStopped)
	oneShots, contexts := w.stopShards()
	for _, of := range contexts {
		for place := of.Front(); place != nil; place = place.Next() {
			place.Value.(context.CancelCauseFunc)(ErrStopped)
		}
	}
	// Release the buckets too, for those who keep a Timer.
	for b, _, ok := w.driver.queue.Peek(); ok; b, _, ok = w.driver.queue.Peek() {
		w.driver.queue.DropHead(b)
	}
	w.driver.queue.Close()
	w.driver.pulse.next(math.MaxInt64)
	pending := w.handBack(oneShots)
	if w.driver.gate != nil {
		w.driver.gate.leave(&w.driver)
	}
	return pending
}

// runsOn reports whether New was given this executor.
func (w *TimingWheel) runsOn(e ownExecutor) bool { return w.driver.handoff.executor == e }

// stopShards lets nothing fire any more. It returns how many one-shots are pending, and
// the contexts of the Futures that run. These are for the caller to end, without a lock:
// contexts call what others have registered.
func (w *TimingWheel) stopShards() (oneShots int64, contexts []*list.List) {
	w.batches.Lock()
	defer w.batches.Unlock()
	for i := range w.shards {
		n, c := w.shards[i].stop()
		oneShots += n
		if c != nil {
			contexts = append(contexts, c)
		}
	}
	return oneShots, contexts
}

// handBack takes all that is pending off the shards, which are stopped, and returns what
// is to be handed back. It asks for the memory once, since append would take several times
// as much: for all one-shots, although Futures and the operations of package purgatory end
// instead. If there are many of these, it returns a copy.
func (w *TimingWheel) handBack(oneShots int64) []Pending {
	var pending []Pending
	if oneShots > 0 {
		pending = make([]Pending, 0, oneShots)
	}
	for i := range w.shards {
		for chunk, more := 0, true; more; {
			chunk, more = w.shards[i].stopSlice(chunk, sliceLen, &pending)
		}
	}
	switch {
	case len(pending) == 0:
		return nil
	case len(pending) < cap(pending)/2:
		return append([]Pending(nil), pending...)
	}
	return pending
}
