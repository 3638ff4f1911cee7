package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// shape is how a wheel is made, and how far off its deadlines are.
type shape struct {
	tick         time.Duration
	size, shards int
	executor     string // of executors, or of pools
	limit        int    // for WithMaxPending; 0 for none
	handler      bool   // there is a panic handler, so functions may panic
	precise      bool   // WithPreciseWakeups
	farthest     time.Duration
}

var executors = map[string]timingwheel.Executor{
	"":       timingwheel.Goroutines(),
	"inline": timingwheel.Inline(),
	"func":   timingwheel.ExecutorFunc(func(f func()) { f() }),
	"go":     timingwheel.ExecutorFunc(func(f func()) { go f() }),
}

const (
	poolCallerRuns = "pool, caller runs"
	poolWait       = "pool, wait"
	poolDiscard    = "pool, discard"
)

func pick[T any](from ...T) T { return from[rand.IntN(len(from))] }

func randomShape() shape {
	return shape{
		tick:     pick(time.Microsecond, 50*time.Microsecond, time.Millisecond, time.Millisecond),
		size:     pick(2, 4, 512, 512),
		shards:   pick(0, 0, 1, 4),
		executor: pick("", "inline", "func", "go", poolCallerRuns, poolWait, poolDiscard),
		limit:    pick(0, 0, 0, 1+rand.IntN(5000)),
		handler:  pick(true, false),
		precise:  pick(true, false, false, false),
		farthest: pick(40*time.Millisecond, 2*time.Second, time.Hour),
	}
}

// mayBlock reports whether functions may sleep. A function that runs on the driver must not.
func (s shape) mayBlock() bool {
	return slices.Contains([]string{"", "go", poolWait, poolDiscard}, s.executor)
}

// String leaves out the shape's fields that are not needed to make it again.
func (s shape) String() string { type fields shape; return fmt.Sprintf("%+v", fields(s)) }

// options returns the options for New. P is the executor if it is not nil.
func (s shape) options(p *keptPool, handler func(any, []byte)) []timingwheel.Option {
	executor := executors[s.executor]
	if p != nil {
		executor = p.Pool
	}
	opts := []timingwheel.Option{
		timingwheel.WithTick(s.tick), timingwheel.WithWheelSize(s.size), timingwheel.WithShards(s.shards),
		timingwheel.WithMaxPending(s.limit), timingwheel.WithExecutor(executor),
	}
	if s.precise {
		opts = append(opts, timingwheel.WithPreciseWakeups())
	}
	if s.handler {
		opts = append(opts, timingwheel.WithPanicHandler(handler))
	}
	return opts
}

// keptPool is a Pool that keeps the functions it discards. They are called at the end, to learn
// which they are. Before that, such a call could be mistaken for a run.
type keptPool struct {
	*pool.Pool
	mu   sync.Mutex
	kept []func() // guarded by mu
}

// newPool returns nil for an executor that is none.
func newPool(executor string) *keptPool {
	p := &keptPool{}
	full, ok := map[string]pool.WhenFull{poolWait: pool.Wait, poolCallerRuns: pool.CallerRuns, poolDiscard: pool.Discard(p.keep)}[executor]
	if !ok {
		return nil
	}
	p.Pool = pool.New(1+rand.IntN(8), rand.IntN(64), full)
	return p
}

func (p *keptPool) keep(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, f)
}

// end closes the pool. It is a violation if that does not return.
func (p *keptPool) end(s *soak) {
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(patience):
		s.violate("Pool.Close does not return\n%s", stacks())
	}
}
