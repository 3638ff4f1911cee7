package main

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel/pool"
)

// keptPool is a Pool that keeps the tasks it discards. They are called at the end, to learn
// which tasks they are. Before that, such a call could be mistaken for a run.
type keptPool struct {
	*pool.Pool
	mu   sync.Mutex
	kept []func() // guarded by mu
}

func newPool(kind string) *keptPool {
	p := &keptPool{}
	full := pool.Wait
	switch kind {
	case poolCallerRuns:
		full = pool.CallerRuns
	case poolDiscard:
		full = pool.Discard(p.keep)
	}
	p.Pool = pool.New(1+rand.IntN(8), rand.IntN(64), full)
	return p
}

func (p *keptPool) keep(task func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept = append(p.kept, task)
}

// callDiscarded calls the discarded tasks. The pool must be closed.
func (p *keptPool) callDiscarded() {
	p.mu.Lock()
	kept := p.kept
	p.mu.Unlock()
	for _, f := range kept {
		f()
	}
}

// close closes the pool. It is a violation if that does not end.
func (p *keptPool) close(v *violations) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Close()
	}()
	select {
	case <-closed:
	case <-time.After(patience):
		v.add("Pool.Close does not return\n%s", stacks())
	}
}
