package subject

import (
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// Keys keeps at most one pending function for each key.
type Keys interface {
	Timers
	// ScheduleKey runs f after d, in place of what the key had pending.
	ScheduleKey(key int, d time.Duration, f func())
	// CancelKey drops what the key has pending.
	CancelKey(key int)
}

var mutexMap = Subject{
	Name: "mutex+map+AfterFunc",
	Setup: "a mutex, a map and package time's AfterFunc, which is what a program writes for itself; in the " +
		"workload of keys only",
	Kind: KeyMaker,
	New:  func(Options) Timers { return &timeKeys{Timers: stdTimers(), timers: map[int]*time.Timer{}} },
}

var wheelKeyed = Subject{
	Name:  "wheel.Keyed",
	Setup: "tickwheel's Keyed, with the defaults; in the workload of keys only",
	Kind:  KeyMaker,
	New: func(o Options) Timers {
		w := newWheel(o, timingwheel.Goroutines())
		return keys{scheduleOn(w), timingwheel.NewKeyed[int](w)}
	},
}

type timeKeys struct {
	Timers
	mu     sync.Mutex
	timers map[int]*time.Timer
}

func (k *timeKeys) ScheduleKey(key int, d time.Duration, f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old := k.timers[key]; old != nil {
		old.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		k.mu.Lock()
		mine := k.timers[key] == timer
		if mine {
			delete(k.timers, key)
		}
		k.mu.Unlock()
		if mine {
			f()
		}
	})
	k.timers[key] = timer
}

func (k *timeKeys) CancelKey(key int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if timer := k.timers[key]; timer != nil {
		timer.Stop()
		delete(k.timers, key)
	}
}

type keys struct {
	Timers
	keyed *timingwheel.Keyed[int]
}

func (k keys) ScheduleKey(key int, d time.Duration, f func()) {
	if _, err := k.keyed.Schedule(key, d, f); err != nil {
		panic(err)
	}
}

func (k keys) CancelKey(key int) { k.keyed.Cancel(key) }
