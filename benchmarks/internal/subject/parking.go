package subject

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/purgatory"
	"github.com/tickwheel/tickwheel/timingwheel"
)

// Parking holds those who wait for something to happen under a key, each until a deadline
// of its own. None has a goroutine.
type Parking interface {
	Timers
	// Park parks one under the key for d, and returns what the one who waits holds.
	Park(d time.Duration, key int) any
	// Notify ends all that are parked under the key.
	Notify(key int)
	// Ended returns when one that Park has returned has ended, and reports whether that
	// was by Notify. It is called once for each.
	Ended(parked any) (notified bool)
}

var channelLists = Subject{
	Name: "map+channels+AfterFunc",
	Setup: "a mutex, a map of lists of channels, and package time's AfterFunc for each, which is what a " +
		"program writes for itself; in the workload of parked operations only",
	Kind: Parker,
	New: func(Options) Timers {
		return &channelParking{Timers: stdTimers(), keys: map[int]*list.List{}}
	},
}

var closedChannels = Subject{
	Name: "channel+context",
	Setup: "a mutex, a map of channels that Notify closes, and a context with a timeout for each who waits; " +
		"a key stays when those who waited under it have given up; in the same workload only",
	Kind: Parker,
	New: func(Options) Timers {
		return &closedParking{Timers: stdTimers(), keys: map[int]chan struct{}{}}
	},
}

var wheelPurgatory = Subject{
	Name: "purgatory",
	Setup: "tickwheel's Purgatory on a wheel with the defaults, with a try and a done for each; in the same " +
		"workload only",
	Kind: Parker,
	New: func(o Options) Timers {
		w := newWheel(o, timingwheel.Goroutines())
		return &purgatoryParking{Timers: scheduleOn(w), purgatory: purgatory.New[int](w)}
	},
}

type channelParking struct {
	Timers
	mu   sync.Mutex
	keys map[int]*list.List
}

type channelWaiter struct {
	ended chan bool
	timer *time.Timer
	place *list.Element
}

func (p *channelParking) Park(d time.Duration, key int) any {
	w := &channelWaiter{ended: make(chan bool, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.keys[key]
	if l == nil {
		l = list.New()
		p.keys[key] = l
	}
	w.place = l.PushBack(w)
	w.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if l.Remove(w.place); l.Len() == 0 && p.keys[key] == l {
			delete(p.keys, key)
		}
		w.ended <- false
	})
	return w
}

func (p *channelParking) Notify(key int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.keys[key]
	if l == nil {
		return
	}
	for e := l.Front(); e != nil; e = l.Front() {
		w := e.Value.(*channelWaiter)
		if w.timer.Stop() {
			w.ended <- true
		}
		l.Remove(e)
	}
	delete(p.keys, key)
}

func (*channelParking) Ended(parked any) bool { return <-parked.(*channelWaiter).ended }

type closedParking struct {
	Timers
	mu   sync.Mutex
	keys map[int]chan struct{}
}

type closedWaiter struct {
	changed chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
}

func (p *closedParking) Park(d time.Duration, key int) any {
	w := &closedWaiter{}
	w.ctx, w.cancel = context.WithTimeout(context.Background(), d)
	w.ctx.Done() // which who waits selects on
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.keys[key]
	if c == nil {
		c = make(chan struct{})
		p.keys[key] = c
	}
	w.changed = c
	return w
}

func (p *closedParking) Notify(key int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.keys[key]; c != nil {
		close(c)
		delete(p.keys, key)
	}
}

func (*closedParking) Ended(parked any) (notified bool) {
	w := parked.(*closedWaiter)
	defer w.cancel()
	select {
	case <-w.changed:
		return true
	case <-w.ctx.Done():
		return false
	}
}

type purgatoryParking struct {
	Timers
	purgatory *purgatory.Purgatory[int]
	changed   atomic.Int64 // a key and one: what its operations wait for has happened
	ended     atomic.Int64
}

func (p *purgatoryParking) Park(d time.Duration, key int) any {
	o, err := p.purgatory.Park(d,
		func() bool { return p.changed.Load() == int64(key)+1 },
		func(purgatory.Outcome) { p.ended.Add(1) }, key)
	if err != nil {
		panic(err)
	}
	return o
}

func (p *purgatoryParking) Notify(key int) {
	p.changed.Store(int64(key) + 1)
	p.purgatory.Notify(key)
	p.changed.Store(0)
}

// Ended asks now and then after a deadline: an operation has no channel, and would not be
// waited for like this where it has a done.
func (*purgatoryParking) Ended(parked any) (notified bool) {
	o := parked.(*purgatory.Op[int])
	for o.Outcome() == purgatory.Pending {
		time.Sleep(time.Millisecond)
	}
	return o.Outcome() == purgatory.Satisfied
}
