package timingwheel

import (
	"fmt"
	"log/slog"
	"math/bits"
	"runtime"
	"time"
)

const (
	minTick      = time.Microsecond
	minWheelSize = 2
	maxWheelSize = 1 << 16
	maxShards    = 1 << 16

	// maxChosenShards is where more shards stop paying by default: each one with
	// something due costs the driver a bucket of its own at every tick.
	maxChosenShards = 16
)

// Option sets up a wheel that [New] makes.
type Option func(*config)

type config struct {
	tick     time.Duration
	slots    int
	shards   int
	executor Executor
	manual   bool
	precise  bool

	maxPending   int
	panicHandler func(recovered any, stack []byte)
	tracer       *tracer
	log          *slog.Logger
}

// WithTick sets the width of a tick, to which deadlines round up: the most by
// which the wheel itself makes a task late. Ticks count from the making of the
// wheel. The default is 1ms, the least 1us; New panics on less.
func WithTick(d time.Duration) Option {
	return func(c *config) {
		if d < minTick {
			panic(fmt.Sprintf("timingwheel: WithTick(%v): less than %v", d, minTick))
		}
		c.tick = d
	}
}

// WithWheelSize sets the number of slots of each wheel, from 2 to 65536 and
// rounded up to a power of two; New panics on any other. The default is 512. With
// more slots an entry cascades less often, and a level takes more memory: 24
// bytes a slot.
func WithWheelSize(slots int) Option {
	return func(c *config) {
		if slots < minWheelSize || slots > maxWheelSize {
			panic(fmt.Sprintf("timingwheel: WithWheelSize(%d): not from %d to %d", slots, minWheelSize, maxWheelSize))
		}
		c.slots = slots
	}
}

// WithShards sets the number of shards, from 1 to 65536 and rounded up to a power
// of two; New panics on a negative or a larger number. Each shard is a hierarchy of
// wheels with a lock of its own. The default, 0, chooses a power of two near
// GOMAXPROCS, at most 16.
//
// With one shard and [Inline] tasks run in the order of their deadlines and, within
// a tick, of their scheduling. The exception is a bucket of more than 256 entries
// that is flushed late, or is coarse: what else comes due meanwhile goes between,
// ahead of what is still in it.
func WithShards(n int) Option {
	return func(c *config) {
		if n < 0 || n > maxShards {
			panic(fmt.Sprintf("timingwheel: WithShards(%d): not from 0 to %d", n, maxShards))
		}
		c.shards = n
	}
}

// WithExecutor sets what runs the tasks: [Goroutines], the default, [Inline], a [Pool], or
// one of your own, which may embed a [Pool]: it is then its Execute that is called, as with
// any other. New panics on nil, and on a nil [ExecutorFunc] or *Pool.
func WithExecutor(e Executor) Option {
	return func(c *config) {
		if isNil(e) {
			panic("timingwheel: WithExecutor(nil)")
		}
		c.executor = e
	}
}

// isNil reports whether e would panic only on the driver, with the first task.
func isNil(e Executor) bool {
	switch e := e.(type) {
	case nil:
		return true
	case ExecutorFunc:
		return e == nil
	case *Pool:
		return e == nil
	}
	return false
}

// WithManualDrive makes a wheel without a driver goroutine: nothing fires but in
// [TimingWheel.AdvanceClock]. With [Inline] tasks have run when that returns; with
// [Goroutines] they may be running still, or not have begun.
func WithManualDrive() Option {
	return func(c *config) { c.manual = true }
}

func newConfig(opts []Option) *config {
	c := &config{tick: time.Millisecond, slots: 512}
	for _, opt := range opts {
		if opt == nil {
			panic("timingwheel: New: nil Option")
		}
		opt(c)
	}
	if c.executor == nil {
		c.executor = Goroutines()
	}
	if c.shards == 0 {
		c.shards = min(runtime.GOMAXPROCS(0), maxChosenShards)
	}
	c.shards = 1 << log2(c.shards)
	return c
}

// log2 returns the logarithm of n, rounded up.
func log2(n int) uint { return uint(bits.Len(uint(n - 1))) }
