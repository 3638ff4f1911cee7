package workload

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// addCancel is the growth of the cost with what is pending: flat for a wheel,
// logarithmic for a heap, linear for a sorted list.
func addCancel(size Size) Workload {
	sizes := pick(size,
		[]int{0, 10_000, 100_000, 1_000_000, 10_000_000},
		[]int{0, 10_000, 100_000},
		[]int{0, 1000})
	spell := pick(size, 150*time.Millisecond, 80*time.Millisecond, time.Millisecond)
	last := len(sizes) - 1
	return Workload{
		Name:  AddCancel,
		Title: "Add and cancel, beside so many pending",
		Shows: fmt.Sprintf("One goroutine starts a timer and cancels it, beside others that are pending, "+
			"with delays uniform from a minute to a day. The pending grow from one size to the next "+
			"within a process; %s have one of their own, in two rounds at most. A measurement lasts %v "+
			"or, if the subject makes garbage, until that has been collected, so that each pays for its "+
			"own. A random time moves up two places of a binary heap on average, however large it is, "+
			"and neither package time nor the heap here takes a canceled timer out at once: their "+
			"logarithm is paid where timers come to the top.", Count(sizes[last]), spell),
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 100*time.Second, 9*time.Second, time.Second),
		Cases: []Case{
			addCancelCase("growing", sizes[:last], 0, spell),
			addCancelCase("most", sizes[last:], 2, spell),
		},
		Tables: addCancelTables(sizes),
		Headlines: []Headline{
			{Work: "Schedule and Cancel, nothing pending", Subject: "wheel.Schedule", Config: pending(0), Unit: "ns/op"},
			{
				Work: "the same, " + Count(sizes[last]) + " pending", Subject: "wheel.Schedule",
				Config: pending(sizes[last]), Unit: "ns/op",
			},
			{
				Work: "AfterFunc and Stop, " + Count(sizes[last]) + " pending", Subject: "wheel.AfterFunc",
				Config: pending(sizes[last]), Unit: "ns/op",
			},
		},
	}
}

func addCancelCase(name string, sizes []int, rounds int, spell time.Duration) Case {
	c := Case{
		Name:    name,
		Rounds:  rounds,
		Timeout: time.Minute,
		Without: timersOnly,
		Run: func(s subject.Subject, emit Emit) {
			t := s.New(subject.Options{})
			have := 0
			for _, n := range sizes {
				if s.Bears(n) < n {
					break
				}
				fill(t, n-have)
				have = n
				measureAddCancel(t, n, spell, emit)
			}
		},
	}
	for _, n := range sizes {
		c.Configs = append(c.Configs, pending(n))
	}
	return c
}

// AddCancel is the name of the workload whose growth the chart shows.
const AddCancel = "AddCancel"

func pending(n int) string { return fmt.Sprintf("pending=%d", n) }

func measureAddCancel(t subject.Timers, n int, spell time.Duration, emit Emit) {
	r := seeded(n)
	for range 100 {
		t.AddCancel(farOff(r), noop) // the first pages and levels are not what is measured
	}
	ops, values := timed(spell, func() { t.AddCancel(farOff(r), noop) })
	emit(pending(n), ops, n, values...)
}

func addCancelTables(sizes []int) []Table {
	times := Table{Caption: "ns an operation (ratio to time.AfterFunc)"}
	cpu := Table{Caption: "ns of processor time an operation, collections included (ratio), and allocations"}
	for _, n := range sizes {
		times.Columns = append(times.Columns, Column{Head: Count(n), Config: pending(n), Unit: "ns/op", Ratio: true})
		cpu.Columns = append(cpu.Columns, Column{Head: Count(n), Config: pending(n), Unit: "cpu-ns/op", Ratio: true})
	}
	least, most := sizes[1], sizes[len(sizes)-1]
	if least != most {
		times.Columns = append(times.Columns, Column{
			Head: Count(most) + " over " + Count(least), Config: pending(most), Unit: "ns/op", Over: pending(least),
		})
	}
	cpu.Columns = append(cpu.Columns,
		Column{Head: "B", Config: pending(least), Unit: "B/op"},
		Column{Head: "allocs", Config: pending(least), Unit: "allocs/op"})
	return []Table{times, cpu}
}
