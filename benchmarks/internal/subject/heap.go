package subject

import (
	"sync"
	"time"

	"github.com/emirpasic/gods/trees/binaryheap"
)

var heapTimer = Subject{
	Name: "heap",
	Setup: "the textbook: a binary heap (github.com/emirpasic/gods v1.18.1) under one lock, with one goroutine that sleeps until " +
		"the head is due and starts a goroutine for each task, in the manner of the JDK's ScheduledThreadPoolExecutor. " +
		"A cancelled task stays in the heap, as with the JDK's default (setRemoveOnCancelPolicy(false)), since this heap " +
		"cannot remove from its middle; its function is released at once, and when more than half of the heap is " +
		"cancelled, the heap is purged",
	New: func(Options) Timers {
		h := newHeapTimers()
		return timers(functions[*heapTask]{add: h.add, cancel: h.cancel, reset: h.reset, stop: h.stop})
	},
}

// heapTask is a task and its place in time. When it is reset, a new one takes
// its place in the heap, and the handle points there.
type heapTask struct {
	due  time.Duration // since the start of its heapTimers
	f    func()        // nil once it has run or was cancelled
	next *heapTask     // what it was reset to
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

	mu        sync.Mutex
	heap      *binaryheap.Heap
	cancelled int // tasks in the heap that will not run
	stopped   bool
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
	h.take(t)
	h.purge()
}

// take marks t, or what it was reset to, as cancelled and returns its function.
// The caller holds mu.
func (h *heapTimers) take(t *heapTask) func() {
	if t.next != nil {
		t = t.next
	}
	f := t.f
	if f != nil {
		t.f = nil
		h.cancelled++
	}
	return f
}

func (h *heapTimers) reset(t *heapTask, d time.Duration) {
	due := time.Since(h.start) + d
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.take(t)
	if f == nil {
		return // it has run: no workload resets such a task
	}
	t.next = &heapTask{due: due, f: f}
	h.push(t.next)
	h.purge()
}

// purge rebuilds the heap, in linear time, once more than half of it is
// cancelled; so its cost is constant for each cancel. The caller holds mu.
func (h *heapTimers) purge() {
	if h.cancelled <= 64 || h.cancelled <= h.heap.Size()/2 {
		return
	}
	live := make([]any, 0, h.heap.Size()-h.cancelled)
	for _, v := range h.heap.Values() {
		if v.(*heapTask).f != nil {
			live = append(live, v)
		}
	}
	h.heap = binaryheap.NewWith(byDue)
	h.heap.Push(live...)
	h.cancelled = 0
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
		f := t.f
		t.f = nil
		if f == nil {
			h.cancelled--
		}
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
