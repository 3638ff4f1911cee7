package timingwheel

import (
	"container/list"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/bits"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/delayqueue"
)

// engine is a TimingWheel without its surface: shards, which hold what is pending, and a
// driver, which makes it fire.
type engine struct {
	clock   clock
	shards  []shard
	ctx     context.Context // ends when the engine stops
	cancel  context.CancelCauseFunc
	wall    func() time.Time // the wall clock
	driver  driver
	runner  *runner       // apart, since an executor's queue may refer to it when nobody refers to the engine
	driving chan struct{} // holds a token while a Drive is under way; nil without manual drive

	// batches is held for reading by a batch that is added in several slices, and for
	// writing while the shards are closed. So a batch is accepted as a whole. Lock order:
	// batches, shard.
	batches sync.RWMutex

	// tokens holds the shard of each processor. A sync.Pool is the only thing in the
	// standard library that is kept by processor.
	tokens sync.Pool // of *shard

	// attached is the surface's, which can have no fields of its own.
	attached any
}

// The errors of what is refused.
var (
	errStopped        = errors.New("timingwheel: stopped")
	errTooManyPending = errors.New("timingwheel: too many pending")
)

// settings say how an engine is made. They must have been checked.
type settings struct {
	tick     time.Duration
	slots    int // of a wheel, rounded up to a power of two
	shards   int // rounded up to a power of two
	executor ownExecutor
	room     admission  // of the executor; nil: it has room for everything
	mayBlock bool       // the executor may run a user's function on the driver
	manual   bool       // drive or advance drives
	start    *time.Time // of a manual clock; nil: real time
	precise  bool

	maxPending   int
	panicHandler func(recovered any, stack []byte)
	tracer       *tracer
	log          *slog.Logger
}

// newEngine makes an engine that is running.
func newEngine(c *settings, attached any) *engine {
	queue := c.newQueue()
	e := &engine{clock: c.newClock(), attached: attached, shards: make([]shard, 1<<log2(c.shards))}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.runner = &runner{panicHandler: c.panicHandler, tracer: c.tracer, log: c.log}
	e.wall = e.clock.read
	d := &e.driver // rather than a driver that is copied
	d.shards = e.shards
	d.hub.init(&e.clock, queue, e.runner, newLimit(c.maxPending), log2(c.slots), c.manual)
	d.connect(c.executor, c.room, c.mayBlock)
	for i := range e.shards {
		e.shards[i].init(&d.hub, i, &e.shards[(i+1)%len(e.shards)])
	}
	if c.manual {
		e.driving = make(chan struct{}, 1)
	} else {
		d.start()
	}
	return e
}

// log2 returns the base-2 logarithm of n, rounded up.
func log2(n int) uint { return uint(bits.Len(uint(n - 1))) }

func (c *settings) newClock() clock {
	if c.start != nil {
		return newManualClock(c.tick, *c.start)
	}
	return newClock(c.tick)
}

func (c *settings) newQueue() *delayqueue.DelayQueue[*slot] {
	if c.start != nil {
		return delayqueue.NewAt[*slot](*c.start)
	}
	if !c.precise {
		return delayqueue.New[*slot]()
	}
	queue := delayqueue.NewPrecise[*slot]()
	if c.log != nil && !queue.Precise() {
		c.log.Warn("timingwheel: precise wake-ups are not available")
	}
	return queue
}

// lock returns the shard of the processor that it runs on, locked. The choice must follow
// the processor. If it were random, a shard's cache lines would travel between cores at
// every call, at three times the price. A processor that finds its shard locked moves on
// to the next shard for good. So two processors that share a shard by chance part, and
// nobody waits for a slice of a cascade while another shard is free.
func (e *engine) lock() *shard {
	s, ok := e.tokens.Get().(*shard)
	if !ok {
		s = &e.shards[0] // a processor that finds it taken moves on
	}
	if !s.tryLock() {
		s = s.next
		s.lock()
	}
	e.tokens.Put(s)
	return s
}

// yield lets the driver run first if it is late. The caller, who is about to add and holds
// no lock, has read the clock.
func (e *engine) yield(now time.Duration) { e.driver.pulse.yield(now) }

// schedule adds a one-shot. It unlocks without a defer, which costs 2 ns. Nothing under
// the lock can panic: accept returns an error when the arena is full.
func (e *engine) schedule(after delay, f func(), kind bucket.Tag) (h entry, err error) {
	e.yield(after.now)
	h.join(e)
	err = h.accept(after, f, kind)
	h.unlock()
	if err != nil {
		return entry{}, err
	}
	return h, nil
}

// beginBatch keeps the shards from being closed until endBatch.
func (e *engine) beginBatch() { e.batches.RLock() }
func (e *engine) endBatch()   { e.batches.RUnlock() }

// runsOn reports whether this is the executor.
func (e *engine) runsOn(x ownExecutor) bool { return e.driver.handoff.executor == x }

// Clock returns the engine's clock.
func (e *engine) Clock() *clock { return &e.clock }

// Wall returns the function that reads the wall clock.
func (e *engine) Wall() func() time.Time { return e.wall }

// SetWall sets the function that reads the wall clock. It is for tests.
func (e *engine) SetWall(now func() time.Time) { e.wall = now }

// Attached returns what New was given for the surface.
func (e *engine) Attached() any { return e.attached }

// Driver, Shards and Runner are for tests.
func (e *engine) Driver() *driver { return &e.driver }
func (e *engine) Shards() []shard { return e.shards }
func (e *engine) Runner() *runner { return e.runner }

// Pin has all that is added go to one shard from now on. It is for tests.
func (e *engine) Pin(s *shard) { e.tokens = sync.Pool{New: func() any { return s }} }

// HasBatch reports whether a batch keeps the shards from being closed. It is for tests, as
// is Ended, which returns the cause of the end.
func (e *engine) HasBatch() bool {
	if e.batches.TryLock() {
		e.batches.Unlock()
		return false
	}
	return true
}

func (e *engine) Ended() error { return context.Cause(e.ctx) }

// isStopped reports whether stop was called.
func (e *engine) isStopped() bool { return e.ctx.Err() != nil }

// countPanic counts a task whose panic was recovered.
func (e *engine) countPanic() { e.runner.panicked.Add(1) }

// len returns how many entries are pending. O(shards).
func (e *engine) len() int {
	n := 0
	for i := range e.shards {
		n += e.shards[i].len()
	}
	return n
}

// An heir gets what stop takes off the engine. First it is told how many entries there may
// be. It is called under the lock of a shard.
type heir interface {
	expect(n int64)
	take(deadline time.Time, f func())
}

// stop lets nothing fire any more, and hands back what is pending.
func (e *engine) stop(h heir) {
	e.cancel(errStopped)
	oneShots, contexts := e.stopShards()
	for _, of := range contexts {
		for place := of.Front(); place != nil; place = place.Next() {
			place.Value.(context.CancelCauseFunc)(errStopped)
		}
	}
	// Release the buckets too, for those who keep a handle.
	for b, _, ok := e.driver.queue.Peek(); ok; b, _, ok = e.driver.queue.Peek() {
		e.driver.queue.DropHead(b)
	}
	e.driver.queue.Close()
	e.driver.pulse.next(math.MaxInt64)
	h.expect(oneShots)
	for i := range e.shards {
		for chunk, more := 0, true; more; {
			chunk, more = e.shards[i].stopSlice(chunk, sliceLen, h)
		}
	}
	if room := e.driver.room; room != nil {
		room.leave(&e.driver)
	}
}

// stopShards lets nothing fire any more. It returns how many one-shots are pending, and
// the contexts of the Futures that run. These are for the caller to end, without a lock:
// contexts call what others have registered.
func (e *engine) stopShards() (oneShots int64, contexts []*list.List) {
	e.batches.Lock()
	defer e.batches.Unlock()
	for i := range e.shards {
		n, c := e.shards[i].stop()
		oneShots += n
		if c != nil {
			contexts = append(contexts, c)
		}
	}
	return oneShots, contexts
}

// drain makes the engine refuse what comes later. It waits until nothing is pending that
// is to run once, and nothing runs, and returns ctx.Err() if ctx ends first.
//
// A shard that is closed refuses a reset to a later time. The alternatives are worse. If
// the reset were done, one connection that is never idle would keep drain waiting for
// ever. If it were ignored and returned true, the function would run before the time
// that its caller was promised. A caller that gets false knows that the function comes
// sooner, and can stop it: callers do that anyway with a connection that closes.
func (e *engine) drain(ctx context.Context) error {
	e.closeShards(ctx)
	if !e.runner.ended.until(ctx.Done(), e.isQuiet) {
		return ctx.Err()
	}
	return nil
}

// closeShards makes the shards refuse what comes later, all at once. Then it takes off
// them what nobody has to wait for. That may take long, with many channel timers and
// contexts. If ctx ends in the middle of many, another goroutine does the rest.
func (e *engine) closeShards(ctx context.Context) {
	e.markClosed()
	for i := range e.shards {
		chunk, more := 0, true
		for more {
			chunk, more = e.shards[i].closeSlice(chunk)
			if more && ctx.Err() != nil {
				go func() {
					for ; i < len(e.shards); i, chunk, more = i+1, 0, true {
						for more {
							chunk, more = e.shards[i].closeSlice(chunk)
						}
					}
				}()
				return
			}
		}
	}
}

func (e *engine) markClosed() {
	e.batches.Lock()
	defer e.batches.Unlock()
	for i := range e.shards {
		e.shards[i].close()
	}
}

// isQuiet reports whether no task is pending or running, on a wheel that accepts no more.
// It looks at the pending tasks first and at the running ones next, because a task goes
// that way.
func (e *engine) isQuiet() bool {
	for i := range e.shards {
		if e.shards[i].hasTasks() {
			return false
		}
	}
	return e.runner.running.Load() == 0
}
