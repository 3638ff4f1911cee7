package delayqueue_test

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/delayqueue"
)

// withEachSleeper runs a test for both kinds of queue. Where there is no timerfd
// the second is like the first, which must do as well.
func withEachSleeper(t *testing.T, test func(t *testing.T, precise bool)) {
	t.Run("default", func(t *testing.T) { test(t, false) })
	t.Run("precise", func(t *testing.T) { test(t, true) })
}

func newQueue[T comparable](precise bool) *delayqueue.DelayQueue[T] {
	if precise {
		return delayqueue.NewPrecise[T]()
	}
	return delayqueue.New[T]()
}

type taken struct {
	v   string
	err error
	at  time.Time
}

// take calls Take on a goroutine, and returns when that waits or has returned. After ten
// seconds it returns anyway: one who waited before may have left meanwhile.
func take(ctx context.Context, q *delayqueue.DelayQueue[string]) <-chan taken {
	result, before := make(chan taken, 1), q.Waiting()
	go func() {
		v, err := q.Take(ctx)
		result <- taken{v, err, time.Now()}
	}()
	for start := time.Now(); q.Waiting() <= before && len(result) == 0 && time.Since(start) < 10*time.Second; {
		time.Sleep(100 * time.Microsecond)
	}
	return result
}

// These tests sleep in real time: the time of a bubble would never reach a timerfd. A
// test that takes an hour has hung.

func TestSleeperIsWokenByAnEarlierOffer(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		q := newQueue[string](precise)
		defer q.Close()
		q.Offer("late", time.Now().Add(time.Hour))
		result := take(t.Context(), q)
		at := time.Now().Add(10 * time.Millisecond)
		q.Offer("early", at)
		got := <-result
		require.Equal(t, "early", got.v)
		require.False(t, got.at.Before(at))
		require.GreaterOrEqual(t, q.Wakeups(), int64(1))

		result = take(t.Context(), q)
		q.Offer("due", time.Now())
		require.Equal(t, "due", (<-result).v)
	})
}

func TestSleeperIsWokenByTheEndOfItsContext(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		for wait := 50 * time.Millisecond; !firstLeaves(t, newQueue[string](precise), wait); wait *= 2 {
			require.Less(t, wait, time.Minute)
		}
	})
}

// firstLeaves reports false if the machine was so slow that the first had the element
// before it could leave.
func firstLeaves(t *testing.T, q *delayqueue.DelayQueue[string], wait time.Duration) bool {
	defer q.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	secondCtx, cancelSecond := context.WithCancel(t.Context())
	defer cancelSecond()
	at := time.Now().Add(wait)
	q.Offer("due", at)
	first, second := take(ctx, q), take(secondCtx, q)
	cancel()
	left := <-first
	if left.err == nil {
		return false
	}
	require.ErrorIs(t, left.err, context.Canceled)
	got := <-second
	require.Equal(t, "due", got.v, "the next one is first, on the same sleeper")
	require.False(t, got.at.Before(at))
	return true
}

func TestSleeperWorksOnWhenClosed(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		q := newQueue[string](precise)
		at := time.Now().Add(30 * time.Millisecond)
		q.Offer("asleep meanwhile", at)
		result := take(t.Context(), q)
		q.Close()
		q.Close()
		require.False(t, q.Precise())
		got := <-result
		require.NoError(t, got.err)
		require.False(t, got.at.Before(at))

		at = time.Now().Add(time.Millisecond)
		q.Offer("offered later", at)
		got = <-take(t.Context(), q)
		require.Equal(t, "offered later", got.v)
		require.False(t, got.at.Before(at))
	})
}

func TestSleeperTakesAnyTime(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		q := newQueue[string](precise)
		defer q.Close()
		was := q.Precise()
		q.Offer("never", time.Now().Add(math.MaxInt64))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		for range 1000 {
			q.Offer("at once, or all but", time.Now().Add(time.Duration(rand.Int64N(2000)-1000)))
			v, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, "at once, or all but", v)
		}
		require.Equal(t, 1, q.Len())
		require.Equal(t, was, q.Precise(), "no time was refused")
	})
}

// lateness returns how late a queue's only consumer is, for each of some sleeps, sorted.
func lateness(t *testing.T, q *delayqueue.DelayQueue[int], sleeps int, d time.Duration) []time.Duration {
	late := make([]time.Duration, sleeps)
	for i := range late {
		at := time.Now().Add(d)
		q.Offer(i, at)
		v, err := q.Take(t.Context())
		late[i] = time.Since(at)
		require.NoError(t, err)
		require.Equal(t, i, v)
	}
	slices.Sort(late)
	return late
}

func TestSleeperIsNeverEarly(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		q := newQueue[int](precise)
		defer q.Close()
		for _, d := range []time.Duration{time.Microsecond, 10 * time.Microsecond, 100 * time.Microsecond, 1300 * time.Microsecond} {
			require.GreaterOrEqual(t, lateness(t, q, 100, d)[0], time.Duration(0))
		}
	})
}

// Sleeps of 1.3 ms show the poller's whole milliseconds: the default is later by a third
// of one at least. A busy machine makes both late by as much, so the difference is compared. It takes
// several rounds there. Where the default is later than a poller alone can make it, the round tells
// nothing.
func TestSleeperIsOnTime(t *testing.T) {
	coarse, precise := delayqueue.New[int](), delayqueue.NewPrecise[int]()
	defer precise.Close()
	if !precise.Precise() {
		t.Skip("no timerfd")
	}
	var theirs, ours time.Duration
	told := 0
	for range 40 {
		theirs = lateness(t, coarse, 50, 1300*time.Microsecond)[25]
		ours = lateness(t, precise, 50, 1300*time.Microsecond)[25]
		if theirs >= 3*time.Millisecond {
			continue
		}
		if told++; theirs-ours > time.Millisecond/3 {
			return
		}
	}
	if told < 10 {
		t.Skip("the machine is too busy: the default is late by ", theirs)
	}
	t.Errorf("late by %v at the median, and the default by %v", ours, theirs)
}

func TestSleeperLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 100 {
		q := delayqueue.NewPrecise[int]()
		q.Offer(1, time.Now().Add(10*time.Microsecond))
		_, err := q.Take(t.Context())
		require.NoError(t, err)
		q.Close()
	}
	waitForGoroutines(t, before) // the last alarm hands over its element before it ends
}

func TestWakeups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.New[int]()
		q.Offer(1, time.Now())
		_, err := q.Take(t.Context())
		require.NoError(t, err)
		require.Zero(t, q.Wakeups(), "it did not have to wait")

		ctx, cancel := context.WithCancel(t.Context())
		go q.Take(ctx)
		synctest.Wait()
		q.Offer(2, time.Now().Add(time.Hour))
		synctest.Wait()
		require.Zero(t, q.Wakeups(), "not for an offer to an empty queue")
		q.Offer(3, time.Now().Add(2*time.Hour))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, q.Wakeups(), "not for a later one, nor in the meantime")
		time.Sleep(time.Hour)
		synctest.Wait()
		require.EqualValues(t, 1, q.Wakeups(), "for the time")
		go q.Take(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait()
		require.EqualValues(t, 2, q.Wakeups(), "for the end of the context")
		require.Equal(t, 1, q.Len())
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.EqualValues(t, 2, q.Wakeups(), "nobody waits, so no alarm is set")
	})
}

// A time that a bubble's clock cannot reach. The bubble's timers for it fire at the end
// of the clock, whenever they are set: a consumer that sets one again and again never
// sleeps, so that the bubble never finds its deadlock.
func TestTimeBeyondTheEndOfABubble(t *testing.T) {
	withEachSleeper(t, func(t *testing.T, precise bool) {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue[int](precise)
			defer q.Close()
			q.Offer(1, time.Now().Add(math.MaxInt64))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() {
				_, err := q.Take(ctx)
				result <- err
			}()
			<-time.After(math.MaxInt64) // to the end of the clock
			for range 10_000 {
				runtime.Gosched()
			}
			require.LessOrEqual(t, q.Wakeups(), int64(3), "the consumer spins")
			synctest.Wait()
			q.Offer(2, time.Now())
			require.NoError(t, <-result, "an earlier offer reaches it")

			go func() {
				_, err := q.Take(ctx)
				result <- err
			}()
			synctest.Wait()
			cancel()
			require.ErrorIs(t, <-result, context.Canceled)
		})
	})
}

// A queue made in a bubble uses the bubble's timer. The timerfd changes nothing.
func TestPreciseInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := delayqueue.NewPrecise[int]()
		defer q.Close()
		start := time.Now()
		for i, d := range []time.Duration{time.Hour, time.Microsecond, time.Second, 24 * time.Hour} {
			at := time.Now().Add(d)
			q.Offer(i, at)
			v, err := q.Take(t.Context())
			require.NoError(t, err)
			require.Equal(t, i, v)
			require.Equal(t, at, time.Now())
		}
		require.Equal(t, 25*time.Hour+time.Second+time.Microsecond, time.Since(start))
	})
}
