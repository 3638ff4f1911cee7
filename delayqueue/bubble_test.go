package delayqueue_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/delayqueue"
)

const (
	madeOutside = "delayqueue: the queue was made outside of this testing/synctest bubble: make it in the bubble"
	madeInside  = "delayqueue: the queue was made in a testing/synctest bubble and is used outside of it: make another one outside"
)

// A queue works where it was made, and panics in the other place, whatever the date of the bubble
// is. Without that check, the calls that panic here would end the process.
func TestQueueInTheOtherPlace(t *testing.T) {
	now := time.Now()
	dates := map[string]time.Time{"begin": {}, "now": now, "in an hour": now.Add(time.Hour)}
	for _, year := range []int{2010, 2020, 2030, 2040, 2060, 2200} {
		dates[strconv.Itoa(year)] = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for name, date := range dates {
		t.Run(name, func(t *testing.T) {
			outer, empty := delayqueue.New[int](), delayqueue.New[int]()
			require.True(t, isWaiting(outer))
			outer.Offer(1, time.Now().Add(time.Hour)) // sets the alarm
			require.True(t, isWaiting(empty))
			var inner, idle, ofOutside *delayqueue.DelayQueue[int]
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(date))
				panicsEach(t, madeOutside, outer, empty)
				ofOutside = delayqueue.NewSince[int](now)
				require.PanicsWithValue(t, madeOutside, func() { ofOutside.Take(t.Context()) })
				inner, idle = delayqueue.New[int](), delayqueue.New[int]()
				inner.Offer(1, time.Now().Add(time.Hour))
				v, err := inner.Take(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, v)
				require.True(t, isWaiting(inner))
				inner.Offer(2, time.Now().Add(time.Hour))
				require.True(t, isWaiting(idle))
			})
			panicsEach(t, madeInside, inner, idle)
			for _, q := range []*delayqueue.DelayQueue[int]{outer, ofOutside} {
				q.Offer(7, time.Now().Add(time.Hour)) // the consumer could take one that is due
				require.Equal(t, 1, q.Len(), "it works on")
			}
		})
	}
}

func isWaiting(q *delayqueue.DelayQueue[int]) bool {
	_, ok := q.TakeFunc(func(int) {})
	return !ok
}

// panicsEach tries what touches a timer or waits. One queue has an element and an alarm, and the
// other only a consumer.
func panicsEach(t *testing.T, sentence string, q, empty *delayqueue.DelayQueue[int]) {
	t.Helper()
	head, _, _ := q.Peek()
	for i, f := range []func(){
		func() { q.Take(context.Background()) }, func() { q.TakeFunc(func(int) {}) }, func() { q.Poll() },
		func() { q.Forward(time.Minute) }, func() { empty.Take(context.Background()) },
		func() { q.Offer(head, time.Unix(0, 0)) }, // last: it can be taken anywhere
	} {
		require.PanicsWithValue(t, sentence, f, i)
	}
	for q.Len() > 0 {
		require.PanicsWithValue(t, sentence, func() { q.DropHead(head) })
	}
	require.PanicsWithValue(t, sentence, func() { empty.Offer(1, time.Unix(0, 0)) })
	empty.Offer(2, time.Unix(0, 0).Add(1)) // not the head
	require.Equal(t, 2, empty.Len())
}
