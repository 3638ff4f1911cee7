package workload

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// parallel is what callers on all processors cost each other.
func parallel(size Size) Workload {
	most := pick(size, 1_000_000, 100_000, 1000)
	procs := pick(size, []int{1, 2, 4, 8, 16}, []int{1, 2, 4}, []int{2})
	widths := []int{1, 8, 64}
	spell := pick(size, 200*time.Millisecond, 60*time.Millisecond, time.Millisecond)
	w := Workload{
		Name:  "Parallel",
		Title: "The same with all processors busy",
		Shows: fmt.Sprintf("Beside %s pending, with 1, 8 and 64 goroutines for each of GOMAXPROCS, all "+
			"adding and canceling for %v. The time is the wall's divided by the operations of all, so "+
			"with two processors half of it would be perfect scaling. A GOMAXPROCS above the machine's "+
			"processors shows what happens when the holder of a lock is taken off its processor by the "+
			"system; 8 and 16 are run once, for information.", Count(most), spell),
		Rounds: pick(size, 3, 2, 1),
		Share:  pick(size, 70*time.Second, 9*time.Second, time.Second),
	}
	for _, p := range procs {
		table := Table{Caption: fmt.Sprintf("GOMAXPROCS=%d, ns an operation (ratio)", p)}
		c := Case{
			Name: fmt.Sprintf("procs=%d", p), Procs: p,
			Timeout: pick(size, 30*time.Second, 10*time.Second, 10*time.Second),
			Without: timersOnly,
		}
		if p > 4 {
			c.Rounds = 1
		}
		config := func(width int) string { return fmt.Sprintf("procs=%d/goroutines=%d", p, width) }
		for _, width := range widths {
			c.Configs = append(c.Configs, config(width))
			table.Columns = append(table.Columns,
				Column{Head: fmt.Sprintf("%d each", width), Config: config(width), Unit: "ns/op", Ratio: true})
		}
		table.Columns = append(table.Columns, Column{Head: "cpu-ns, 8 each", Config: config(8), Unit: "cpu-ns/op", Ratio: true})
		c.Run = func(s subject.Subject, emit Emit) {
			n := s.BearsOften(most)
			t := s.New(subject.Options{})
			fill(t, n)
			for _, width := range widths {
				measure.Settle()
				before := measure.Now()
				ops := onEach(width*p, spell, addCancels(t))
				emit(config(width), ops, n, perOp(before, measure.Now(), ops)...)
			}
		}
		w.Cases, w.Tables = append(w.Cases, c), append(w.Tables, table)
		if p == 2 {
			w.Headlines = []Headline{{
				Work: "Schedule and Cancel on two processors, 8 goroutines each", Subject: "wheel.Schedule",
				Config: config(8), Unit: "ns/op",
			}}
		}
	}
	return w
}

// addCancels returns what the g-th goroutine of a crowd does again and again.
func addCancels(t subject.Timers) func(g int) func() {
	return func(g int) func() {
		r := seeded(g)
		return func() { t.AddCancel(farOff(r), noop) }
	}
}
