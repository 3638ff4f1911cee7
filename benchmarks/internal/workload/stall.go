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

const stallSlots = 512

// stall is how long an add may take while a wheel moves a million timers from a
// coarse bucket to finer ones.
func stall(size Size) Workload {
	most := pick(size, 1_000_000, 100_000, 100)
	tick := pick(size, 4*time.Millisecond, 2*time.Millisecond, time.Millisecond)
	const config = "beside=cascade"
	return Workload{
		Name:  "Stall",
		Title: "The longest add during a cascade",
		Shows: fmt.Sprintf("On wheels of %d slots of %v, %s timers are due at the same moment, and so "+
			"lie in one coarse bucket, which is moved to the finer wheel a second or two before they are "+
			"due. From 10 ms before that for 160 ms, one goroutine adds and cancels, and each add is "+
			"timed. go-zero has no coarse wheels: it walks the slot in which they lie once a round. "+
			"Package time and the heap have no cascade: theirs are adds at the same times, beside as "+
			"many pending. Two processors are shared by the adder and the driver, and on a machine that "+
			"has other things to do the longest add may be the system's doing.", stallSlots, tick, Count(most)),
		Rounds: pick(size, 5, 1, 1),
		Share:  pick(size, 60*time.Second, 10*time.Second, time.Second),
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
				took := besideCascade(s, n, tick)
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
func besideCascade(s subject.Subject, n int, tick time.Duration) []time.Duration {
	t := s.New(subject.Options{Tick: tick, Slots: stallSlots})
	// A coarse bucket spans a whole round of the finer wheel, and is moved when its
	// span begins. They are due near its end.
	span := stallSlots * tick
	cascade := time.Now().Add(span)
	due := cascade.Add(span * 15 / 16)
	switch s.Name {
	case "RussellLuo": // its spans are those since 1970
		now := time.Now()
		since := now.Add(span * 3 / 5).UnixNano()
		cascade = now.Add(span*3/5 + span - time.Duration(since)%span)
		due = cascade.Add(span * 15 / 16)
	case "go-zero": // it passes the slot a round before they are due
		cascade = due.Add(-span)
	}
	startAll(t, n, due)
	measure.Settle()
	if time.Now().After(cascade.Add(-10 * time.Millisecond)) {
		fail("the load generator was too slow, on a busy machine: the cascade began before all had been started")
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
