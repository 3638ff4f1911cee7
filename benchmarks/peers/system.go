package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// subject is a timer system. Slots keep the handles.
type subject interface {
	keep(n int)
	add(i int, d time.Duration, f func())
	cancel(i int)
}

type wheelSchedule struct {
	w *timingwheel.TimingWheel
	h []timingwheel.Timeout
}

func (s *wheelSchedule) keep(n int)                           { s.h = make([]timingwheel.Timeout, n) }
func (s *wheelSchedule) add(i int, d time.Duration, f func()) { s.h[i], _ = s.w.Schedule(d, f) }
func (s *wheelSchedule) cancel(i int)                         { s.h[i].Cancel() }

type timeAfterFunc struct{ h []*time.Timer }

func (s *timeAfterFunc) keep(n int)                           { s.h = make([]*time.Timer, n) }
func (s *timeAfterFunc) add(i int, d time.Duration, f func()) { s.h[i] = time.AfterFunc(d, f) }
func (s *timeAfterFunc) cancel(i int)                         { s.h[i].Stop() }

const million = 1_000_000

var (
	s    subject
	noop = func() {}
)

// measure runs one workload on one system of Go. java/Main.java and c/main.c do the same.
func measure(system, work string) {
	switch system {
	case "wheel.Schedule":
		s = &wheelSchedule{w: timingwheel.New()}
	case "wheel.Schedule+Inline":
		s = &wheelSchedule{w: timingwheel.New(timingwheel.WithExecutor(timingwheel.Inline()))}
	case "time.AfterFunc":
		s = &timeAfterFunc{}
	}
	switch work {
	case "add":
		addAndCancel()
	case "fire":
		cost := burst(false, 100_000, 200*time.Millisecond, 1000)
		burst(true, million, time.Second, burst(false, 100_000, 200*time.Millisecond, cost))
	case "early":
		early()
	case "memory":
		memory()
	case "idle":
		s.keep(million)
		s.add(0, time.Hour, noop)
		idle("idle")
		fill()
		idle("idle1M")
	}
}

func report(work, unit string, v float64) { fmt.Printf("%s %s %.3f\n", work, unit, v) }

// cpu is that of the whole process, the collector included.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(0, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano() + u.Stime.Nano())
}

// long is from a minute to a day.
func long(r *rand.Rand) time.Duration {
	return time.Minute + time.Duration(r.Int64N(int64(24*time.Hour-time.Minute)))
}

// loop runs op on all threads for d, and returns the CPU of one.
func loop(d time.Duration, threads int, op func(thread int, r *rand.Rand)) float64 {
	var total atomic.Int64
	var wg sync.WaitGroup
	c, begin := cpu(), time.Now()
	for t := range threads {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(t), uint64(begin.UnixNano())))
			n := int64(0)
			for ; time.Since(begin) < d; n += 64 {
				for range 64 {
					op(t, r)
				}
			}
			total.Add(n)
		})
	}
	wg.Wait()
	return (cpu() - c) / float64(total.Load())
}

func repeat(work string, threads int, op func(t int, r *rand.Rand)) {
	loop(200*time.Millisecond, threads, op)
	report(work, "cpu-ns/op", loop(400*time.Millisecond, threads, op))
}

func addAndCancel() {
	s.keep(million + 1)
	same := func(_ int, r *rand.Rand) {
		s.add(million, long(r), noop)
		s.cancel(million)
	}
	repeat("add0", 1, same)
	fill()
	repeat("add1M", 1, same)
	churn := func(i int, r *rand.Rand) {
		s.cancel(i)
		s.add(i, long(r), noop)
	}
	repeat("random", 1, func(_ int, r *rand.Rand) { churn(r.IntN(million), r) })
	repeat("threads", 2, func(t int, r *rand.Rand) { churn(t*million/2+r.IntN(million/2), r) })
}

func fill() {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range million {
		s.add(i, long(r), noop)
	}
}

// burst starts n timers due within the spread, all later than the last start, and returns the
// time that a start took.
func burst(tell bool, n int, spread time.Duration, cost int64) int64 {
	const every = 16
	s.keep(1)
	runtime.GC()
	late := make([]float64, (n+every-1)/every)
	var done, ended atomic.Int64
	c, begin := cpu(), time.Now()
	first := begin.Add(300*time.Millisecond + time.Duration(3*int64(n)*cost))
	last := first.Add(spread)
	count := func() {
		if done.Add(1) == int64(n) {
			ended.Store(int64(time.Since(last)))
		}
	}
	for i := range n {
		due, f := first.Add(spread*time.Duration(i)/time.Duration(n)), count
		if i%every == 0 {
			f = func() {
				late[i/every] = float64(time.Since(due))
				count()
			}
		}
		s.add(0, time.Until(due), f)
	}
	took, added := time.Since(begin), cpu()
	for ended.Load() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	used := cpu()
	if tell {
		report("fire", "cpu-ns/timer", (used-c)/float64(n))
		report("fire", "firing-ns/timer", (used-added)/float64(n))
		slices.Sort(late)
		report("fire", "p99-ms", late[len(late)*99/100]/1e6)
		report("fire", "last-ms", float64(ended.Load())/1e6)
	}
	return int64(took) / int64(n)
}

// early counts those of 20,000 timers of whole milliseconds that run sooner than their delay.
func early() {
	const n = 20_000
	s.keep(1)
	r := rand.New(rand.NewPCG(3, 4))
	var done, tooEarly atomic.Int64
	for i := range n {
		d := time.Duration(1+r.IntN(500)) * time.Millisecond
		if i%10 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		due := time.Now().Add(d)
		s.add(0, d, func() {
			if time.Now().Before(due) {
				tooEarly.Add(1)
			}
			done.Add(1)
		})
	}
	for done.Load() < n {
		time.Sleep(time.Millisecond)
	}
	report("early", "early", float64(tooEarly.Load()))
}

func live() float64 {
	runtime.GC()
	runtime.GC() // frees the rest of what pools kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// memory reports the memory that a million canceled timers hold, and that of a pending one,
// whose handle's slot is not counted.
func memory() {
	s.keep(million)
	hours := func(n int) {
		for range n {
			s.add(0, time.Hour, noop)
			s.cancel(0)
		}
	}
	hours(2000)
	before := live()
	hours(million)
	between := live()
	report("left", "MB", (between-before)/1e6)
	fill()
	report("memory", "B/timer", (live()-between)/million)
}

func idle(work string) {
	time.Sleep(300 * time.Millisecond)
	c := cpu()
	time.Sleep(1500 * time.Millisecond)
	report(work, "cpu-ms/s", (cpu()-c)/1.5e6)
}
