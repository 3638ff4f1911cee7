package delayqueue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// requireNoTimer checks that no timer of the queue is set, which would wake up an idle process
// for nothing.
func requireNoTimer(t *testing.T, q *DelayQueue[int]) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Equal(t, noAlarm, q.alarm)
	require.Nil(t, q.rings.Load())
	for _, timer := range []*time.Timer{q.timer, q.spare} {
		if timer != nil {
			require.False(t, timer.Stop(), "a timer is set")
		}
	}
}

// Of the two timers one alone is set, and the element that is due rings once, however often the
// alarm was set sooner and later before.
func TestTimersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		start := time.Now()
		q.Offer(0, start.Add(time.Hour))
		var took time.Time
		q.TakeFunc(func(int) { took = time.Now() })
		for i := 1; i <= 5; i++ {
			q.Offer(i, start.Add(50*time.Millisecond)) // sooner
			q.Offer(-i, start.Add(10*time.Millisecond))
			require.True(t, q.DropHead(-i)) // later
			require.True(t, q.DropHead(i))
			q.mu.Lock()
			require.NotNil(t, q.spare)
			require.False(t, q.spare.Stop(), "both timers are set")
			q.mu.Unlock()
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, start.Add(time.Hour), took)
		require.EqualValues(t, 1, q.Wakeups())
		requireNoTimer(t, q)
	})
}

// The timer is set only while an element and a consumer wait.
func TestTimerOnlyWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		far := time.Now().Add(time.Hour)
		q.Offer(1, far)
		requireNoTimer(t, q)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireNoTimer(t, q)

		q.TakeFunc(func(int) {})
		q.Offer(2, time.Now()) // earlier than the one for which it is set
		synctest.Wait()
		require.Equal(t, 1, q.Len())
		requireNoTimer(t, q)

		q.TakeFunc(func(int) {})
		require.True(t, q.DropHead(1))
		requireNoTimer(t, q)
		require.EqualValues(t, 2, q.Wakeups())
	})
}

// An alarm whose consumer has left meanwhile takes nothing.
func TestAlarmWithoutAConsumer(t *testing.T) {
	q := New[int]()
	q.Offer(1, time.Now())
	_, take := q.takeForFirst()
	require.Nil(t, take)
	require.Equal(t, 1, q.Len())
	requireNoTimer(t, q)
}

// Nothing is early, not even by a nanosecond.
func TestNotEarlyByANanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New[int]()
		q.Offer(1, time.Now().Add(2*time.Nanosecond))
		for range 2 {
			_, ok := q.Poll()
			require.False(t, ok)
			time.Sleep(time.Nanosecond)
		}
		_, ok := q.Poll()
		require.True(t, ok)
	})
}
