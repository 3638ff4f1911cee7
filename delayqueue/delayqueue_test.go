package delayqueue_test

import (
	"context"
	"fmt"
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

func TestTakeWaitsForTheEarliest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.New[string]()
		start := time.Now()
		q.Offer("c", start.Add(time.Hour))
		q.Offer("a", start.Add(time.Second))
		q.Offer("b1", start.Add(time.Minute))
		q.Offer("b2", start.Add(time.Minute))
		require.Equal(t, 4, q.Len())
		for _, want := range []struct {
			v  string
			at time.Duration
		}{{"a", time.Second}, {"b1", time.Minute}, {"b2", time.Minute}, {"c", time.Hour}} {
			v, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, want.v, v)
			require.Equal(t, want.at, time.Since(start))
		}
		require.Zero(t, q.Len())
	})
}

// A queue that a bubble has made from a reading outside of it works outside, by the
// monotonic clock.
func TestNewSinceInABubble(t *testing.T) {
	start := time.Now()
	var q *delayqueue.DelayQueue[string]
	synctest.Test(t, func(*testing.T) { q = delayqueue.NewSince[string](start) })
	q.Offer("far", time.Now().Add(time.Hour))
	_, ok := q.Poll()
	require.False(t, ok)
	at := time.Now().Add(5 * time.Millisecond)
	q.Offer("a", at)
	_, due, _ := q.Peek()
	require.True(t, due.Equal(at))
	require.NotEqual(t, due.Round(0), due, "it has lost its monotonic reading")
	v, err := q.Take(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a", v)
	require.False(t, time.Now().Before(at))
}

func TestPollPeekDropHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.New[string]()
		_, ok := q.Poll()
		require.False(t, ok)
		_, _, ok = q.Peek()
		require.False(t, ok)
		require.False(t, q.DropHead(""))

		at := time.Now().Add(time.Second)
		q.Offer("a", at)
		q.Offer("b", at.Add(time.Second))
		_, ok = q.Poll()
		require.False(t, ok, "not due yet")
		v, peeked, ok := q.Peek()
		require.True(t, ok)
		require.Equal(t, "a", v)
		require.True(t, at.Equal(peeked))

		require.False(t, q.DropHead("b"), "not the head")
		require.True(t, q.DropHead("a"))
		time.Sleep(time.Second)
		_, ok = q.Poll()
		require.False(t, ok)
		time.Sleep(time.Second)
		v, ok = q.Poll()
		require.True(t, ok)
		require.Equal(t, "b", v)
	})
}

// A wait that turns out negative must be no wait, rather than one for ever.
func TestTimesInThePastAndFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.New[int]()
		time.Sleep(time.Hour)
		q.Offer(0, time.Now())
		v, ok := q.Poll() // so that the queue has seen a time to which the past may be too far
		require.True(t, ok)
		require.Zero(t, v)
		now := time.Now()
		q.Offer(3, now)
		q.Offer(1, time.Time{})
		q.Offer(2, now.Add(-time.Hour))
		q.Offer(4, now.Add(math.MaxInt64))
		q.Offer(5, now.Add(math.MaxInt64).Add(math.MaxInt64))
		for want := 1; want <= 3; want++ {
			v, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, v)
		}
		require.Equal(t, now, time.Now())
		_, ok = q.Poll()
		require.False(t, ok)
		ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
		defer cancel()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2, q.Len())
	})
}

// A time so far in the past that its distance saturates, such as the zero Time, wakes a consumer
// that waits.
func TestZeroTimeWakesAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.New[int]()
		time.AfterFunc(time.Second, func() { q.Offer(1, time.Time{}) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		v, err := q.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, v)
	})
}

func TestEarlierOfferSetsTheAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.New[string]()
		start := time.Now()
		taken := make(chan string, 3)
		for range 3 {
			go func() {
				v, err := q.Take(t.Context())
				if err == nil {
					taken <- v
				}
			}()
		}
		synctest.Wait() // all three wait on an empty queue
		q.Offer("late", start.Add(time.Hour))
		synctest.Wait()
		q.Offer("earlier", start.Add(time.Minute))
		synctest.Wait()
		q.Offer("earliest", start.Add(time.Second))
		require.Equal(t, "earliest", <-taken)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, "earlier", <-taken)
		require.Equal(t, time.Minute, time.Since(start))
		require.Equal(t, "late", <-taken)
		require.Equal(t, time.Hour, time.Since(start))
	})
}

// Consumers that leave, the first included, leave to the others what they waited for.
func TestNothingIsLostWhenAConsumerLeaves(t *testing.T) {
	for leaver := range 3 {
		synctest.Test(t, func(t *testing.T) {
			q := delayqueue.New[int]()
			taken := make(chan int, 3)
			cancels := make([]context.CancelFunc, 3)
			for i := range cancels {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				cancels[i] = cancel
				go func() {
					v, err := q.Take(ctx)
					if err != nil {
						v = -1
					}
					taken <- v
				}()
				synctest.Wait() // they wait in this order: 0 is the first
			}
			start := time.Now()
			q.Offer(1, start.Add(time.Second))
			q.Offer(2, start.Add(2*time.Second))
			synctest.Wait()
			cancels[leaver]()
			require.Equal(t, -1, <-taken)
			require.Equal(t, start, time.Now(), "a canceled context leaves at once")
			require.Equal(t, 1, <-taken)
			require.Equal(t, time.Second, time.Since(start))
			require.Equal(t, 2, <-taken)
			require.Equal(t, 2*time.Second, time.Since(start))
		})
	}
}

func TestEndedContextTakesNothing(t *testing.T) {
	q := delayqueue.New[int]()
	q.Offer(1, time.Now())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := q.Take(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, q.Len())
}

// When ctx ends at the moment at which the element is taken, the element is either
// returned or still there.
func TestContextEndsAtThatMoment(t *testing.T) {
	q := delayqueue.New[int]()
	for round := range 2000 {
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			_, err := q.Take(ctx)
			result <- err
		}()
		for q.Waiting() == 0 {
			runtime.Gosched()
		}
		q.Offer(round, time.Now())
		for range round % 3 {
			runtime.Gosched()
		}
		cancel()
		if <-result == nil {
			require.Zero(t, q.Len())
			continue
		}
		got, ok := q.Poll()
		require.True(t, ok, "it is lost")
		require.Equal(t, round, got)
	}
}

// The alarm is set anew for the same element, after the only consumer has given up.
func TestAlarmAfterTheOnlyConsumerHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.New[int]()
		start := time.Now()
		q.Offer(1, start.Add(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = q.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(start))
	})
}

// Many producers and consumers, some of whom keep giving up: every element is
// taken once and none early.
func TestStress(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) { stress(t, newQueue[stressed](precise)) })
}

type stressed struct {
	id int
	at time.Time
}

func stress(t *testing.T, q *delayqueue.DelayQueue[stressed]) {
	defer q.Close()
	const producers, each, consumers = 4, 2000, 8
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	taken := make([]atomic.Int32, producers*each)
	var left, early atomic.Int64
	left.Store(producers * each)

	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for k := range each {
				at := time.Now().Add(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
				q.Offer(stressed{p*each + k, at}, at)
				if rand.IntN(16) == 0 {
					if head, _, ok := q.Peek(); ok && q.DropHead(head) {
						q.Offer(head, head.at) // dropped and put back: still once
					}
				}
			}
		})
	}
	for range consumers {
		wg.Go(func() {
			for ctx.Err() == nil {
				impatient, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(2*time.Millisecond))))
				e, err := q.Take(impatient)
				cancel()
				if err != nil {
					continue
				}
				if time.Now().Before(e.at) {
					early.Add(1)
				}
				taken[e.id].Add(1)
				if left.Add(-1) == 0 {
					stop()
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
	waitForGoroutines(t, before)
}

// waitForGoroutines waits until there are no more than so many goroutines.
func waitForGoroutines(t *testing.T, most int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > most; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "goroutines are left")
	}
}

func ExampleDelayQueue() {
	q := delayqueue.New[string]()
	now := time.Now()
	q.Offer("second", now.Add(20*time.Millisecond))
	q.Offer("first", now.Add(10*time.Millisecond))
	for range 2 {
		v, err := q.Take(context.Background())
		if err != nil {
			return
		}
		fmt.Println(v)
	}
	// Output:
	// first
	// second
}

func TestClockOfTheCallersOwn(t *testing.T) {
	start := time.Date(1815, 6, 18, 11, 30, 0, 0, time.UTC)
	q := delayqueue.NewSince[string](start)
	q.Offer("second", start.Add(2*time.Hour))
	q.Offer("first", start.Add(time.Hour))
	q.Offer("past", start.Add(-time.Hour))
	for i, want := range []string{"past", "first"} {
		got, at, ok := q.Peek()
		require.True(t, ok)
		require.Equal(t, want, got)
		require.Equal(t, start.Add(time.Duration(2*i-1)*time.Hour), at)
		require.True(t, q.DropHead(got))
	}
	require.Equal(t, 1, q.Len())
}
