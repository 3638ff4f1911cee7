package workload

import (
	"runtime"
	"time"
	"weak"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// Memory is the name of the workload whose bytes a chart shows.
const Memory = "Memory"

// PendingShared is the configuration of n timers that share one function.
func PendingShared(n int) string { return pending(n) + "/functions=one" }

func pendingClosures(n int) string { return pending(n) + "/functions=each" }

// pendingKept is as PendingShared, with the handles kept.
func pendingKept(n int) string { return PendingShared(n) + "/handles=kept" }

// memory is what a pending timer costs to hold: bytes, and time of collections.
func memory(size Size) Workload {
	sizes := pick(size, []int{1_000_000, 5_000_000}, []int{200_000}, []int{1000})
	const retained = "retained"
	w := Workload{
		Name:  Memory,
		Title: "Add only: memory and collections",
		Shows: "One goroutine starts timers that share one function, or have a closure each that " +
			"captures an integer (24 bytes more for every subject). Bytes are those of live objects " +
			"after a collection: without the handles, and with one function and the handles kept in a " +
			"slice, which is counted; a handle of wheel.AfterFunc is an object of its own, which the " +
			"wheel does not need to fire. GC is the shortest of three full collections, on an otherwise " +
			"idle process: the time of the collection, most of it beside the program, not a pause. " +
			"Retained is the share of 20,000 closures of canceled timers that are still reachable after " +
			"two collections, when no handle is left.",
		Rounds: pick(size, 3, 2, 1),
		Share:  pick(size, 70*time.Second, 6*time.Second, time.Second),
	}
	most := sizes[len(sizes)-1]
	w.Headlines = []Headline{
		{Work: "bytes of each of " + Count(most) + " pending", Subject: "wheel.Schedule", Config: PendingShared(most), Unit: "B/timer"},
		{Work: "one garbage collection with these", Subject: "wheel.Schedule", Config: PendingShared(most), Unit: "gc-ms"},
	}
	for i, n := range sizes {
		table := Table{Caption: Count(n) + " pending"}
		for _, config := range []string{PendingShared(n), pendingKept(n), pendingClosures(n)} {
			w.Cases = append(w.Cases, Case{
				Name: config, Configs: []string{config}, Rounds: pick(size, []int{0, 1}, []int{0}, []int{0})[i],
				Timeout: pick(size, 40*time.Second, 15*time.Second, 15*time.Second),
				Without: memoryWithout,
				Run: func(s subject.Subject, emit Emit) {
					if s.Bears(n) == n {
						measurePending(s, config, n, emit)
					}
				},
			})
		}
		table.Columns = []Column{
			{Head: "add, ns", Config: PendingShared(n), Unit: "ns/op", Ratio: true},
			{Head: "bytes, one function", Config: PendingShared(n), Unit: "B/timer", Ratio: true},
			{Head: "with handles", Config: pendingKept(n), Unit: "B/timer", Ratio: true},
			{Head: "bytes, a closure each", Config: pendingClosures(n), Unit: "B/timer", Ratio: true},
			{Head: "GC ms, one function", Config: PendingShared(n), Unit: "gc-ms", Ratio: true},
			{Head: "GC ms, a closure each", Config: pendingClosures(n), Unit: "gc-ms", Ratio: true},
		}
		if i == 0 {
			table.Columns = append(table.Columns, Column{Head: "retained %", Config: retained, Unit: "retained-%"})
		}
		w.Tables = append(w.Tables, table)
	}
	w.Cases = append(w.Cases, Case{
		Name: retained, Configs: []string{retained}, Rounds: 1,
		Timeout: 15 * time.Second,
		Without: memoryWithout,
		Run: func(s subject.Subject, emit Emit) {
			n := s.Bears(pick(size, 20_000, 20_000, 100))
			emit(retained, n, n, result.Value{Value: 100 * float64(retainedClosures(s, n)) / float64(n), Unit: "retained-%"})
		},
	})
	return w
}

// memoryWithout leaves out the inline rows too, since nothing fires.
func memoryWithout(s subject.Subject) string {
	if inline(s) {
		return NotHere
	}
	return firing(s)
}

func measurePending(s subject.Subject, config string, n int, emit Emit) {
	t := s.New(subject.Options{})
	t.AddCancel(time.Hour, noop)
	closures, keep := config == pendingClosures(n), config == pendingKept(n)
	r := seeded(n)
	sum := 0
	heap := measure.HeapBytes()
	if keep {
		t.Keep(n)
	}
	before := time.Now()
	for i := range n {
		f := noop
		if closures {
			f = func() { sum += i }
		}
		if keep {
			t.Set(i, farOff(r), f)
		} else {
			t.Add(farOff(r), f)
		}
	}
	took := time.Since(before)
	heap = measure.HeapBytes() - heap
	gc := time.Duration(1 << 62)
	for range 3 {
		before := time.Now()
		runtime.GC()
		gc = min(gc, time.Since(before))
	}
	t.AddCancel(time.Hour, noop) // t is alive until here
	emit(config, n, n,
		result.Value{Value: ns(took, n), Unit: "ns/op"},
		result.Value{Value: heap / float64(n), Unit: "B/timer"},
		result.Value{Value: measure.Ms(gc), Unit: "gc-ms"})
}

// retainedClosures cancels n timers with a closure of a kilobyte each, and returns
// how many of these are still there.
func retainedClosures(s subject.Subject, n int) int {
	t := s.New(subject.Options{})
	t.Keep(n)
	held := make([]weak.Pointer[[1024]byte], n)
	for i := range n {
		payload := new([1024]byte)
		held[i] = weak.Make(payload)
		t.Set(i, time.Hour, func() { payload[0]++ })
	}
	for i := range n {
		t.Cancel(i)
	}
	t.Keep(0)
	measure.Settle()
	alive := 0
	for _, p := range held {
		if p.Value() != nil {
			alive++
		}
	}
	t.AddCancel(time.Hour, noop)
	return alive
}
