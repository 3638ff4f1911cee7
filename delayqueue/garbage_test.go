package delayqueue_test

import (
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/delayqueue"
)

// The runtime keeps timers that were stopped, as long as there are many others. They must
// not keep a queue whose alarm is not set.
func TestStoppedAlarmKeepsNothing(t *testing.T) {
	var queues []*delayqueue.DelayQueue[int]
	var kept []weak.Pointer[delayqueue.DelayQueue[int]]
	for range 100 {
		q := delayqueue.New[int]()
		q.TakeFunc(func(int) {})
		q.Offer(1, time.Now().Add(time.Hour))
		queues, kept = append(queues, q), append(kept, weak.Make(q))
		for range 10 {
			defer time.AfterFunc(time.Hour, func() {}).Stop()
		}
	}
	for _, q := range queues {
		require.True(t, q.DropHead(1))
	}
	queues = nil
	for range 10 { // a goroutine that was interrupted keeps what is left on its stack
		runtime.GC()
		kept = slices.DeleteFunc(kept, func(q weak.Pointer[delayqueue.DelayQueue[int]]) bool { return q.Value() == nil })
	}
	require.LessOrEqual(t, len(kept), 1)
}
