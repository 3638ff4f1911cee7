package engine

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// testWheel is an engine with the calls that a TimingWheel has, as far as these tests need them.
type testWheel struct{ *Engine }

type option func(c *Config)

func withShards(n int) option         { return func(c *Config) { c.Shards = n } }
func withTick(d time.Duration) option { return func(c *Config) { c.Tick = d } }
func withWheelSize(n int) option      { return func(c *Config) { c.Slots = n } }
func withMaxPending(n int) option     { return func(c *Config) { c.MaxPending = n } }
func withManualDrive() option         { return func(c *Config) { c.Manual = true } }
func withManualClock(at time.Time) option {
	return func(c *Config) { c.Manual, c.Virtual, c.Start = true, true, at }
}

func withLogger(l *slog.Logger) option { return func(c *Config) { c.Log = l } }

func withExecutor(x run.Executor) option {
	return func(c *Config) {
		c.Executor, c.Admission, c.MayBlock = x, nil, true
		switch x := x.(type) {
		case *run.Queue:
			c.MayBlock = false
		case *run.Bounded:
			if x.Full == run.Waits {
				c.Admission, c.MayBlock = x, false
			}
		}
	}
}

func newTestWheel(opts ...option) *testWheel {
	c := &Config{Tick: DefaultTick, Slots: 512, Shards: 4}
	withExecutor(run.NewQueue(nil))(c)
	for _, opt := range opts {
		opt(c)
	}
	return &testWheel{New(c, nil)}
}

// manual returns a wheel of one shard whose tasks run inside Drive.
func manual(opts ...option) *testWheel {
	return newTestWheel(append([]option{withManualDrive(), withShards(1), withExecutor(run.Inline{})}, opts...)...)
}

var moonLanding = time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC)

// virtual returns a wheel of one shard whose clock the test moves, and whose tasks run inside
// Advance.
func virtual(opts ...option) *testWheel {
	return newTestWheel(append([]option{withManualClock(moonLanding), withShards(1), withExecutor(run.Inline{})}, opts...)...)
}

func (w *testWheel) delay(d time.Duration) Delay { return Delay{w.clock.Now(), d} }

func (w *testWheel) Schedule(d time.Duration, f func()) (timeout, error) {
	h, err := w.Engine.Schedule(w.delay(d), f, OneShot)
	return timeout(h), err
}

// After returns a channel that is closed by a task of the wheel's own.
func (w *testWheel) After(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	var h Handle
	after := w.delay(d)
	h.Join(w.Engine)
	defer h.UnlockShard()
	h.Add(after, func() { close(c) }, Internal|NoExecutor)
	return c
}

func (w *testWheel) Stop() []pending {
	var c collector
	w.Engine.Stop(&c)
	return c.pending
}

func (w *testWheel) Shutdown(ctx context.Context) error {
	if err := w.Drain(ctx); err != nil {
		return err
	}
	w.Stop()
	return nil
}

func (w *testWheel) verify(t testing.TB) {
	t.Helper()
	require.NoError(t, Verify(w.Engine))
}

// requireSettled checks that the shards have the deadlines of all lazy tasks, as they must once
// they are closed and the pass has ended.
func requireSettled(t testing.TB, w *testWheel) {
	t.Helper()
	for i := range w.shards {
		s := &w.shards[i]
		s.mu.Lock()
		for i := range s.arena.All() {
			require.NotZero(t, s.arena.Tag(i)&OneShot, "a closed shard holds what does not run once")
			require.True(t, !isLazy(s.arena.Tag(i)) || lazyOf(s.arena.Task(i)).Word.Load() == 0, "a closed shard has not settled a lazy task")
		}
		s.mu.Unlock()
	}
}

// pending is what Stop hands back, and collector is who gets it.
type pending struct {
	Deadline time.Time
	Func     func()
}

type collector struct{ pending []pending }

func (c *collector) Expect(n int64) { c.pending = make([]pending, 0, n) }

func (c *collector) Take(deadline time.Time, f func()) {
	c.pending = append(c.pending, pending{deadline, f})
}

// timeout is what a user has of a function that Schedule has added.
type timeout Handle

func (t timeout) Cancel() bool {
	h := Handle(t)
	h.LockShard()
	defer h.UnlockShard()
	return h.Cancel()
}

func (t timeout) Reset(d time.Duration) bool {
	h := Handle(t)
	after := h.After(d)
	h.LockShard()
	defer h.UnlockShard()
	return h.Reset(after)
}

// timer is what a user has of a function that AfterFunc has added: it can be pushed back
// without the lock.
type timer struct {
	lazy  LazyTask
	entry Handle
}

func (w *testWheel) AfterFunc(d time.Duration, f func()) *timer {
	t := &timer{lazy: LazyTask{F: f}}
	after := w.delay(d)
	t.entry.Join(w.Engine)
	defer t.entry.UnlockShard()
	if t.entry.Accept(after, f, OneShot) != nil {
		t.lazy.F = nil
	}
	return t
}

func (t *timer) Stop() bool { return timeout(t.entry).Cancel() }

func (t *timer) Reset(d time.Duration) bool {
	after := t.entry.After(d)
	if t.lazy.PushBack(t.entry.Clock(), after) {
		return true
	}
	t.entry.LockShard()
	defer t.entry.UnlockShard()
	if t.entry.ResetLazy(after, &t.lazy) {
		return true
	}
	if t.lazy.F != nil {
		_ = t.entry.AcceptLazyAgain(after, &t.lazy)
	}
	return false
}

// addOwn adds a task of the wheel's own to a shard, d from now.
func addOwn(s *shard, d time.Duration, f func()) {
	s.lock()
	defer s.unlock()
	s.add(Delay{Now: s.clock.Now(), D: d}, f, Internal|NoExecutor)
}

// addFunction adds a user's function to a shard, d from now.
func addFunction(s *shard, d time.Duration, f func()) ref {
	s.lock()
	defer s.unlock()
	h, _ := s.accept(Delay{Now: s.clock.Now(), D: d}, f, OneShot)
	return h
}

func noop()       {}
func mustNotRun() { panic("a task ran that must not") }

// blocking are the executors that may run a user's function on the driver.
func blocking() map[string]run.Executor {
	return map[string]run.Executor{
		"inline":      run.Inline{},
		"caller runs": closedPool(run.CallerRuns, nil),
		"discard":     closedPool(run.Discards, func(task func()) { task() }),
		"func":        run.Submitter{Submit: func(task func()) { task() }},
	}
}

// closedPool returns a pool that is full for ever.
func closedPool(full run.Policy, discard func(task func())) *run.Bounded {
	p := run.NewBounded(1, 0, full, discard)
	p.Close(context.Background())
	return p
}

// executeFunc is an executor of a user's own that is given all tasks at once.
type executeFunc func(tasks []func())

func (f executeFunc) Execute(tasks []func()) { f(tasks) }

func withExecuteFunc(f func(tasks []func())) option {
	return withExecutor(run.Foreign{UserExecutor: executeFunc(f)})
}

// unlessShort is how often a test does what it does: n times, or less often under -short.
func unlessShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}

// needsProcessors skips a test that waits for one goroutine to come between the steps of another, where
// there is one thread and it is taken from no goroutine. A yield between the steps would hide the
// interleavings that the test is for.
func needsProcessors(t *testing.T) {
	if runtime.GOARCH == "wasm" {
		t.Skip("wasm has one thread, and interrupts no goroutine")
	}
}

// waitUntil waits until the condition holds, on a loaded machine too.
func waitUntil(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("waited in vain\n%s", buf[:runtime.Stack(buf, true)])
		}
	}
}

// atLeastOnce measures until a bound holds, but not for ever. Other programs may come to the
// machine between a baseline and what is compared with it.
func atLeastOnce(t *testing.T, holds func() bool) {
	t.Helper()
	for range 5 {
		if holds() {
			return
		}
	}
	t.Error("the bound has never held")
}

// newRandForTest has a new seed each time. The seed is logged if the test fails.
func newRandForTest(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("seed:", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
