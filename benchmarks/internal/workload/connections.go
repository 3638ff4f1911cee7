package workload

import (
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// connections are idle timeouts: pushed back with all traffic, hardly ever due.
func connections(size Size) Workload {
	most := pick(size, 100_000, 100_000, 100)
	spell := pick(size, 250*time.Millisecond, 80*time.Millisecond, time.Millisecond)
	const reset, replace = "op=reset", "op=cancel+add"
	return Workload{
		Name:  "Connections",
		Title: "Idle connections",
		Shows: "There are " + Count(most) + " timers of 60 s, and one at random is pushed back to 60 s " +
			"from now: by Reset, or by a cancel and an add. Package time does not move a timer that is " +
			"set to a later time until its old time comes or it reaches the top of the heap, which is " +
			"the cheapest that a Reset can be.",
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 25*time.Second, 5*time.Second, time.Second),
		Cases: []Case{{
			Name: "push back", Configs: []string{reset, replace},
			Timeout: 15 * time.Second,
			Without: timersOnly,
			Run: func(s subject.Subject, emit Emit) {
				n := s.BearsOften(most)
				t := s.New(subject.Options{})
				t.Keep(n)
				for i := range n {
					t.Set(i, time.Minute, noop)
				}
				if t.CanReset() {
					pushBack(n, spell, reset, emit, func(i int) { t.Reset(i, time.Minute) })
				}
				pushBack(n, spell, replace, emit, func(i int) {
					t.Cancel(i)
					t.Set(i, time.Minute, noop)
				})
			},
		}},
		Tables: []Table{{Caption: "ns for each push (ratio)", Columns: []Column{
			{Head: "Reset", Config: reset, Unit: "ns/op", Ratio: true},
			{Head: "its CPU ns", Config: reset, Unit: "cpu-ns/op", Ratio: true},
			{Head: "cancel + add", Config: replace, Unit: "ns/op", Ratio: true},
			{Head: "its CPU ns", Config: replace, Unit: "cpu-ns/op", Ratio: true},
			{Head: "its B", Config: replace, Unit: "B/op"},
		}}},
	}
}

func pushBack(n int, spell time.Duration, config string, emit Emit, push func(i int)) {
	r := seeded(n)
	measure.Settle()
	before, ops := measure.Now(), 0
	for time.Since(before.Time) < spell {
		for range 128 {
			push(r.IntN(n))
		}
		ops += 128
	}
	emit(config, ops, n, perOp(before, measure.Now(), ops)...)
}
