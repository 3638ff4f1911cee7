package timingwheel

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
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

// requireIdle checks that a pool that is closed has nothing left, and that nobody waits for it.
func requireIdle(t testing.TB, p *testPool) {
	t.Helper()
	st := p.bounded.Stats()
	require.Equal(t, []int64{0, 0, 0}, []int64{st.Running, st.Queued, st.Waiting})
}
