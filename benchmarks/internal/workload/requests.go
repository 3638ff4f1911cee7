package workload

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// requests is the price of a timeout in a server that does something else too.
func requests(size Size) Workload {
	const goroutines, config = 64, "work=5us"
	turns := pick(size, 25, 12, 1)
	spell := pick(size, 20*time.Millisecond, 10*time.Millisecond, time.Millisecond)
	return Workload{
		Name:  "Requests",
		Title: "Requests with a timeout",
		Shows: fmt.Sprintf("%d goroutines each start a timeout of 5 s, compute for 5 us and cancel it. "+
			"The same loop without a timeout takes turns with it in the same process, %d times each; the "+
			"price is the median difference for each request: of the processor time, and of the wall "+
			"time by GOMAXPROCS, in which the noise of the machine is twice. A context is made of "+
			"context.Background(), without its own goroutine; its price includes an allocation or more "+
			"which AfterFunc has no use for.", goroutines, turns),
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 50*time.Second, 8*time.Second, time.Second),
		Cases: []Case{{
			Name: "price", Configs: []string{config},
			Timeout: 15 * time.Second,
			Without: func(s subject.Subject) string {
				if s.Kind == subject.ContextMaker {
					return ""
				}
				return timersOnly(s)
			},
			Run: func(s subject.Subject, emit Emit) {
				measurePrice(s.New(subject.Options{}), config, goroutines, turns, spell, emit)
			},
		}},
		Tables: []Table{{Caption: "the price of a timeout", Columns: []Column{
			{Head: "CPU ns (ratio)", Config: config, Unit: "cpu-price-ns", Ratio: true},
			{Head: "wall ns (ratio)", Config: config, Unit: "price-ns", Ratio: true},
			{Head: "requests/s without", Config: config, Unit: "without/s"},
			{Head: "requests/s with", Config: config, Unit: "with/s"},
		}}},
		Headlines: []Headline{
			{Work: "what a timeout adds to a request: CPU", Subject: "wheel.Schedule", Config: config, Unit: "cpu-price-ns"},
			{Work: "what a context's timeout adds", Subject: "wheel.WithTimeout", Config: config, Unit: "cpu-price-ns"},
		},
	}
}

func measurePrice(t subject.Timers, config string, goroutines, turns int, spell time.Duration, emit Emit) {
	work := spin(5 * time.Microsecond)
	without := func() { work() }
	with := func() { t.Around(5*time.Second, noop, work) }
	serve(goroutines, spell, with) // warm
	var price, cpuPrice, withRate, withoutRate []float64
	n := 0
	for range turns {
		plain := serve(goroutines, spell, without)
		timed := serve(goroutines, spell, with)
		price = append(price, timed.wall-plain.wall)
		cpuPrice = append(cpuPrice, timed.cpu-plain.cpu)
		procs := float64(runtime.GOMAXPROCS(0)) * 1e9
		withRate = append(withRate, procs/timed.wall)
		withoutRate = append(withoutRate, procs/plain.wall)
		n += timed.n
	}
	emit(config, n, 0,
		result.Value{Value: result.Median(price), Unit: "price-ns"},
		result.Value{Value: result.Median(cpuPrice), Unit: "cpu-price-ns"},
		result.Value{Value: result.Median(withoutRate), Unit: "without/s"},
		result.Value{Value: result.Median(withRate), Unit: "with/s"})
}

// served is what a request took: nanoseconds of a processor's wall and CPU time.
type served struct {
	n         int
	wall, cpu float64
}

func serve(goroutines int, spell time.Duration, request func()) served {
	measure.Settle()
	var wg sync.WaitGroup
	var done atomic.Int64
	before := measure.CPU()
	for range goroutines {
		wg.Go(func() {
			n := 0
			for n == 0 || time.Since(before.Time) < spell {
				for range 32 {
					request()
				}
				n += 32
			}
			done.Add(int64(n))
		})
	}
	wg.Wait()
	after := measure.CPU()
	n := int(done.Load())
	return served{
		n:    n,
		wall: ns(after.Time.Sub(before.Time), n) * float64(runtime.GOMAXPROCS(0)),
		cpu:  ns(after.CPU-before.CPU, n),
	}
}

// sink keeps the compiler from dropping the work.
var sink atomic.Uint64

// spin returns work that takes about d on one processor and touches no memory.
func spin(d time.Duration) func() {
	rounds := 1000
	work := func() {
		x := uint64(rounds)
		for range rounds {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		if x == 0 { // never: xorshift keeps away from zero
			sink.Add(1)
		}
	}
	best := time.Duration(1 << 62)
	for range 20 { // the least of several is what it takes undisturbed
		start := time.Now()
		for range 20 {
			work()
		}
		best = min(best, time.Since(start)/20)
	}
	rounds = max(1, int(float64(rounds)*float64(d)/float64(best)))
	return work
}
