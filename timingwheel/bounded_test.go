package timingwheel

import "context"

// testPool is a pool.Pool without Workers. Tests inside this package cannot import that
// package, which imports this one.
type testPool struct {
	door
	bounded *bounded
}

type whenFull struct {
	policy  fullPolicy
	discard func(task func())
}

var (
	fullWait       = whenFull{policy: waits}
	fullCallerRuns = whenFull{policy: callerRuns}
)

func fullDiscard(f func(task func())) whenFull { return whenFull{discards, f} }

func newPool(workers, queue int, full whenFull) *testPool {
	p := &testPool{bounded: newBounded(workers, queue, full.policy, full.discard)}
	p.door = p.bounded.doorOf(p)
	return p
}

func (p *testPool) Execute(tasks []func()) { p.bounded.Execute(tasks) }
func (p *testPool) Close()                 { p.bounded.close(context.Background()) }

// busy gives the pool so many tasks, which end with release.
func busy(pool *testPool, tasks int) (release func()) {
	c := make(chan struct{})
	for range tasks {
		pool.Execute([]func(){func() { <-c }})
	}
	return func() { close(c) }
}
