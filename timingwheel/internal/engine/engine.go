// Package engine is a timing wheel without its surface, which is package timingwheel: what
// is pending, and what makes it fire.
//
// Read wheel.go first (one level), then shard.go (a hierarchy and its lock), flush.go (its
// buckets expire), driver.go (the loop), fairness.go (how callers and the driver share the
// lock) and gate.go (how the driver calls the executor, and what waits for it). The surface
// reaches a shard through a [Handle].
package engine

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/bucket"
	"github.com/tickwheel/tickwheel/delayqueue"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Engine is a TimingWheel without its surface: shards, which hold what is pending, and a
// driver, which makes it fire.
type Engine struct {
	clock clock
	shardPicker
	cancel  context.CancelCauseFunc // of ctx
	driver  driver                  // here, at the start of a cache line, where an add finds its lateHint in the first
	ctx     context.Context         // ends when the engine stops
	runner  *run.Runner             // apart, since an executor's queue may refer to it when nobody refers to the engine
	driving chan struct{}           // holds a token while a Drive is under way; nil without manual drive
	settle  settle                  // of the one who advances a manual clock

	// batches is held for reading by a batch that is added in several slices, and for
	// writing while the shards are closed. So a batch is accepted as a whole. Lock order:
	// batches, shard.
	batches sync.RWMutex

	// attached is the surface's, which can have no fields of its own.
	attached any
}

// The errors of what is refused.
var (
	ErrStopped        = errors.New("timingwheel: stopped")
	ErrTooManyPending = errors.New("timingwheel: too many pending")
)

// Config says how an engine is made. They must have been checked.
type Config struct {
	Tick      time.Duration
	Slots     int // of a wheel, rounded up to a power of two
	Shards    int // rounded up to a power of two; 0: see shardPicker
	Executor  run.Executor
	Admission run.Admission // of the executor; nil: it has room for everything
	MayBlock  bool          // the executor may run a user's function on the driver
	Manual    bool          // Drive or Advance drives
	Virtual   bool          // Advance does, and moves the clock
	Start     time.Time     // from which time is counted; zero: now, unless it is virtual
	Precise   bool

	// CountSuspends is (*Engine).CountSuspends, or nil. It is a field so that it is linked into
	// programs with that option only: it takes 60 KB.
	CountSuspends func(*Engine, *slog.Logger)

	MaxPending   int
	Profile      profiler // nil: none
	PanicHandler func(recovered any, stack []byte)
	Tracer       *run.Tracer
	Log          *slog.Logger
}

// New makes an engine that is running.
func New(c *Config, attached any) *Engine {
	start := c.Start
	if start.IsZero() && !c.Virtual {
		start = time.Now()
	}
	e := &Engine{clock: newClock(c.Tick, start, c.Virtual), attached: attached}
	e.shardPicker.init(c.Shards)
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.runner = &run.Runner{PanicHandler: c.PanicHandler, Tracer: c.Tracer, Log: c.Log}
	d := &e.driver // rather than a driver that is copied
	d.shards = e.shards
	d.hub.init(&e.clock, c.newQueue(start), e.runner, newLimit(c.MaxPending, len(e.shards)), log2(c.Slots), c.Manual)
	if d.profile = c.Profile; d.profile != nil {
		d.profile.init(len(e.shards))
	}
	if c.CountSuspends != nil {
		c.CountSuspends(e, c.Log)
	}
	d.connect(c.Executor, c.Admission, c.MayBlock)
	for i := range e.shards {
		e.shards[i].init(&d.hub, i)
	}
	if c.Manual {
		e.settle.patience = time.Second
		e.driving = make(chan struct{}, 1)
	} else {
		d.start()
	}
	return e
}

// log2 returns the base-2 logarithm of n, rounded up.
func log2(n int) uint { return uint(bits.Len(uint(n - 1))) }

func (c *Config) newQueue(start time.Time) *delayqueue.DelayQueue[*slot] {
	if !c.Precise || c.Virtual {
		return delayqueue.NewSince[*slot](start)
	}
	queue := delayqueue.NewPrecise[*slot]()
	if c.Log != nil && !queue.Precise() {
		c.Log.Warn("timingwheel: precise wake-ups are not available")
	}
	return queue
}

// After is Handle.After.
func (e *Engine) After(d time.Duration) Delay { return e.driver.after(d) }

// Schedule adds a one-shot. It unlocks without a defer, which costs 2 ns. Nothing under
// the lock can panic: accept returns an error when the arena is full.
func (e *Engine) Schedule(after Delay, f func(), kind bucket.Tag) (Handle, error) {
	s := e.lock()
	r, err := s.accept(after, f, kind)
	s.mu.Unlock()
	if err != nil {
		return Handle{}, err
	}
	return Handle{s, r}, nil
}

// BeginBatch keeps the shards from being closed until EndBatch.
func (e *Engine) BeginBatch() { e.batches.RLock() }
func (e *Engine) EndBatch()   { e.batches.RUnlock() }

// RunsOn reports whether this is the executor.
func (e *Engine) RunsOn(x run.Executor) bool { return e.driver.handoff.executor == x }

// Clock returns the engine's clock.
func (e *Engine) Clock() *clock { return &e.clock }

// Attached returns what New was given for the surface.
func (e *Engine) Attached() any { return e.attached }

// IsClosed reports whether the engine accepts no more: Stop or Drain was called.
func (e *Engine) IsClosed() bool {
	s := &e.shards[0]
	s.lock()
	defer s.unlock()
	return s.closed
}

// Refuses reports whether a function that is added may be refused: the engine has a limit, or accepts
// no more.
func (e *Engine) Refuses() bool { return e.driver.limit != nil || e.IsClosed() }

// CountPanic counts a task whose panic was recovered.
func (e *Engine) CountPanic() { e.runner.Panicked.Add(1) }

// Len returns how many entries are pending. O(shards).
func (e *Engine) Len() int {
	n := 0
	for i := range e.shards {
		n += e.shards[i].len()
	}
	return n
}

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
	admission  run.Admission // of the executor; nil: it has room for everything
	numWaiting atomic.Int64  // entries that wait at the gate, of all shards
	profile    profiler      // nil: none
}

// host is what shards, gates and the handoff need of the driver.
type host interface {
	run.Waiter
	startWorkers()                           // for what was handed on, before something that takes long
	shard(id int) *shard                     // for a look at another one
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
