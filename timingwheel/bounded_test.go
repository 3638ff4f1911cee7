package timingwheel

import (
	"context"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// testPool is a pool.Pool without Workers. Tests inside this package cannot import that
// package, which imports this one.
type testPool struct {
	run.Door
	bounded *run.Bounded
}

type whenFull struct {
	policy  run.Policy
	discard func(task func())
}

var (
	fullWait       = whenFull{policy: run.Waits}
	fullCallerRuns = whenFull{policy: run.CallerRuns}
)

func fullDiscard(f func(task func())) whenFull { return whenFull{run.Discards, f} }

func newPool(workers, queue int, full whenFull) *testPool {
	p := &testPool{bounded: run.NewBounded(workers, queue, full.policy, full.discard)}
	p.Door = p.bounded.DoorOf(p)
	return p
}

func (p *testPool) Execute(tasks []func()) { p.bounded.Execute(tasks) }
func (p *testPool) Close()                 { p.bounded.Close(context.Background()) }

// busy gives the pool so many tasks, which end with release.
func busy(pool *testPool, tasks int) (release func()) {
	c := make(chan struct{})
	for range tasks {
		pool.Execute([]func(){func() { <-c }})
	}
	return func() { close(c) }
}
