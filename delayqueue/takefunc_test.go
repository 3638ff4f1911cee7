package delayqueue_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/delayqueue"
)

// inBubbles runs a test in a bubble for both kinds of queue.
func inBubbles(t *testing.T, test func(t *testing.T, q *delayqueue.DelayQueue[int])) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[int](precise)
			defer q.Close()
			test(t, q)
		})
	})
}

func TestTakeFunc(t *testing.T) {
	inBubbles(t, func(t *testing.T, q *delayqueue.DelayQueue[int]) {
		start := time.Now()
		type call struct {
			v  int
			at time.Duration
		}
		var calls []call
		f := func(v int) { calls = append(calls, call{v, time.Since(start)}) }

		q.Offer(1, start)
		v, ok := q.TakeFunc(f)
		require.True(t, ok, "it is due")
		require.Equal(t, 1, v)

		q.Offer(3, start.Add(3*time.Hour))
		_, ok = q.TakeFunc(f)
		require.False(t, ok)
		time.Sleep(time.Hour)
		q.Offer(2, start.Add(2*time.Hour)) // earlier than the head
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Equal(t, []call{{2, 2 * time.Hour}}, calls, "once, with the earliest, on time")

		v, ok = q.TakeFunc(f)
		require.True(t, ok)
		require.Equal(t, 3, v)
		_, ok = q.TakeFunc(f)
		require.False(t, ok)
		q.Offer(4, start) // due already
		synctest.Wait()
		require.Equal(t, call{4, 25 * time.Hour}, calls[1])
		require.Zero(t, q.Len())
		q.Offer(5, start)
		synctest.Wait()
		require.Len(t, calls, 2, "nobody waits any more")
		require.EqualValues(t, 2, q.Wakeups(), "one for each call")

		q.Offer(6, time.Now().Add(time.Hour))
		v, ok = q.TakeFunc(f)
		require.True(t, ok)
		require.Equal(t, 5, v)
		_, ok = q.TakeFunc(f) // an element waits already
		require.False(t, ok)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, call{6, 26 * time.Hour}, calls[2])
	})
}

// Those who wait get an element each, in the order in which they came, whether inside
// Take or not. A Take that gives up leaves its turn to the next.
func TestTakeFuncStandsInLine(t *testing.T) {
	inBubbles(t, func(t *testing.T, q *delayqueue.DelayQueue[int]) {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan [2]int, 10)
		for i := range 4 {
			if i%2 == 0 {
				go func() {
					if v, err := q.Take([]context.Context{ctx, nil, t.Context()}[i]); err == nil {
						got <- [2]int{i, v}
					}
				}()
			} else {
				q.TakeFunc(func(v int) { got <- [2]int{i, v} })
			}
			synctest.Wait()
		}
		for v := range 3 {
			q.Offer(v, time.Now().Add(time.Duration(v+1)*time.Second))
		}
		synctest.Wait()
		cancel()
		for i := range 3 {
			require.Equal(t, [2]int{i + 1, i}, <-got)
		}
	})
}

// An empty queue has no alarm set. So in the bubble nothing happens in the hour. One that is not
// empty rings once, for the head that is left.
func TestDropHeadEndsTheAlarm(t *testing.T) {
	inBubbles(t, func(t *testing.T, q *delayqueue.DelayQueue[int]) {
		var got atomic.Int64
		q.TakeFunc(func(v int) { got.Store(int64(v)) })
		q.Offer(1, time.Now().Add(time.Hour))
		require.True(t, q.DropHead(1))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Zero(t, q.Wakeups())

		at := time.Now().Add(time.Hour)
		q.Offer(2, at)
		q.Offer(3, at.Add(time.Hour))
		require.True(t, q.DropHead(2))
		time.Sleep(90 * time.Minute)
		synctest.Wait()
		require.Zero(t, got.Load(), "the alarm for the head that was dropped comes too early")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 3, got.Load())
		require.EqualValues(t, 1, q.Wakeups(), "the alarm was set to the time of the new head")
	})
}

// See TestTimeBeyondTheEndOfABubble.
func TestTakeFuncBeyondTheEndOfABubble(t *testing.T) {
	inBubbles(t, func(t *testing.T, q *delayqueue.DelayQueue[int]) {
		q.Offer(1, time.Now().Add(math.MaxInt64))
		result := make(chan int, 1)
		q.TakeFunc(func(v int) { result <- v })
		<-time.After(math.MaxInt64) // to the end of the clock
		for range 10_000 {
			runtime.Gosched()
		}
		require.LessOrEqual(t, q.Wakeups(), int64(1), "the alarm rings again and again")
		q.Offer(2, time.Now())
		require.Equal(t, 2, <-result, "an earlier offer reaches it")
	})
}

// Many producers, and consumers that wait in both ways: every element is taken once, and
// none early.
func TestTakeFuncStress(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		q := newQueue[stressed](precise)
		defer q.Close()
		const producers, each = 4, 2000
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		taken := make([]atomic.Int32, producers*each)
		var left, early atomic.Int64
		left.Store(producers * each)
		note := func(e stressed) {
			if time.Now().Before(e.at) {
				early.Add(1)
			}
			taken[e.id].Add(1)
			if left.Add(-1) == 0 {
				stop()
			}
		}
		var take func(stressed)
		take = func(e stressed) {
			for ok := true; ok; e, ok = q.TakeFunc(take) {
				note(e)
			}
		}
		for range 2 {
			q.TakeFunc(take)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				e, err := q.Take(ctx)
				if err != nil {
					return
				}
				note(e)
			}
		})
		for p := range producers {
			wg.Go(func() {
				for k := range each {
					at := time.Now().Add(time.Duration(rand.Int64N(int64(5*time.Millisecond))) - time.Millisecond)
					q.Offer(stressed{p*each + k, at}, at)
					if head, _, ok := q.Peek(); k%16 == 0 && ok && q.DropHead(head) {
						q.Offer(head, head.at)
					}
					if k%64 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		wg.Wait()
		for id := range taken {
			require.EqualValues(t, 1, taken[id].Load(), "element %d", id)
		}
		require.Zero(t, early.Load())
		require.Zero(t, q.Len())
	})
}

// The alarm has rung for the first of them, and rings once more.
func TestTwoConsumersAndTwoElementsOfOneTime(t *testing.T) {
	inBubbles(t, func(t *testing.T, q *delayqueue.DelayQueue[int]) {
		got := make(chan int, 2)
		at := time.Now().Add(time.Second)
		for v := range 2 {
			q.TakeFunc(func(v int) { got <- v })
			q.Offer(v, at)
		}
		require.Equal(t, 1, <-got+<-got)
		require.Equal(t, at, time.Now())
	})
}

// A consumer that finds an element due takes it, ahead of one that waits. The alarm rings
// meanwhile, and may be faster; but not each time.
func TestWhoFindsAnElementDueTakesIt(t *testing.T) {
	for range 1000 {
		q := delayqueue.New[int]()
		_, ok := q.TakeFunc(func(int) {})
		require.False(t, ok)
		q.Offer(1, time.Now())
		if _, ok := q.TakeFunc(func(int) {}); ok {
			return
		}
	}
	t.Error("it stands in line")
}
