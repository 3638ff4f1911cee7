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

// contextShape is what surrounds a context, and what is done with it before it is canceled.
type contextShape struct {
	parent string
	use    string
}

// Below "cancelable" are all contexts of a process. "request" is a parent of the context's
// own, as each request of an http.Server has; it is made and ended too. A child is what
// http.Transport, database/sql and grpc derive from the context that they are given.
var contextShapes = []contextShape{
	{"background", "none"}, {"background", "done"}, {"background", "child"},
	{"cancelable", "none"}, {"cancelable", "done"}, {"cancelable", "child"},
	{"request", "none"}, {"request", "done"}, {"request", "child"},
}

func (c contextShape) config(pending int) string {
	return fmt.Sprintf("pending=%d/parent=%s/use=%s", pending, c.parent, c.use)
}

// run makes a context, uses it, and cancels it.
func (c contextShape) run(t subject.Contexts, above context.Context, d time.Duration) {
	if c.parent == "request" {
		request, end := context.WithCancel(above)
		defer end()
		above = request
	}
	ctx, cancel := t.WithTimeout(above, d)
	defer cancel()
	switch c.use {
	case "done":
		ctx.Done()
	case "child":
		child, cancelChild := context.WithCancel(ctx)
		child.Done()
		cancelChild()
	}
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
			"canceled, in which each context is noted, and below a parent of each one's own, as a request " +
			"has. With Done, it asks for the channel in between, which is made only then; with a child it " +
			"derives a context and asks that one for its channel. The last two columns are Err and Done of " +
			"one context, called in a loop. CPU is the process's, the collection of garbage included. In " +
			"the last two tables all contexts have Done. A parent of many is canceled, and then each of " +
			"them; and an HTTP server and its 8 clients, in one process, have a context for each request.",
		Rounds: pick(size, 5, 3, 1),
		Share:  pick(size, 90*time.Second, 6*time.Second, time.Second),
	}
	for _, n := range sizes {
		c := Case{
			Name: pending(n), Timeout: 20 * time.Second, Without: only(subject.ContextMaker),
			Run: func(s subject.Subject, emit Emit) { measureContexts(s, n, spell, emit) },
		}
		table := Table{Caption: Count(n) + " pending, CPU ns for each context (ratio)"}
		for _, shape := range contextShapes {
			head := shape.parent
			if shape.use != "none" {
				head += ", " + shape.use
			}
			c.Configs = append(c.Configs, shape.config(n))
			table.Columns = append(table.Columns, Column{Head: head, Config: shape.config(n), Unit: "cpu-ns/op", Ratio: true})
		}
		config := contextShapes[0].config(n)
		table.Columns = append(table.Columns,
			Column{Head: "B", Config: config, Unit: "B/op"}, Column{Head: "allocs", Config: config, Unit: "allocs/op"})
		if n == 0 {
			c.Configs = append(c.Configs, contextErr, contextDone)
			table.Columns = append(table.Columns,
				Column{Head: "Err()", Config: contextErr, Unit: "cpu-ns/op", Ratio: true},
				Column{Head: "Done()", Config: contextDone, Unit: "cpu-ns/op", Ratio: true})
		}
		w.Cases, w.Tables = append(w.Cases, c), append(w.Tables, table)
	}
	for _, more := range []func(Size) (Case, Table){parentCase, serverCase} {
		c, table := more(size)
		w.Cases, w.Tables = append(w.Cases, c), append(w.Tables, table)
	}
	for _, h := range []struct {
		work  string
		shape contextShape
	}{
		{"WithTimeout and cancel below Background: CPU of each", contextShape{"background", "none"}},
		{"the same, with Done", contextShape{"background", "done"}},
		{"the same below a parent that all share, with Done", contextShape{"cancelable", "done"}},
		{"the same below a request's own parent", contextShape{"request", "none"}},
		{"the same with Done", contextShape{"request", "done"}},
		{"the same with a derived child", contextShape{"request", "child"}},
	} {
		w.Headlines = append(w.Headlines, Headline{Work: h.work, Subject: "wheel.WithTimeout", Config: h.shape.config(0), Unit: "cpu-ns/op"})
	}
	for _, h := range []struct{ work, config string }{
		{"cancel of a parent of 100 k contexts with Done: CPU of each", parentCancel},
		{"the same, and cancel of each", parentAll},
		{"an HTTP server whose requests have a timeout and Done: CPU of a request", wholeServer},
	} {
		w.Headlines = append(w.Headlines, Headline{Work: h.work, Subject: "wheel.WithTimeout", Config: h.config, Unit: "cpu-ns/op"})
	}
	return w
}

func measureContexts(s subject.Subject, n int, spell time.Duration, emit Emit) {
	t := s.New(subject.Options{}).(subject.Contexts)
	fill(t, n)
	cancelable, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := seeded(n)
	for _, shape := range contextShapes {
		above := context.Background()
		if shape.parent == "cancelable" {
			above = cancelable
		}
		ops, values := timed(spell, func() { shape.run(t, above, farOff(r)) })
		emit(shape.config(n), ops, n, values...)
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
