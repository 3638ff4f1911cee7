package workload

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
)

// timed calls op again and again for a spell, and returns how often, and what one call
// has used.
//
// A subject that makes garbage pays for it in the end, and with much pending that is later than in
// a spell. So a spell in which there is garbage goes on until that has been collected,
// for twenty spells at most.
func timed(spell time.Duration, op func()) (ops int, each []result.Value) {
	measure.Settle()
	before := measure.Now()
	for time.Since(before.Time) < spell {
		for range 128 {
			op()
		}
		ops += 128
	}
	if so := measure.Now(); so.Bytes-before.Bytes > uint64(ops) {
		for measure.Collections() == before.Collections && time.Since(before.Time) < 20*spell {
			for range 1024 {
				op()
			}
			ops += 1024
		}
	}
	return ops, perOp(before, measure.Now(), ops)
}

// onEach runs so many goroutines for a spell, each of which calls again and again the
// function that op returns for its number. It returns how many calls there were.
func onEach(goroutines int, spell time.Duration, op func(g int) func()) int {
	var wg sync.WaitGroup
	var ops atomic.Int64
	start := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			f, mine := op(g), 0
			for mine == 0 || time.Since(start) < spell {
				for range 64 {
					f()
				}
				mine += 64
			}
			ops.Add(int64(mine))
		})
	}
	wg.Wait()
	return int(ops.Load())
}

// startOver calls start n times, all over a period.
func startOver(n int, period time.Duration, start func()) {
	begin := time.Now()
	for i := range n {
		if i%100 == 0 {
			time.Sleep(time.Until(begin.Add(period * time.Duration(i) / time.Duration(n))))
		}
		start()
	}
}

// perOp returns what one of n operations has used.
func perOp(before, after measure.Usage, n int) []result.Value {
	return []result.Value{
		{Value: ns(after.Time.Sub(before.Time), n), Unit: "ns/op"},
		{Value: ns(after.CPU-before.CPU, n), Unit: "cpu-ns/op"},
		{Value: float64(after.Bytes-before.Bytes) / float64(n), Unit: "B/op"},
		{Value: float64(after.Allocs-before.Allocs) / float64(n), Unit: "allocs/op"},
	}
}
