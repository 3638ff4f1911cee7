package main

import (
	"container/heap"
	"io"
	"log"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	luo "github.com/RussellLuo/timingwheel"
	gxtime "github.com/dubbogo/gost/time"
	"github.com/zeromicro/go-zero/core/collection"
)

// startLuo starts github.com/RussellLuo/timingwheel, with as many slots as tickwheel has, so
// that both cascade alike.
func startLuo(s setup) timers {
	w := luo.NewTimingWheel(max(s.tick, time.Millisecond), int64(max(s.slots, 512)))
	w.Start()
	return &kept[*luo.Timer]{
		start: w.AfterFunc,
		end:   func(t *luo.Timer) { t.Stop() },
		close: w.Stop,
	}
}

// startGoZero starts go-zero's collection.TimingWheel with 65,536 slots, a minute of ticks.
// With fewer, a tick would walk many entries of later rounds. Keys count up.
func startGoZero(s setup) timers {
	run := func(_, f any) { f.(func())() }
	w, err := collection.NewTimingWheel(max(s.tick, time.Millisecond), max(s.slots, 1<<16), run)
	if err != nil {
		panic(err)
	}
	var keys atomic.Int64
	return &kept[int64]{
		start: func(d time.Duration, f func()) int64 {
			key := keys.Add(1)
			// It refuses a delay that is not positive.
			if err := w.SetTimer(key, f, max(d, 1)); err != nil {
				panic(err)
			}
			return key
		},
		end:   func(key int64) { _ = w.RemoveTimer(key) },
		move:  func(key int64, d time.Duration) { _ = w.MoveTimer(key, max(d, 1)) },
		close: w.Stop,
	}
}

// gost is github.com/dubbogo/gost's TimerWheel. One goroutine reads a queue of 128 entries.
// A full queue refuses an add, and drops a cancel without an error. So cancel waits before
// and after until the queue is empty, which the number of timers tells.
type gost struct {
	wheel *gxtime.TimerWheel
	mu    sync.Mutex
	sent  int64 // adds less cancels; mu guards it
	fired atomic.Int64
}

func startGost(setup) timers {
	log.SetOutput(io.Discard) // it logs when it stops
	g := &gost{wheel: gxtime.NewTimerWheel()}
	time.Sleep(20 * time.Millisecond) // before its first tick, its time is that of the process's start
	return &kept[*gxtime.Timer]{start: g.add, end: g.cancel, close: g.wheel.Stop}
}

func (g *gost) add(d time.Duration, f func()) *gxtime.Timer {
	run := func(gxtime.TimerID, time.Time, any) error {
		g.fired.Add(1)
		go f()
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if t, err := g.wheel.AddTimer(run, gxtime.TimerOnce, d, nil); err == nil {
			g.sent++
			return t
		}
		runtime.Gosched()
	}
}

func (g *gost) cancel(t *gxtime.Timer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settle()
	t.Stop()
	g.sent--
	g.settle()
}

// settle waits until the queue is empty. The caller holds mu.
func (g *gost) settle() {
	for int64(g.wheel.TimerNumber()) != g.sent-g.fired.Load() {
		runtime.Gosched()
	}
}

// heapTimers is the textbook: container/heap under one lock, with one goroutine that sleeps
// until the first timer is due and starts a goroutine for each function.
type heapTimers struct {
	start time.Time
	wake  chan struct{} // the first timer has changed, or the end has come

	mu      sync.Mutex // guards what follows
	items   heapItems
	stopped bool
}

type heapItem struct {
	due   time.Duration // since the start
	f     func()
	index int // in the heap; -1 outside
}

type heapItems []*heapItem

func (h heapItems) Len() int           { return len(h) }
func (h heapItems) Less(i, j int) bool { return h[i].due < h[j].due }
func (h heapItems) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *heapItems) Push(x any) {
	item := x.(*heapItem)
	item.index = len(*h)
	*h = append(*h, item)
}

func (h *heapItems) Pop() any {
	last := len(*h) - 1
	item := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	item.index = -1
	return item
}

func startHeap(setup) timers {
	h := &heapTimers{start: time.Now(), wake: make(chan struct{}, 1)}
	go h.run()
	return &kept[*heapItem]{start: h.add, end: h.cancel, move: h.reset, close: h.stop}
}

func (h *heapTimers) add(d time.Duration, f func()) *heapItem {
	item := &heapItem{due: time.Since(h.start) + d, f: f}
	h.mu.Lock()
	defer h.mu.Unlock()
	heap.Push(&h.items, item)
	h.wakeFor(item)
	return item
}

// wakeFor wakes the goroutine if the item comes first. The caller holds mu.
func (h *heapTimers) wakeFor(item *heapItem) {
	if item.index == 0 {
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
}

func (h *heapTimers) cancel(item *heapItem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if item.index >= 0 {
		heap.Remove(&h.items, item.index)
	}
}

func (h *heapTimers) reset(item *heapItem, d time.Duration) {
	due := time.Since(h.start) + d
	h.mu.Lock()
	defer h.mu.Unlock()
	if item.index >= 0 {
		item.due = due
		heap.Fix(&h.items, item.index)
		h.wakeFor(item)
	}
}

func (h *heapTimers) stop() {
	h.mu.Lock()
	h.items, h.stopped = nil, true
	h.mu.Unlock()
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

func (h *heapTimers) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		f, wait, stopped := h.next()
		switch {
		case stopped:
			return
		case f != nil:
			go f()
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-h.wake:
		}
	}
}

// next returns the function that is due, or for how long none is.
func (h *heapTimers) next() (f func(), wait time.Duration, stopped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.items) == 0 {
		return nil, time.Hour, h.stopped
	}
	if wait := h.items[0].due - time.Since(h.start); wait > 0 {
		return nil, wait, false
	}
	return heap.Pop(&h.items).(*heapItem).f, 0, false
}
