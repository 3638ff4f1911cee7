package workload

import (
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// atOnce is how long it takes from a start to the run of a timer that is due now.
func atOnce(size Size) Workload {
	spell := pick(size, 200*time.Millisecond, 80*time.Millisecond, time.Millisecond)
	const config = "delay=0"
	return Workload{
		Name:  "AtOnce",
		Title: "Timers that are due at once",
		Shows: "One goroutine starts a timer with a delay of zero, waits for it to run, and starts the next. " +
			"What it does not take from the processor, it waits: for a goroutine to be woken, or for the " +
			"next tick of those that round up.",
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 15*time.Second, 4*time.Second, time.Second),
		Cases: []Case{{
			Name: config, Configs: []string{config},
			Timeout: 20 * time.Second,
			Without: firing,
			Run: func(s subject.Subject, emit Emit) {
				t := s.New(subject.Options{})
				done := make(chan struct{})
				f := func() { done <- struct{}{} }
				measure.Settle()
				before, ops := measure.Now(), 0
				for time.Since(before.Time) < spell {
					t.Add(0, f)
					<-done
					ops++
				}
				emit(config, ops, 1, perOp(before, measure.Now(), ops)...)
			},
		}},
		Tables: []Table{{Caption: "ns from one start to the next", Columns: []Column{
			{Head: "wall ns (ratio)", Config: config, Unit: "ns/op", Ratio: true},
			{Head: "CPU ns (ratio)", Config: config, Unit: "cpu-ns/op", Ratio: true},
		}}},
		Headlines: []Headline{{
			Work: "AfterFunc(0) and waiting for it", Subject: "wheel.AfterFunc", Config: config, Unit: "ns/op",
		}},
	}
}
