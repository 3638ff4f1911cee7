// Package engine is a timing wheel without its surface, which is package timingwheel: what
// is pending, and what makes it fire.
//
// Read wheel.go first (one level), then shard.go (a hierarchy and its lock), flush.go (its
// buckets expire), driver.go (the loop), fairness.go (how callers and the driver share the
// lock) and handoff.go (how the driver calls the executor). The surface reaches a shard
// through a [Handle].
package engine

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
	Tick     time.Duration
	Slots    int // of a wheel, rounded up to a power of two
	Shards   int // rounded up to a power of two; 0: see shardPicker
	Executor run.Executor
	Room     run.Admission // of the executor; nil: it has room for everything
	MayBlock bool          // the executor may run a user's function on the driver
	Manual   bool          // Drive or Advance drives
	Virtual  bool          // Advance does, and moves the clock
	Start    time.Time     // from which time is counted; zero: now, unless it is virtual
	Precise  bool

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
	d.connect(c.Executor, c.Room, c.MayBlock)
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

// IsStopped reports whether stop was called.
func (e *Engine) IsStopped() bool { return e.ctx.Err() != nil }

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

// An heir gets what stop takes off the engine. First it is told how many entries there may
// be. It is called under the lock of a shard.
type heir interface {
	Expect(n int64)
	Take(deadline time.Time, f func())
}

// Stop lets nothing fire any more, and hands back what is pending.
func (e *Engine) Stop(h heir) {
	e.mustEndHere()
	e.cancel(ErrStopped)
	oneShots, contexts := e.stopShards()
	for _, of := range contexts {
		for place := of.Front(); place != nil; place = place.Next() {
			place.Value.(context.CancelCauseFunc)(ErrStopped)
		}
	}
	// Release the buckets too, for those who keep a handle.
	for b, _, ok := e.driver.queue.Peek(); ok; b, _, ok = e.driver.queue.Peek() {
		e.driver.queue.DropHead(b)
	}
	e.driver.queue.Close()
	if boot := e.clock.boot; boot != nil {
		boot.stop()
	}
	e.driver.lateHint.next(math.MaxInt64)
	h.Expect(oneShots)
	for i := range e.shards {
		for chunk, more := 0, true; more; {
			chunk, more = e.shards[i].stopSlice(chunk, SliceLen, h)
		}
	}
	if room := e.driver.room; room != nil {
		room.Leave(&e.driver)
	}
}

// stopShards lets nothing fire any more. It returns how many one-shots are pending, and
// the contexts of the Futures that run. These are for the caller to end, without a lock:
// contexts call what others have registered.
func (e *Engine) stopShards() (oneShots int64, contexts []*list.List) {
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

// Drain makes the engine refuse what comes later. It waits until nothing is pending that
// is to run once, and nothing runs, and returns ctx.Err() if ctx ends first.
//
// A shard that is closed refuses a reset to a later time. The alternatives are worse. If
// the reset were done, one connection that is never idle would keep drain waiting for
// ever. If it were ignored and returned true, the function would run before the time
// that its caller was promised. A caller that gets false knows that the function comes
// sooner, and can stop it: callers do that anyway with a connection that closes.
func (e *Engine) Drain(ctx context.Context) error {
	e.mustEndHere()
	e.closeShards(ctx)
	if !e.runner.Ended.Until(ctx.Done(), e.isQuiet) {
		return ctx.Err()
	}
	return nil
}

// closeShards makes the shards refuse what comes later, all at once. Then it takes off
// them what nobody has to wait for. That may take long, with many channel timers and
// contexts. If ctx ends in the middle of many, another goroutine does the rest.
func (e *Engine) closeShards(ctx context.Context) {
	e.markClosed()
	i, chunk, within := 0, 0, false
	slice := func() (more bool) {
		if chunk, within = e.shards[i].closeSlice(chunk); !within {
			i, chunk = i+1, 0
		}
		return i < len(e.shards)
	}
	for slice() {
		if within && ctx.Err() != nil {
			go func() {
				for slice() {
				}
			}()
			return
		}
	}
}

func (e *Engine) markClosed() {
	e.batches.Lock()
	defer e.batches.Unlock()
	for i := range e.shards {
		e.shards[i].close()
	}
}

// isQuiet reports whether no task is pending or running, on a wheel that accepts no more.
// It looks at the pending tasks first and at the running ones next, because a task goes
// that way.
func (e *Engine) isQuiet() bool {
	for i := range e.shards {
		if e.shards[i].hasTasks() {
			return false
		}
	}
	return e.runner.Running.Load() == 0
}
