package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/purgatory"
)

// parking holds operations that wait under a key for an event, each until a deadline of its
// own. None has a goroutine. Each calls done once: with true if it was notified.
type parking interface {
	park(d time.Duration, key int, done func(notified bool))
	notify(key int)
}

// BenchmarkPurgatory parks operations: in a Purgatory, or in what a program writes for itself:
// a mutex, a map of lists, and package time's AfterFunc for each operation. With work=one, an
// operation is parked under a key of its own and the key is notified, beside so many that
// stay. With work=each, all are parked under a key each, and then each key is notified. With
// work=crowd, all are parked under one key, which is then notified once. With work=expire
// they come due, all over a second. CPU is the whole process's for each operation, and bytes
// are those of live objects while all are parked.
func BenchmarkPurgatory(b *testing.B) {
	subjects := []subject[parking]{
		{"map+AfterFunc", func(*testing.B) parking { return &parkingMap{keys: map[int]map[*parked]bool{}} }},
		{"purgatory", func(b *testing.B) parking { return &parkingWheel{Purgatory: purgatory.New[int](newWheel(b))} }},
	}
	eachSize(b, []int{0, 1_000_000}, func(b *testing.B, n int) {
		b.Run("work=one", func(b *testing.B) {
			compare(b, subjects, func(b *testing.B, p parking) {
				var ended atomic.Int64
				parkAll(p, n, n, &ended)
				key := n
				loop(b, func() {
					p.park(time.Hour, key, func(bool) { ended.Add(1) })
					p.notify(key)
					key++
				})
				if got := ended.Load(); got != int64(key-n) {
					b.Fatalf("%d operations have ended, want %d", got, key-n)
				}
				notifyAll(p, n)
			})
		})
	})
	n := size(1_000_000, 100)
	b.Run("work=each", func(b *testing.B) {
		compare(b, subjects, func(b *testing.B, p parking) { parkAndNotify(b, p, n, n) })
	})
	b.Run("work=crowd", func(b *testing.B) {
		compare(b, subjects, func(b *testing.B, p parking) { parkAndNotify(b, p, n/10, 1) })
	})
	b.Run("work=expire", func(b *testing.B) {
		compare(b, subjects, func(b *testing.B, p parking) { parkAndExpire(b, p, n/5) })
	})
}

func parkAll(p parking, n, keys int, ended *atomic.Int64) {
	for i := range n {
		p.park(time.Hour, i%keys, func(bool) { ended.Add(1) })
	}
}

func notifyAll(p parking, keys int) {
	for key := range keys {
		p.notify(key)
	}
}

func parkAndNotify(b *testing.B, p parking, n, keys int) {
	once(b, func() {
		heap := measure.HeapBytes()
		before := measure.Now()
		var ended atomic.Int64
		parkAll(p, n, keys, &ended)
		parked := measure.Now()
		heap = measure.HeapBytes() - heap
		again := measure.Now()
		notifyAll(p, keys)
		after := measure.Now()
		await(b, &ended, n)
		b.ReportMetric(float64(parked.CPU-before.CPU+after.CPU-again.CPU)/float64(n), "cpu-ns/op")
		b.ReportMetric(heap/float64(n), "B/parked")
	})
}

func parkAndExpire(b *testing.B, p parking, n int) {
	over := size(time.Second, 20*time.Millisecond)
	once(b, func() {
		measure.Settle()
		var expired atomic.Int64
		before := measure.Now()
		for i := range n {
			p.park(over+over*time.Duration(i)/time.Duration(n), i, func(bool) { expired.Add(1) })
		}
		await(b, &expired, n)
		reportCPU(b, before, measure.Now(), n, "op")
	})
}

// parkingMap is what a program writes for itself.
type parkingMap struct {
	mu   sync.Mutex
	keys map[int]map[*parked]bool
}

type parked struct {
	timer *time.Timer
	done  func(bool)
}

func (p *parkingMap) park(d time.Duration, key int, done func(bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &parked{done: done}
	if p.keys[key] == nil {
		p.keys[key] = map[*parked]bool{}
	}
	p.keys[key][o] = true
	o.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		mine := p.keys[key][o]
		if delete(p.keys[key], o); len(p.keys[key]) == 0 {
			delete(p.keys, key)
		}
		p.mu.Unlock()
		if mine {
			done(false)
		}
	})
}

func (p *parkingMap) notify(key int) {
	p.mu.Lock()
	all := p.keys[key]
	delete(p.keys, key)
	p.mu.Unlock()
	for o := range all {
		o.timer.Stop()
		o.done(true)
	}
}

// parkingWheel asks for each operation whether its event has happened, as a Purgatory's users
// do.
type parkingWheel struct {
	*purgatory.Purgatory[int]
	happened atomic.Int64 // a key and one
}

func (p *parkingWheel) park(d time.Duration, key int, done func(bool)) {
	_, err := p.Park(d, func() bool { return p.happened.Load() == int64(key)+1 },
		func(o purgatory.Outcome) { done(o == purgatory.Satisfied) }, key)
	if err != nil {
		panic(err)
	}
}

func (p *parkingWheel) notify(key int) {
	p.happened.Store(int64(key) + 1)
	p.Notify(key)
	p.happened.Store(0)
}
