package timingwheel

import (
	"testing"
	"time"
	"math/rand/v2"
	"sync/atomic"
	"fmt"
	"runtime"
)
func noop2(){}
func TestSmoke(t *testing.T) {
	w := New(); defer w.Stop()
	c := make(chan time.Duration, 10)
	s := time.Now()
	for _, d := range []time.Duration{0, 5*time.Millisecond, 700*time.Millisecond} {
		w.Schedule(d, func(){ c <- time.Since(s)-d })
	}
	for range 3 { fmt.Println(<-c) }
}
func BenchmarkW(b *testing.B) {
	for _, n := range []int{0, 1_000_000, 10_000_000} {
		w := New()
		for range n { w.Schedule(time.Minute+time.Duration(rand.Int64N(int64(24*time.Hour))), noop2) }
		b.Run(fmt.Sprint("sched/",n), func(b *testing.B){ b.ReportAllocs(); r := rand.New(rand.NewPCG(1,2)); for b.Loop() {
			t,_ := w.Schedule(time.Minute+time.Duration(r.Int64N(int64(24*time.Hour))), noop2); t.Cancel() } })
		w.Stop()
	}
	for _, n := range []int{0, 1_000_000} {
		ts := make([]*time.Timer, n)
		for i := range n { ts[i]=time.AfterFunc(time.Minute+time.Duration(rand.Int64N(int64(24*time.Hour))), noop2) }
		b.Run(fmt.Sprint("time/",n), func(b *testing.B){ b.ReportAllocs();  r := rand.New(rand.NewPCG(1,2)); for b.Loop() {
			time.AfterFunc(time.Minute+time.Duration(r.Int64N(int64(24*time.Hour))), noop2).Stop() } })
		for _, t := range ts { t.Stop() }
	}
	for _, p := range []int{1,8,64} {
		w := New()
		for range 1000000 { w.Schedule(time.Minute+time.Duration(rand.Int64N(int64(24*time.Hour))), noop2) }
		b.Run(fmt.Sprint("par sched/",p), func(b *testing.B){ b.SetParallelism(p); b.RunParallel(func(pb *testing.PB){ 
			r := rand.New(rand.NewPCG(1,2))
			for pb.Next() { t,_ := w.Schedule(time.Minute+time.Duration(r.Int64N(int64(24*time.Hour))), noop2); t.Cancel() } })})
		b.Run(fmt.Sprint("par time/",p), func(b *testing.B){ b.SetParallelism(p); b.RunParallel(func(pb *testing.PB){ 
			r := rand.New(rand.NewPCG(1,2))
			for pb.Next() { time.AfterFunc(time.Minute+time.Duration(r.Int64N(int64(24*time.Hour))), noop2).Stop() } })})
		w.Stop()
	}
}
func TestFire(t *testing.T) {
	for range 3 {
	w := New()
	var n atomic.Int64
	const N = 1_000_000
	late := make([]time.Duration, N)
	s := time.Now()
	f := func() { late[n.Add(1)-1] = time.Since(s) }
	for i := range N { w.Schedule(200*time.Millisecond+ time.Duration(i)*time.Microsecond, f) }
	add := time.Since(s)
	for k := 0; n.Load() < N; k++ { time.Sleep(time.Millisecond); if k == 3000 { q := w.driver.executor.(*runQueue); _, at, ok := w.driver.queue.Peek(); fmt.Println(n.Load(), w.Len(), w.driver.queue.Len(), at.Sub(s), ok, len(q.tasks), q.head, q.successor); break } }
	fmt.Println("add", add/N, "all", time.Since(s), runtime.NumGoroutine())
	w.Stop()
	}
}
