package purgatory

import (
	"container/list"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// channels is the first of the ways in which this is done by hand: a map of lists of
// channels, and a timer each.
type channels struct {
	mu   sync.Mutex
	keys map[int]*list.List
}

type channelWaiter struct {
	ended chan Outcome
	timer *time.Timer
	place *list.Element
}

func newChannels() *channels { return &channels{keys: map[int]*list.List{}} }

func (c *channels) park(d time.Duration, key int) *channelWaiter {
	w := &channelWaiter{ended: make(chan Outcome, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.keys[key]
	if l == nil {
		l = list.New()
		c.keys[key] = l
	}
	w.place = l.PushBack(w)
	w.timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.remove(key, w)
		w.ended <- Expired
	})
	return w
}

func (c *channels) remove(key int, w *channelWaiter) {
	if l := c.keys[key]; l != nil {
		l.Remove(w.place)
		if l.Len() == 0 {
			delete(c.keys, key)
		}
	}
}

func (c *channels) notify(key int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.keys[key]
	if l == nil {
		return
	}
	for e := l.Front(); e != nil; e = l.Front() {
		w := e.Value.(*channelWaiter)
		if w.timer.Stop() {
			w.ended <- Satisfied
		}
		l.Remove(e)
	}
	delete(c.keys, key)
}

// broadcast is the second: a channel for each key that is closed, and a context for each
// who waits.
type broadcast struct {
	mu   sync.Mutex
	keys map[int]chan struct{}
}

type broadcastWaiter struct {
	changed chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
}

func newBroadcast() *broadcast { return &broadcast{keys: map[int]chan struct{}{}} }

func (b *broadcast) park(d time.Duration, key int) *broadcastWaiter {
	w := &broadcastWaiter{}
	w.ctx, w.cancel = context.WithTimeout(context.Background(), d)
	w.ctx.Done() // which who waits would select on
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.keys[key]
	if c == nil {
		c = make(chan struct{})
		b.keys[key] = c
	}
	w.changed = c
	return w
}

func (b *broadcast) notify(key int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.keys[key]; c != nil {
		close(c)
		delete(b.keys, key)
	}
}

const far = time.Hour

func BenchmarkVersusParkNotify(b *testing.B) {
	ended := 0
	for _, parked := range []struct{ n, aKey int }{{0, 1}, {1_000_000, 1}, {1_000_000, 100}} {
		b.Run(fmt.Sprintf("purgatory/parked=%d,%d", parked.n, parked.aKey), func(b *testing.B) {
			w := timingwheel.New()
			defer w.Stop()
			p := New[int](w)
			for i := range parked.n {
				p.Park(far, nil, nil, -1-i/parked.aKey)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				ready := false
				p.Park(far, func() bool { return ready }, func(Outcome) { ended++ }, i)
				ready = true
				p.Notify(i)
			}
		})
	}
	b.Run("channels", func(b *testing.B) {
		b.ReportAllocs()
		c := newChannels()
		for i := 0; b.Loop(); i++ {
			w := c.park(far, i)
			c.notify(i)
			<-w.ended
		}
	})
	b.Run("broadcast", func(b *testing.B) {
		b.ReportAllocs()
		c := newBroadcast()
		for i := 0; b.Loop(); i++ {
			w := c.park(far, i)
			c.notify(i)
			<-w.changed
			w.cancel()
		}
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkVersusMemory(b *testing.B) {
	const n = 300_000
	weigh := func(name string, park func(i int) any) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				kept := make([]any, n)
				before := heap()
				for i := range kept {
					kept[i] = park(i)
				}
				b.ReportMetric(float64(heap()-before)/n, "B/parked")
				runtime.KeepAlive(kept)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	w := timingwheel.New()
	defer w.Stop()
	for _, shared := range []int{1, 100} {
		p, c, bc := New[int](w), newChannels(), newBroadcast()
		weigh(fmt.Sprintf("purgatory/%d a key", shared), func(i int) any {
			o, _ := p.Park(far, func() bool { return i < 0 }, func(Outcome) { _ = i }, i/shared)
			return o
		})
		weigh(fmt.Sprintf("purgatory, no functions/%d a key", shared), func(i int) any {
			o, _ := p.Park(far, nil, nil, -1-i/shared)
			return o
		})
		weigh(fmt.Sprintf("channels/%d a key", shared), func(i int) any { return c.park(far, i/shared) })
		weigh(fmt.Sprintf("broadcast/%d a key", shared), func(i int) any { return bc.park(far, i/shared) })
	}
	p := New[int](w)
	weigh("purgatory/3 keys", func(i int) any {
		o, _ := p.Park(far, func() bool { return i < 0 }, func(Outcome) { _ = i }, i, -1-i, i+n)
		return o
	})
}

// A rise past one waiter of 100,000.
func BenchmarkThreshold(b *testing.B) {
	w := timingwheel.New()
	defer w.Stop()
	t := NewThreshold[int](w)
	const waiters = 100_000
	for i := range waiters {
		t.Park(i+1, far, nil)
	}
	for v := 1; b.Loop(); v++ {
		t.Park(waiters+v, far, nil) // a part of what is measured
		if t.Advance(v) != 1 {
			b.Fatal("not one")
		}
	}
}
