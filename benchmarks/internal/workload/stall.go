package workload

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// The wheels of the workload Stall have 512 slots of 4 ms, so that a coarse bucket
// spans 2.048 s.
const (
	stallTick  = 4 * time.Millisecond
	stallSlots = 512
	stallSpan  = stallSlots * stallTick
)

// stall is how long an add may take while a wheel moves a million timers from a
// coarse bucket to finer ones.
func stall(size Size) Workload {
	most := pick(size, 1_000_000, 100_000, 100)
	const config = "beside=cascade"
	return Workload{
		Name:  "Stall",
		Title: "The longest add during a cascade",
		Shows: fmt.Sprintf("On wheels of %d slots of %v, %s timers are due at the same moment, and so lie in one coarse bucket, "+
			"which is moved to the finer wheel some seconds before they are due. From 10 ms before that for 160 ms, one "+
			"goroutine adds and cancels, and each add is timed. go-zero has no coarse wheels: it walks the slot in which they "+
			"lie once a round. Package time and the heap have no cascade: theirs are adds at the same times, beside as many "+
			"pending. Two processors are shared by the adder and the driver, and on a machine that has other things to do the "+
			"longest add may be the system's doing.", stallSlots, stallTick, Count(most)),
		Rounds: pick(size, 5, 1, 1),
		Share:  pick(size, 65*time.Second, 17*time.Second, time.Second),
		Cases: []Case{{
			Name: config, Configs: []string{config},
			Timeout: 15 * time.Second,
			Without: func(s subject.Subject) string {
				if s.Name == "gost" {
					return "its slots are minutes and hours, and its first cascade comes after a minute"
				}
				return timersOnly(s)
			},
			Run: func(s subject.Subject, emit Emit) {
				n := most
				if s.Most > 0 {
					n = min(n, s.Most/5) // to be started before the cascade begins
				}
				took := besideCascade(s, n)
				emit(config, len(took), n,
					result.Value{Value: measure.Ms(measure.Percentile(took, 50)) * 1000, Unit: "p50-us"},
					result.Value{Value: measure.Ms(measure.Percentile(took, 99.9)) * 1000, Unit: "p99.9-us"},
					result.Value{Value: measure.Ms(took[len(took)-1]) * 1000, Unit: "max-us"},
					result.Value{Value: float64(len(took)), Unit: "adds"})
			},
		}},
		Tables: []Table{{Caption: "microseconds of an add", Columns: []Column{
			{Head: "p50", Config: config, Unit: "p50-us"},
			{Head: "p99.9 (ratio)", Config: config, Unit: "p99.9-us", Ratio: true},
			{Head: "longest (ratio)", Config: config, Unit: "max-us", Ratio: true},
			{Head: "adds", Config: config, Unit: "adds"},
		}}},
	}
}

// besideCascade returns how long the adds took, sorted.
func besideCascade(s subject.Subject, n int) []time.Duration {
	t := s.New(subject.Options{Tick: stallTick, Slots: stallSlots})
	boundary := time.Now().Add(stallSpan)
	cascade, due := boundary, boundary.Add(1900*time.Millisecond)
	switch s.Name {
	case "RussellLuo": // its buckets begin at multiples of their span since 1970
		span := stallSpan.Milliseconds()
		next := (time.Now().Add(1200*time.Millisecond).UnixMilli()/span + 1) * span
		cascade = time.Now().Add(time.Duration(next-time.Now().UnixMilli()) * time.Millisecond)
		due = cascade.Add(1900 * time.Millisecond)
	case "go-zero": // it passes the slot a round before they are due
		cascade = due.Add(-stallSpan)
	}
	startAll(t, n, due)
	measure.Settle()
	if time.Now().After(cascade.Add(-10 * time.Millisecond)) {
		panic("the cascade began before all had been started")
	}
	time.Sleep(time.Until(cascade.Add(-10 * time.Millisecond)))
	t.Keep(1)
	var took []time.Duration
	for end := cascade.Add(150 * time.Millisecond); time.Now().Before(end); {
		before := time.Now()
		t.Set(0, time.Hour, noop)
		took = append(took, time.Since(before))
		t.Cancel(0)
	}
	slices.Sort(took)
	return took
}

// startAll starts n timers that are due at the same moment, from all processors.
func startAll(t subject.Timers, n int, due time.Time) {
	var wg sync.WaitGroup
	procs := runtime.GOMAXPROCS(0)
	for p := range procs {
		wg.Go(func() {
			for range n*(p+1)/procs - n*p/procs {
				t.Add(time.Until(due), noop)
			}
		})
	}
	wg.Wait()
}
