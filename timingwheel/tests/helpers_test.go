// Package timingwheel_test tests packages timingwheel and pool without their unexported names.
// Its module is not published, so that a user who imports the wheel does not download these tests.
package timingwheel_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/internal/engine"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

const second = time.Second

// The tests beside the package have some of these helpers, too. Tests cannot be imported.

var moonLanding = time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC)

// virtual returns a wheel in virtual time on which functions run in order.
func virtual(opts ...timingwheel.Option) *timingwheel.TimingWheel {
	all := []timingwheel.Option{timingwheel.WithManualClock(moonLanding), timingwheel.WithExecutor(timingwheel.Inline()), timingwheel.WithShards(1)}
	return timingwheel.New(append(all, opts...)...)
}

// verify checks the invariants of the whole wheel. The driver must be asleep, or the
// drive manual, and no call may be under way.
func verify(t testing.TB, w *timingwheel.TimingWheel) {
	t.Helper()
	require.NoError(t, engine.Verify((*engine.Engine)(w)))
}

// requireAccounts checks what is true at any moment, whatever is under way.
func requireAccounts(t testing.TB, st timingwheel.Stats) {
	t.Helper()
	if st.Scheduled != st.Expired+st.Stopped+st.HandedBack+st.Pending {
		require.Fail(t, "accounts", "%+v", st.Counts)
	}
}

// waitForGarbage is waitFor that runs the collector before each poll. One run may not be enough,
// because an interrupted goroutine keeps what is left on its stack.
func waitForGarbage(t testing.TB, done func() bool) {
	t.Helper()
	waitFor(t, func() bool {
		runtime.GC()
		return done()
	})
}

// atProcessors runs a test on 1, 2 and 8 processors.
func atProcessors(t *testing.T, test func(t *testing.T)) {
	for _, n := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("processors=%d", n), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			test(t)
		})
	}
}

// jobBubble runs f in a bubble with a wheel and a log of times since the start.
func jobBubble(t *testing.T, f func(t *testing.T, w *timingwheel.TimingWheel, log *timeLog), opts ...timingwheel.Option) {
	synctest.Test(t, func(t *testing.T) {
		w := timingwheel.New(opts...)
		defer w.Stop()
		f(t, w, &timeLog{start: time.Now()})
	})
}

// timeLog records the time of each note.
type timeLog struct {
	start time.Time
	mu    sync.Mutex
	times []time.Duration
}

func (l *timeLog) note() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = append(l.times, time.Since(l.start))
}

func (l *timeLog) take() []time.Duration {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	times := l.times
	l.times = nil
	return times
}

func mustJob(t *testing.T) func(j *timingwheel.Job, err error) *timingwheel.Job {
	return func(j *timingwheel.Job, err error) *timingwheel.Job {
		t.Helper()
		require.NoError(t, err)
		return j
	}
}

// everySecond is a calendar of one run a second, on the second.
type everySecond struct{}

func (everySecond) Next(prev time.Time) time.Time { return prev.Truncate(second).Add(second) }

// testPool is a pool.Pool without Workers.
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

func mustNotRun() { panic("a task ran that must not") }

// busy gives the pool so many tasks, which end with release.
func busy(pool *testPool, tasks int) (release func()) {
	c := make(chan struct{})
	for range tasks {
		pool.Execute([]func(){func() { <-c }})
	}
	return func() { close(c) }
}

// waitForCallers waits until so many goroutines wait for a mutex, as callers do whose shard is
// locked.
func waitForCallers(t testing.TB, n int) {
	t.Helper()
	waitFor(t, func() bool { return blocked("sync.Mutex.Lock") == n })
}

// blocked returns how many goroutines wait for a reason, as tracebacks call it.
func blocked(reason string) int {
	buf := make([]byte, 1<<16)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), " ["+reason)
}

// lockShard locks the shard of the next task, which is the shard of every task if there is
// only one.
func lockShard(t testing.TB, w *timingwheel.TimingWheel) (unlock func()) {
	t.Helper()
	timeout, err := w.Schedule(0, noop)
	require.NoError(t, err)
	require.True(t, timeout.Cancel())
	h := engine.Handle(timeout)
	h.LockShard()
	return h.UnlockShard
}
