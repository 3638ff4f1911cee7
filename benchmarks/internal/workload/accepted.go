package workload

import (
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/measure"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

// accepted are the timers of a server whose accept loop makes them all.
func accepted(size Size) Workload {
	most := pick(size, 100_000, 100_000, 256)
	spell := pick(size, 250*time.Millisecond, 80*time.Millisecond, time.Millisecond)
	widths := []int{2, 16, 128}
	config := func(goroutines int) string { return fmt.Sprintf("goroutines=%d", goroutines) }
	c := Case{
		Name: "push back", Timeout: 20 * time.Second,
		Without: timersOnly,
		Run: func(s subject.Subject, emit Emit) {
			n := s.BearsOften(most)
			for _, goroutines := range widths {
				t := s.New(subject.Options{})
				t.Keep(n)
				for i := range n {
					t.Set(i, time.Minute, noop)
				}
				measure.Settle()
				before := measure.Now()
				ops := pushFromOthers(t, n, goroutines, spell)
				emit(config(goroutines), ops, n, perOp(before, measure.Now(), ops)...)
				for i := range n {
					t.Cancel(i)
				}
				t.Stop()
			}
		},
	}
	w := Workload{
		Name:  "Accepted",
		Title: "Timers that one goroutine makes and others push back",
		Shows: fmt.Sprintf("One goroutine makes %s timers of 60 s, as an accept loop does. Then so many others "+
			"push them back at random for %v, each those of its own part. The time is the wall's divided by "+
			"the pushes of all. Who has no Reset cancels and adds, and so takes the timers over: those rows "+
			"are another work.", Count(most), spell),
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 60*time.Second, 8*time.Second, time.Second),
	}
	table := Table{Caption: "ns for each push (ratio)"}
	for _, goroutines := range widths {
		c.Configs = append(c.Configs, config(goroutines))
		table.Columns = append(table.Columns,
			Column{Head: fmt.Sprintf("%d goroutines", goroutines), Config: config(goroutines), Unit: "ns/op", Ratio: true},
			Column{Head: "CPU ns", Config: config(goroutines), Unit: "cpu-ns/op", Ratio: true})
	}
	w.Cases, w.Tables = []Case{c}, []Table{table}
	w.Headlines = []Headline{{
		Work:    Count(most) + " timers of one goroutine, Reset by 16 others",
		Subject: "wheel.AfterFunc", Config: config(16), Unit: "ns/op",
	}}
	return w
}

func pushFromOthers(t subject.Timers, n, goroutines int, spell time.Duration) int {
	push := func(i int) {
		t.Cancel(i)
		t.Set(i, time.Minute, noop)
	}
	if t.CanReset() {
		push = func(i int) { t.Reset(i, time.Minute) }
	}
	return onEach(goroutines, spell, func(g int) func() {
		from, to, r := n*g/goroutines, n*(g+1)/goroutines, seeded(g)
		return func() { push(from + r.IntN(to-from)) }
	})
}
