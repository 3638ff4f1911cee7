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
	if q.timer != nil {
		require.False(t, q.timer.Stop(), "the timer is set")
	}
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
