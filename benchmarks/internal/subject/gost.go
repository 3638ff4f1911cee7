package subject

import (
	"io"
	"log"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	gxtime "github.com/dubbogo/gost/time"
)

const gostTick = 10 * time.Millisecond

var gost = Subject{
	Name: "gost",
	Setup: "github.com/dubbogo/gost v1.11.16, gxtime.TimerWheel; its tick is 10 ms and cannot be chosen. " +
		"All goes through a queue of 128 and one goroutine. A full queue refuses an add, which is then " +
		"tried again, and drops a cancel or a reset without a word; so the adapter waits until a cancel " +
		"has been done, and for the queue to empty after every 64 resets. A reset counts from the start " +
		"of the timer rather than from now",
	Most: 10_000,
	Why:  "it inserts into a sorted list, and cancels and resets by walking it: O(n)",
	New: func(Options) Timers {
		log.SetOutput(io.Discard) // it logs when it stops
		g := &gostTimers{w: gxtime.NewTimerWheel()}
		time.Sleep(2 * gostTick) // until its first tick, its time is that of the start of the process
		return timers(functions[*gxtime.Timer]{add: g.add, cancel: g.cancel, reset: g.reset, stop: g.w.Stop})
	},
}

// gostTimers sends one thing at a time and counts what it has sent, so that it can
// tell from the wheel's TimerNumber, which is adds less cancels less fired, when
// the queue is empty. Without that most cancels of a busy program would be lost.
type gostTimers struct {
	w     *gxtime.TimerWheel
	fired atomic.Int64

	mu       sync.Mutex
	added    int64
	canceled int64
	resets   int
}

func (g *gostTimers) run(_ gxtime.TimerID, _ time.Time, f any) error {
	g.fired.Add(1)
	go f.(func())() // what its AfterFunc does
	return nil
}

func (g *gostTimers) add(d time.Duration, f func()) *gxtime.Timer {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.send(d, f)
}

func (g *gostTimers) cancel(t *gxtime.Timer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settle()
	g.drop(t)
}

func (g *gostTimers) reset(t *gxtime.Timer, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.Reset(d)
	if g.resets++; g.resets%64 == 0 {
		// Resets leave no trace in TimerNumber; an add behind them in the queue does.
		marker := g.send(time.Hour, func() {})
		g.settle()
		g.drop(marker)
	}
}

// send adds a timer. The caller holds mu.
func (g *gostTimers) send(d time.Duration, f func()) *gxtime.Timer {
	for {
		t, err := g.w.AddTimer(g.run, gxtime.TimerOnce, d, f)
		if err == nil {
			g.added++
			return t
		}
		runtime.Gosched()
	}
}

// drop cancels a timer; the queue is empty. The caller holds mu.
func (g *gostTimers) drop(t *gxtime.Timer) {
	t.Stop()
	g.canceled++
	g.settle()
}

// settle waits until what was sent has been done. The caller holds mu.
func (g *gostTimers) settle() {
	for int64(g.w.TimerNumber()) != g.added-g.canceled-g.fired.Load() {
		runtime.Gosched()
	}
}
