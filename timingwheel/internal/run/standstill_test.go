package run

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStandstill(t *testing.T) {
	q, r := NewQueue(nil), new(Runner)
	var s Standstill
	enqueue := func(n int) {
		tasks := make([]Task, n)
		for i := range tasks {
			tasks[i] = Function(func() {})
		}
		q.Enqueue(NewBatch(tasks...), r)
	}
	requireLooks := func(looks ...int) {
		t.Helper()
		for _, n := range looks {
			require.Equal(t, n, s.Look(q))
		}
	}
	requireLooks(0, 0, 0) // there is nothing to take
	enqueue(2)
	requireLooks(1, 2, 3)
	enqueue(1)
	requireLooks(4)
	for range 3 { // the last is of the second batch
		task, _, _ := q.take()
		require.NotNil(t, task)
		requireLooks(0)
	}
	requireLooks(0, 0) // there is nothing left
	enqueue(1)
	requireLooks(1, 2)
}
