package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// shape is how a wheel is made, and how far off its deadlines are.
type shape struct {
	tick     time.Duration
	size     int
	shards   int
	executor string // one of executors
	limit    int    // for WithMaxPending; 0 for none
	handler  bool   // there is a panic handler, so tasks may panic
	precise  bool   // WithPreciseWakeups
	farthest time.Duration
}

const (
	poolCallerRuns = "pool, caller runs"
	poolWait       = "pool, wait"
	poolDiscard    = "pool, discard"
)

// executors are all kinds. The empty one is the default of the package.
var executors = []string{"", "inline", "func", "go", poolCallerRuns, poolWait, poolDiscard}

func pick[T any](from ...T) T { return from[rand.IntN(len(from))] }

func randomShape() shape {
	s := shape{
		tick:     pick(time.Microsecond, 50*time.Microsecond, time.Millisecond, time.Millisecond),
		size:     pick(2, 4, 512, 512),
		shards:   pick(0, 0, 1, 4),
		executor: pick(executors...),
		handler:  rand.IntN(2) == 0,
		precise:  rand.IntN(4) == 0,
		farthest: pick(40*time.Millisecond, 2*time.Second, time.Hour),
	}
	if rand.IntN(4) == 0 {
		s.limit = 1 + rand.IntN(5000)
	}
	return s
}

func (s shape) String() string {
	return fmt.Sprintf("tick=%v size=%d shards=%d executor=%s limit=%d precise=%t farthest=%v",
		s.tick, s.size, s.shards, s.executor, s.limit, s.precise, s.farthest)
}

func (s shape) hasPool() bool { return strings.HasPrefix(s.executor, "pool") }

// mayBlock reports whether tasks may sleep. A task that runs on the driver must not.
func (s shape) mayBlock() bool {
	return slices.Contains([]string{"", "go", poolWait, poolDiscard}, s.executor)
}

// options returns the options for New, all but the panic handler. P is used only if the
// executor is a pool.
func (s shape) options(p *keptPool) []timingwheel.Option {
	opts := []timingwheel.Option{
		timingwheel.WithTick(s.tick),
		timingwheel.WithWheelSize(s.size),
		timingwheel.WithShards(s.shards),
		timingwheel.WithMaxPending(s.limit),
	}
	if s.precise {
		opts = append(opts, timingwheel.WithPreciseWakeups())
	}
	var executor timingwheel.Executor
	switch s.executor {
	case "":
		executor = timingwheel.Goroutines()
	case "inline":
		executor = timingwheel.Inline()
	case "func":
		executor = timingwheel.ExecutorFunc(func(task func()) { task() })
	case "go":
		executor = timingwheel.ExecutorFunc(func(task func()) { go task() })
	default:
		executor = p.Pool
	}
	return append(opts, timingwheel.WithExecutor(executor))
}
