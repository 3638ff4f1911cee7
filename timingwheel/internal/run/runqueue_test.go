package run

import (
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"weak"

	"github.com/stretchr/testify/require"
)

// A task that is alone goes behind what is in the queue already.
func TestTaskThatIsAloneOvertakesNone(t *testing.T) {
	queue, r, ran := NewQueue(nil), new(Runner), make(chan bool, 2)
	r.Admit(2)
	queue.Enqueue(NewBatch(Function(func() { ran <- true })), r)
	queue.Work(Function(func() { ran <- !queue.hasTasks() }), r)
	require.True(t, <-ran)
	require.True(t, <-ran, "it ran while an older task was in the queue")
}

// A task that blocks does not keep the batches that have come after its own.
func TestBlockedTaskKeepsNoBatch(t *testing.T) {
	for _, n := range []int{2, 1} {
		q, release := NewQueue(nil), make(chan struct{})
		push := func(n int, f func()) {
			q.Stranger.Admit(n)
			q.ExecuteTasks(slices.Repeat([]Task{Function(f)}, n), &q.Stranger)
		}
		var began atomic.Int64
		push(n, func() {
			began.Add(1)
			<-release
		})
		waitUntil(t, func() bool { return began.Load() == int64(n) })
		others := func() {
			var ran atomic.Int64
			push(2, func() { ran.Add(1) })
			waitUntil(t, func() bool { return ran.Load() == 2 })
		}
		others()
		b := weak.Make(q.last.Load())
		waitUntil(t, func() bool {
			others() // the last batch stays until there is another
			runtime.GC()
			return b.Value() == nil
		})
		close(release)
	}
}

// A batch of up to eight tasks is one allocation, and has its own copy of the tasks, in their order.
func TestBatchIsOneAllocation(t *testing.T) {
	for n := range 9 {
		tasks := make([]Task, n)
		var ran []int
		for i := range tasks {
			tasks[i] = Function(func() { ran = append(ran, i) })
		}
		var b *batch
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { b = NewBatch(tasks...) }), 1.0, "%d tasks", n)
		require.Len(t, b.tasks, n)
		clear(tasks) // the batch has a copy
		for i, task := range b.tasks {
			task.Run()
			require.Equal(t, i, ran[i])
		}
	}
}
