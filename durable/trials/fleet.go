//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// figures are what one case of a fleet has shown: lateness in milliseconds, and processor time of a job in
// microseconds.
type figures struct{ p99, cpu float64 }

// fleetCase is workers that run jobs, and what there is besides.
type fleetCase struct {
	name    string
	workers [][]string // the kinds of each
	kinds   []string   // of the jobs
	overdue string     // a kind of which there are jobs that are overdue and not run; "": none
	full    bool       // that is since it has as many as may run; else it has no handler
	limits  int        // of other kinds
	goal    string
}

// comparisons are cases that are each measured right after the first of theirs, in each round and
// on a store of its own. The figures are medians over the rounds. Only the ratios mean something on a
// machine that is busy.
func comparisons() []scenario {
	const many = 1000
	both, one := []string{"a", "b"}, []string{"a"}
	kinds := make([]string, many)
	for i := range kinds {
		kinds[i] = fmt.Sprint("kind", i)
	}
	mixed := []fleetCase{
		{name: "two workers that run two kinds", workers: [][]string{both, both}, kinds: both},
		{name: "one of the two runs one kind", workers: [][]string{one, both}, kinds: both, goal: "p99 1.5"},
	}
	alone := []fleetCase{
		{name: "a worker of one kind", workers: [][]string{one}, kinds: one},
		{name: fmt.Sprint(*backlog, " overdue that nobody runs"), workers: [][]string{one}, kinds: one, overdue: "nobody's", goal: "p99, CPU 1.2"},
		{name: fmt.Sprint(*backlog, " overdue of a kind at its limit"), workers: [][]string{one}, kinds: one, overdue: "full", full: true, goal: "p99, CPU 1.2"},
		{name: "ten limits of other kinds", workers: [][]string{one}, kinds: one, limits: 10, goal: "CPU 1.03"},
		{name: fmt.Sprint(many, " kinds"), workers: [][]string{kinds}, kinds: kinds, goal: "CPU 1.2"},
	}
	return []scenario{{"mixed", func() { compare(mixed) }}, {"one", func() { compare(alone) }}}
}

// compare prints the rows of all cases beside the first.
func compare(cases []fleetCase) {
	for _, engine := range engines() {
		of := make([][]figures, len(cases))
		for range *rounds {
			for i, c := range cases {
				of[i] = append(of[i], c.run(engine))
			}
		}
		for i, c := range cases[1:] {
			fmt.Printf("| %s | %s, beside %s | %s | %s | %s |\n", engine, c.name, cases[0].name,
				fields(of[i+1], of[0], "%.2f ms", func(f figures) float64 { return f.p99 }),
				fields(of[i+1], of[0], "%.0f us", func(f figures) float64 { return f.cpu }), c.goal)
		}
	}
}

// fields returns three fields of the table: the median of a figure, that of what it is compared
// with, and the median of the ratios of each round.
func fields(all, base []figures, format string, f func(figures) float64) string {
	var own, others, ratios []float64
	for i := range all {
		a, b := f(all[i]), f(base[i])
		own, others, ratios = append(own, a), append(others, b), append(ratios, a/b)
	}
	return fmt.Sprintf(format+" | "+format+" | %.2f", median(own), median(others), median(ratios))
}

// run runs the case on a new store: jobs are added at the rate, and due within two seconds.
func (c *fleetCase) run(engine string) figures {
	s := newStore(engine)
	defer s.remove()
	adder := ours{q: s.open(), kinds: c.kinds}
	if c.overdue != "" {
		fill(ours{q: adder.q, kinds: []string{c.overdue}}, *backlog, within(0, 1))
	}
	for i := range c.limits {
		name := fmt.Sprint("other", i)
		must(adder.q.SetLimit(background, name, durable.Limit{Kind: name, Running: 1, PerLane: i%2 == 0}))
	}
	var workers []peer
	full := make(chan struct{})
	for _, kinds := range c.workers {
		q := s.open(durable.WithKindConcurrency("full", 2))
		if c.full {
			q.Handle(c.overdue, func(context.Context, *durable.Attempt) error { <-full; return nil })
		}
		workers = append(workers, ours{q: q, kinds: kinds})
	}
	var f flow
	end := f.work(workers...)
	time.Sleep(3 * time.Second) // they find one another, and what is overdue
	before := s.cpu()
	added := addAhead(adder, *rate, *length, time.Millisecond, within(0, 2*time.Second))
	f.await(added)
	used := s.cpu() - before
	close(full)
	end()
	return figures{float64(quantile(lateOf(f.runs), 0.99)) / 1e6, float64(each(used, added)) / 1e3}
}
