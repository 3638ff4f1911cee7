package engine

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/delayqueue"
	"github.com/tickwheel/tickwheel/timingwheel/internal/run"
)

// Under the default executor, the goroutine that drove runs tasks. Each of them may end it
// or block it: another drives.
func TestTasksOnTheDriversGoroutine(t *testing.T) {
	release := make(chan bool)
	defer close(release)
	for name, end := range map[string]func(){"exit": runtime.Goexit, "block": func() { <-release }, "return": noop} {
		t.Run(name, func(t *testing.T) {
			w := newTestWheel(withShards(2))
			onDriver := 0
			for range 100 {
				ran := make(chan bool)
				w.Schedule(1, func() {
					ran <- strings.Contains(string(debug.Stack()), "(*driver).live(")
					if name != "block" || rand.IntN(10) == 0 {
						end()
					}
				})
				if <-ran {
					onDriver++
				}
			}
			require.Positive(t, onDriver)
			requireOneDriver(t, w)
			require.Empty(t, w.Stop())
		})
	}
}

// requireOneDriver makes the driver wait for the lock of a shard. A second driver would reach the
// other shard meanwhile.
func requireOneDriver(t *testing.T, w *testWheel) {
	t.Helper()
	add := func(s *shard) {
		_, err := s.accept(Delay{Now: w.clock.Now(), D: 1}, noop, OneShot)
		require.NoError(t, err)
	}
	first, second := &w.shards[0], &w.shards[1]
	waitUntil(t, func() bool { return w.Len() == 0 })
	first.mu.Lock()
	add(first)
	waitUntil(t, first.fairness.wanted.Load)
	second.lock()
	add(second)
	second.unlock()
	time.Sleep(10 * time.Millisecond)
	require.Equal(t, 1, second.len())
	first.mu.Unlock()
	waitUntil(t, func() bool { return w.Len() == 0 })
}

// Between poll's look at the head and its removal somebody may offer an earlier bucket. A
// bucket that poll returned must not be in the queue any more, or it would be flushed twice.
func TestPollReturnsOnlyWhatItHasRemoved(t *testing.T) {
	needsProcessors(t)
	now := newClock(time.Millisecond, time.Now(), false)
	d := &driver{hub: hub{clock: &now, queue: delayqueue.New[*slot]()}}
	first, earlier := &slot{cascade: &cascade{}}, &slot{cascade: &cascade{}}
	past := time.Now().Add(-time.Hour)
	var round, offered atomic.Int64
	var end atomic.Bool
	defer end.Store(true)
	go func() {
		for n := int64(0); !end.Load(); {
			if round.Load() <= n {
				runtime.Gosched()
				continue
			}
			d.queue.Offer(earlier, past.Add(-time.Minute))
			n++
			offered.Store(n)
		}
	}()
	for n, start := int64(0), time.Now(); time.Since(start) < 500*time.Millisecond; n++ {
		d.queue.Offer(first, past)
		round.Store(n + 1)
		got := 0
		for offered.Load() <= n {
			if _, ok := d.poll(); ok {
				got++
			}
		}
		if got+d.queue.Len() != 2 {
			require.Fail(t, "poll", "it has returned %d of 2 buckets, and %d are left", got, d.queue.Len())
		}
		for d.queue.Len() > 0 {
			d.queue.Poll()
		}
	}
}

// A program that keeps a Timer of a stopped wheel does not keep its buckets, and with them all
// levels.
func TestStopEmptiesTheQueue(t *testing.T) {
	w := newTestWheel(withManualDrive(), withShards(2))
	for d := time.Duration(0); d < 100*time.Hour; d = 2*d + time.Millisecond {
		w.AfterFunc(d, noop)
	}
	timer := w.AfterFunc(time.Hour, noop)
	require.Greater(t, w.driver.queue.Len(), 10)
	w.Stop()
	require.Zero(t, w.driver.queue.Len())
	require.False(t, timer.Stop())
}

// The executor gets at most a slice at a time, and a bucket that comes due during a cascade
// does not wait for the end of it.
func TestBucketsBetweenTheSlicesOfACascade(t *testing.T) {
	var calls []int
	w := newTestWheel(withManualClock(moonLanding), withShards(2), withExecuteFunc(func(tasks []func()) {
		calls = append(calls, len(tasks))
		run.Each(tasks, func(task func()) { task() })
	}))
	defer w.Stop()
	order := make([]int, 0, 12*SliceLen)
	for i, n := range []int{10 * SliceLen, 2 * SliceLen} {
		for range n {
			addFunction(&w.shards[i], time.Second, func() { order = append(order, i) })
		}
	}
	require.Equal(t, 12*SliceLen, w.Advance(time.Second))
	require.Equal(t, slices.Repeat([]int{SliceLen}, 12), calls)
	short := []int{}
	for n, i := range order {
		if i == 1 {
			short = append(short, n)
		}
	}
	require.Less(t, short[len(short)-1], 4*SliceLen)
}

// The driver finds that functions need a larger stack, whether they run on its goroutine after it
// or inline.
func TestDriverMakesRoomForFunctions(t *testing.T) {
	for name, opts := range map[string][]option{"after": nil, "inline": {withExecutor(run.Inline{})}} {
		t.Run(name, func(t *testing.T) {
			w := newTestWheel(opts...)
			defer w.Stop()
			waitUntil(t, func() bool {
				ran := make(chan bool, 1)
				w.Schedule(time.Millisecond, func() {
					needStack()
					ran <- true
				})
				<-ran
				return w.driver.stack.Grows()
			})
		})
	}
}

// needStack needs more than the runtime begins with.
//
//go:noinline
func needStack() {
	var frame [64 << 10]byte
	for i := range frame {
		frame[i]++
	}
}
