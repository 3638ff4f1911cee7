package run

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Callers push tiny tasks, one or some at a time, to a Pool that is full or empty most of
// the time. A wake-up that is lost leaves a task where it is, and with FullWait stops
// everything.
func TestBoundedLosesNoWakeUp(t *testing.T) {
	const callers = 4
	rounds := unlessShort(5000, 2000)
	atProcessors(t, func(t *testing.T) {
		for _, size := range []struct{ workers, queue int }{{1, 0}, {1, 1}, {2, 0}, {2, 1}, {8, 0}} {
			pool := NewBounded(size.workers, size.queue, Waits, nil)
			var ran, pushed atomic.Int64
			count := func() { ran.Add(1) }
			for caller := range callers {
				go func() {
					tasks := make([]func(), 3)
					for n := range rounds {
						batch := tasks[:1+(n+caller)%2*2]
						for i := range batch {
							batch[i] = count
						}
						pool.Execute(batch)
						pushed.Add(int64(len(batch)))
						if n%8 == caller {
							runtime.Gosched() // let it run empty now and then
						}
					}
				}()
			}
			waitUntil(t, func() bool {
				require.LessOrEqual(t, pool.semaphore.active.Load(), int64(size.workers)+callers+1, "those too many may be counted that are refused")
				return pushed.Load() == int64(callers*rounds*2) && ran.Load() == pushed.Load()
			})
			pool.Close(t.Context())
			require.Zero(t, pool.semaphore.active.Load())
		}
	})
}

// Close at the same time as many Executes: each task runs or is discarded, none after
// Close has returned but on its caller, and no goroutine of the Pool is left, or comes.
func TestBoundedCloseRacesWithExecute(t *testing.T) {
	rounds := unlessShort(1500, 300)
	const callers, tasks = 3, 20
	for round := range rounds {
		var inPool, onCaller, closedBefore atomic.Int64
		var isClosed atomic.Bool
		pool := NewBounded(1+round%3, round%4, Discards, func(func()) { onCaller.Add(1) })
		if round%2 == 0 {
			pool = NewBounded(1+round%3, round%4, Waits, nil)
		}
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range tasks {
					me := goroutineID()
					pool.Execute([]func(){func() {
						if goroutineID() == me {
							onCaller.Add(1)
							return
						}
						if inPool.Add(1); isClosed.Load() {
							closedBefore.Add(1)
						}
					}})
				}
			})
		}
		all.Go(func() {
			for range round % 50 {
				runtime.Gosched()
			}
			pool.Close(t.Context())
			isClosed.Store(true)
		})
		all.Wait()
		require.Zero(t, closedBefore.Load(), "a task of the Pool after Close")
		require.EqualValues(t, callers*tasks, inPool.Load()+onCaller.Load())
		require.Zero(t, pool.semaphore.active.Load())
		require.EqualValues(t, int64(closedBit), pool.semaphore.tasks.Load())
	}
}

// goroutineID names the goroutine that calls it, as the traceback does.
func goroutineID() string {
	buf := make([]byte, 64)
	id, _, _ := strings.Cut(string(buf[:runtime.Stack(buf, false)]), "[")
	return id
}

// A caller pushes a task and is held up until another goroutine has run it and the Pool is closed.
// It then starts no goroutine.
func TestBoundedStartsNothingAfterClose(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	pool := closedPool()
	pool.queue.ensureSuccessor()
	require.Zero(t, pool.semaphore.active.Load())
	require.False(t, pool.queue.successor.Load())
}

// Tasks wait in the Pool until goroutines have them, though there would be workers.
func TestBoundedStatsBeforeAWorkerComes(t *testing.T) {
	pool := NewBounded(3, 2, Waits, nil)
	require.Equal(t, 2, pool.semaphore.take(2))
	require.Equal(t, stats{Workers: 3, Queue: 2, Queued: 2}, pool.Stats())
}

// The last wheel may leave the line just after somebody has taken room for it. That one
// learns that the room was not needed.
func TestBoundedLetsNobodyIn(t *testing.T) {
	pool := NewBounded(1, 0, Waits, nil)
	require.True(t, pool.TryAcquire())
	require.False(t, pool.letIn())
}

// closedPool returns a pool that is full for ever.
func closedPool() *Bounded {
	p := NewBounded(1, 0, Waits, nil)
	p.Close(context.Background())
	return p
}

// waitUntil waits until the condition holds, on a loaded machine too.
func waitUntil(t testing.TB, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain")
		}
	}
}

// atProcessors runs a test on 1, 2 and 8 processors.
func atProcessors(t *testing.T, test func(t *testing.T)) {
	for _, n := range []int{1, 2, 8} {
		t.Run("", func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
			test(t)
		})
	}
}

// unlessShort is how often a test does what it does: n times, or less often under -short.
func unlessShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}

// wheelOf is a wheel with tasks that wait.
type wheelOf struct{ waiting int64 }

func (w *wheelOf) Waits() int64 { return w.waiting }
func (w *wheelOf) LetIn() bool  { w.waiting--; return true }

// The line keeps no wheel that has left, and none leaves while something waits there.
func TestWaitingWheels(t *testing.T) {
	var q wheelLine
	first, second := &wheelOf{waiting: 1}, &wheelOf{waiting: 2}
	require.Nil(t, q.next())
	q.join(first)
	q.join(second)
	q.join(first)
	require.EqualValues(t, 2, q.length.Load())
	require.EqualValues(t, 3, q.tasks())
	require.Same(t, first, q.next())
	require.Same(t, second, q.next())
	require.Same(t, first, q.next(), "they take turns")
	q.leave(first)
	require.EqualValues(t, 2, q.length.Load(), "its task would wait for ever")
	first.waiting = 0
	q.leave(first)
	q.leave(first)
	require.Same(t, second, q.next())
	second.waiting = 0
	q.leave(second)
	require.True(t, q.none())
	require.Equal(t, make([]Waiter, cap(q.line)), q.line[:cap(q.line)])
}

// A waiter that has been notified of a change is not notified of later ones.
func TestNoticeForgetsWhoHasWaited(t *testing.T) {
	var n notice
	ready := false
	go func() { // more often than is needed
		for range 100 {
			n.Tell()
		}
	}()
	require.True(t, n.Until(nil, func() bool { was := ready; ready = true; n.Tell(); return was }))
	over := make(chan struct{})
	close(over)
	require.False(t, n.Until(over, func() bool { return false }))
	require.Empty(t, n.watchers)
	require.False(t, n.watched.Load())
}
