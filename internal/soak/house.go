package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// shape is what a wheel is made of.
type shape struct {
	tick     time.Duration
	size     int
	shards   int
	executor string // "" for the default
	limit    int    // for WithMaxPending; 0: none
	handler  bool   // there is a panic handler, so tasks may panic
	precise  bool   // wakes up by a timerfd, where there is one
	farthest time.Duration
}

func (s shape) String() string {
	return fmt.Sprintf("tick=%v size=%d shards=%d executor=%s limit=%d precise=%t farthest=%v",
		s.tick, s.size, s.shards, s.executor, s.limit, s.precise, s.farthest)
}

// mayBlock reports whether tasks may sleep: where they run on the driver they must not.
func (s shape) mayBlock() bool {
	switch s.executor {
	case "", "go", poolBlock, poolDiscard:
		return true
	}
	return false
}

const (
	poolCallerRuns = "pool, caller runs"
	poolBlock      = "pool, block"
	poolDiscard    = "pool, discard"
)

var executors = []string{"", "inline", "func", "go", poolCallerRuns, poolBlock, poolDiscard}

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

// house makes a wheel, or two that share one Pool, and sees them to their end.
func (s *soak) house(end time.Time) {
	a, b := randomShape(), randomShape()
	b.executor = a.executor
	switch a.executor {
	case poolCallerRuns, poolBlock, poolDiscard:
		s.live(end, []shape{a, b}, newPool(a.executor))
	default:
		s.live(end, []shape{a}, nil)
	}
}

// pool is a Pool, and what it has discarded, which is kept to the end: only then is it
// told to the accounts, when nothing runs any more that could be confused with it.
type pool struct {
	*timingwheel.Pool
	mu   sync.Mutex
	kept []func()
}

func newPool(kind string) *pool {
	p := &pool{}
	full := timingwheel.WhenFull(timingwheel.FullWait)
	switch kind {
	case poolCallerRuns:
		full = timingwheel.FullCallerRuns
	case poolDiscard:
		full = timingwheel.FullDiscard(p.keep)
	}
	p.Pool = timingwheel.NewPool(1+rand.IntN(8), rand.IntN(64), full)
	return p
}

func (p *pool) keep(task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, task)
}

// live makes wheels of these shapes on p, unless that is nil, and ends them.
func (s *soak) live(end time.Time, shapes []shape, p *pool) {
	var wg sync.WaitGroup
	var lives []*life
	for _, shape := range shapes {
		lives = append(lives, s.newLife(shape, p))
	}
	for _, l := range lives {
		wg.Go(func() { l.live(end) })
	}
	closeEarly := p != nil && rand.IntN(4) == 0 // what its wheels fire then finds it full
	if closeEarly {
		time.Sleep(time.Until(end) * 9 / 10)
		s.close(p)
	}
	wg.Wait()
	if p != nil {
		if !closeEarly {
			s.close(p)
		}
		for _, l := range lives {
			l.mode.Store(discarding)
		}
		for _, f := range p.kept {
			f()
		}
	}
	for _, l := range lives {
		l.settle()
	}
}

func (s *soak) close(p *pool) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		s.violations.add("Pool.Close does not return\n%s", stacks())
	}
}
