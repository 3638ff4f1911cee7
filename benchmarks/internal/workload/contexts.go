package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
)

const (
	contextErr  = "op=err"
	contextDone = "op=done"
)

func contextConfig(pending int, parent string, look bool) string {
	return fmt.Sprintf("pending=%d/parent=%s/done=%t", pending, parent, look)
}

// contexts are timeouts in the form in which most Go programs know them.
func contexts(size Size) Workload {
	sizes := pick(size, []int{0, 1_000_000}, []int{0, 100_000}, []int{0, 100})
	spell := pick(size, 100*time.Millisecond, 50*time.Millisecond, time.Millisecond)
	w := Workload{
		Name:  "Contexts",
		Title: "Contexts with a timeout",
		Shows: "One goroutine makes a context with a timeout and cancels it, beside so many pending " +
			"timers that run a function: below context.Background(), and below a parent that can be " +
			"canceled, in which each context is noted. With Done, it asks for the channel in between, " +
			"which is made only then. The last two columns are Err and Done of one context, called in a " +
			"loop.",
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 30*time.Second, 6*time.Second, time.Second),
	}
	for _, n := range sizes {
		c := Case{
			Name: pending(n), Timeout: 20 * time.Second, Without: only(subject.ContextMaker),
			Run: func(s subject.Subject, emit Emit) { measureContexts(s, n, spell, emit) },
		}
		table := Table{Caption: Count(n) + " pending, ns for each context (ratio)"}
		for _, parent := range []string{"background", "cancelable"} {
			for _, look := range []bool{false, true} {
				head := parent
				if look {
					head += ", Done"
				}
				config := contextConfig(n, parent, look)
				c.Configs = append(c.Configs, config)
				table.Columns = append(table.Columns, Column{Head: head, Config: config, Unit: "ns/op", Ratio: true})
			}
		}
		config := contextConfig(n, "background", false)
		table.Columns = append(table.Columns,
			Column{Head: "B", Config: config, Unit: "B/op"}, Column{Head: "allocs", Config: config, Unit: "allocs/op"})
		if n == 0 {
			c.Configs = append(c.Configs, contextErr, contextDone)
			table.Columns = append(table.Columns,
				Column{Head: "Err()", Config: contextErr, Unit: "ns/op", Ratio: true},
				Column{Head: "Done()", Config: contextDone, Unit: "ns/op", Ratio: true})
		}
		w.Cases, w.Tables = append(w.Cases, c), append(w.Tables, table)
	}
	w.Headlines = []Headline{
		{
			Work: "WithTimeout and cancel, nothing pending", Subject: "wheel.WithTimeout",
			Config: contextConfig(0, "background", false), Unit: "ns/op",
		},
		{
			Work: "the same below a cancelable parent, with Done", Subject: "wheel.WithTimeout",
			Config: contextConfig(0, "cancelable", true), Unit: "ns/op",
		},
	}
	return w
}

func measureContexts(s subject.Subject, n int, spell time.Duration, emit Emit) {
	t := s.New(subject.Options{}).(subject.Contexts)
	fill(t, n)
	cancelable, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := seeded(n)
	for _, parent := range []string{"background", "cancelable"} {
		above := context.Background()
		if parent == "cancelable" {
			above = cancelable
		}
		for _, look := range []bool{false, true} {
			ops, values := timed(spell, func() {
				ctx, cancel := t.WithTimeout(above, farOff(r))
				if look {
					ctx.Done()
				}
				cancel()
			})
			emit(contextConfig(n, parent, look), ops, n, values...)
		}
	}
	if n > 0 {
		return
	}
	ctx, cancelOne := t.WithTimeout(cancelable, time.Hour)
	defer cancelOne()
	live := 0
	ops, values := timed(spell, func() {
		if ctx.Err() == nil {
			live++
		}
	})
	emit(contextErr, ops, n, values...)
	ops, values = timed(spell, func() {
		if ctx.Done() != nil {
			live++
		}
	})
	emit(contextDone, ops, n, values...)
	sink.Add(uint64(live))
}
