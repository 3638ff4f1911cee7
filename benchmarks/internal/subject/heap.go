package subject

import (
	"slices"
	"sync"
	"time"

	"github.com/emirpasic/gods/trees/binaryheap"
)

var heapTimer = Subject{
	Name: "heap",
	Setup: "the textbook: a binary heap (github.com/emirpasic/gods v1.18.1) under one lock, with one " +
		"goroutine that sleeps until the head is due and starts a goroutine for each task, in the manner " +
		"of the JDK's ScheduledThreadPoolExecutor. A canceled task stays in the heap, as with the JDK's " +
		"default (setRemoveOnCancelPolicy(false)), since this heap cannot remove from its middle; its " +
		"function is released at once, and once more than half of the tasks are dead the heap is built " +
		"anew from the others, which costs a constant for each cancel. It keeps its tasks in a slice " +
		"too, to do that in linear time (the heap's own Values takes quadratic time)",
	New: func(Options) Timers {
		h := newHeapTimers()
		return timers(functions[*heapTask]{add: h.add, cancel: h.cancel, reset: h.reset, stop: h.stop})
	},
}

// heapTask is a task and its place in time. When it is reset, a new one takes
// its place in the heap, and the handle points there.
type heapTask struct {
	due  time.Duration // since the start of its heapTimers
	f    func()        // nil once it has run or was canceled
	next *heapTask     // what it was reset to
}

// latest returns t, or the task that has taken its place.
func (t *heapTask) latest() *heapTask {
	if t.next != nil {
		return t.next
	}
	return t
}

func byDue(a, b any) int {
	switch x, y := a.(*heapTask).due, b.(*heapTask).due; {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

type heapTimers struct {
	start time.Time
	wake  chan struct{} // the head has changed, or all is over

	mu      sync.Mutex
	heap    *binaryheap.Heap
	tasks   []*heapTask // all of the heap, and dead ones
	dead    int         // tasks that have run or were canceled
	stopped bool
}

func newHeapTimers() *heapTimers {
	h := &heapTimers{start: time.Now(), wake: make(chan struct{}, 1), heap: binaryheap.NewWith(byDue)}
	go h.work()
	return h
}

func (h *heapTimers) add(d time.Duration, f func()) *heapTask {
	t := &heapTask{due: time.Since(h.start) + d, f: f}
	h.mu.Lock()
	h.push(t)
	h.mu.Unlock()
	return t
}

// push adds t, and wakes the worker if t is the head. The caller holds mu.
func (h *heapTimers) push(t *heapTask) {
	h.heap.Push(t)
	h.tasks = append(h.tasks, t)
	if head, _ := h.heap.Peek(); head == t {
		h.signal()
	}
}

func (h *heapTimers) signal() {
	select {
	case h.wake <- struct{}{}:
	default: // it has not yet seen the last one
	}
}

func (h *heapTimers) cancel(t *heapTask) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.take(t.latest())
	h.purge()
}

// take returns the function of t, nil if t is dead already, and marks it so. The
// caller holds mu.
func (h *heapTimers) take(t *heapTask) func() {
	f := t.f
	if f != nil {
		t.f = nil
		h.dead++
	}
	return f
}

func (h *heapTimers) reset(t *heapTask, d time.Duration) {
	due := time.Since(h.start) + d
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.take(t.latest())
	if f == nil {
		return // it has run: no workload resets such a task
	}
	t.next = &heapTask{due: due, f: f}
	h.push(t.next)
	h.purge()
}

// purge rebuilds the heap, in linear time, once more than half of the tasks are
// dead. The caller holds mu.
func (h *heapTimers) purge() {
	if h.dead <= 64 || h.dead <= len(h.tasks)/2 {
		return
	}
	h.tasks = slices.DeleteFunc(h.tasks, func(t *heapTask) bool { return t.f == nil })
	live := make([]any, len(h.tasks))
	for i, t := range h.tasks {
		live[i] = t
	}
	h.heap = binaryheap.NewWith(byDue)
	h.heap.Push(live...)
	h.dead = 0
}

// work runs what is due, and sleeps until the head is.
func (h *heapTimers) work() {
	timer := time.NewTimer(time.Hour)
	for {
		wait, ok := h.runDue()
		if !ok {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-h.wake:
		}
	}
}

// runDue starts the tasks that are due and returns how long to sleep, and false
// once all is over. It takes the lock anew for each task, as the JDK's workers do.
func (h *heapTimers) runDue() (wait time.Duration, ok bool) {
	for {
		h.mu.Lock()
		if h.stopped {
			h.mu.Unlock()
			return 0, false
		}
		head, some := h.heap.Peek()
		if !some {
			h.mu.Unlock()
			return time.Hour, true
		}
		t := head.(*heapTask)
		if wait := t.due - time.Since(h.start); wait > 0 && t.f != nil {
			h.mu.Unlock()
			return wait, true
		}
		h.heap.Pop()
		f := h.take(t)
		h.purge()
		h.mu.Unlock()
		if f != nil {
			go f()
		}
	}
}

func (h *heapTimers) stop() {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.signal()
}
