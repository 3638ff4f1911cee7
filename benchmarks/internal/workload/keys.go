package workload

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// keys are sessions by their names: one pending function for each.
func keys(size Size) Workload {
	n := pick(size, 100_000, 100_000, 100)
	spell := pick(size, 400*time.Millisecond, 150*time.Millisecond, time.Millisecond)
	widths := []int{1, 64}
	config := func(goroutines int) string { return fmt.Sprintf("goroutines=%d", goroutines) }
	c := Case{
		Name: "schedule", Timeout: 20 * time.Second, Without: only(subject.KeyMaker),
		Run: func(s subject.Subject, emit Emit) {
			for _, goroutines := range widths {
				t := s.New(subject.Options{}).(subject.Keys)
				measure.Settle()
				before := measure.Now()
				ops := scheduleKeys(t, n, goroutines, spell)
				emit(config(goroutines), ops, n, perOp(before, measure.Now(), ops)...)
				for key := range n {
					t.CancelKey(key)
				}
				t.Stop()
			}
		},
	}
	head := func(goroutines int) string {
		if goroutines == 1 {
			return "1 goroutine"
		}
		return fmt.Sprintf("%d goroutines", goroutines)
	}
	table := Table{Caption: "ns an operation (ratio)"}
	for _, goroutines := range widths {
		c.Configs = append(c.Configs, config(goroutines))
		table.Columns = append(table.Columns,
			Column{Head: head(goroutines), Config: config(goroutines), Unit: "ns/op", Ratio: true},
			Column{Head: "CPU ns", Config: config(goroutines), Unit: "cpu-ns/op", Ratio: true})
	}
	return Workload{
		Name:  "Keys",
		Title: "One pending function for each key",
		Shows: fmt.Sprintf("Goroutines schedule one of %s keys at random by a minute, in place of what it "+
			"had, three times of four; the fourth time they cancel it. It lasts %v, and begins without a "+
			"key.", Count(n), spell),
		Rounds:    pick(size, 5, 3, 1),
		Share:     pick(size, 20*time.Second, 4*time.Second, time.Second),
		Cases:     []Case{c},
		Tables:    []Table{table},
		Headlines: []Headline{{Work: "Keyed: an operation, 64 goroutines", Subject: "wheel.Keyed", Config: config(64), Unit: "ns/op"}},
	}
}

func scheduleKeys(t subject.Keys, n, goroutines int, spell time.Duration) int {
	return onEach(goroutines, spell, func(g int) func() {
		r := seeded(g)
		return func() {
			if key := r.IntN(n); r.IntN(4) == 0 {
				t.CancelKey(key)
			} else {
				t.ScheduleKey(key, time.Minute, noop)
			}
		}
	})
}
