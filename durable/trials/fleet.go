//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/tickwheel/tickwheel/durable"
)

// fleet is workers of one store that run jobs, and what there is besides. It is measured as one peer.
type fleet struct {
	name    string
	goal    string     // for its ratio to the first fleet
	workers [][]string // the kinds of each
	kinds   []string   // of the jobs
	overdue string     // a kind of which there are jobs that are overdue and not run; "": none
	full    bool       // that is since it has as many as may run; else it has no handler
	limits  int        // of other kinds
}

// comparisons are fleets that are each measured beside the first of theirs, with jobs that are due within two
// seconds. Only the ratios mean something on a machine that is busy.
func comparisons() []scenario {
	const many = 1000
	both, one := []string{"a", "b"}, []string{"a"}
	kinds := make([]string, many)
	for i := range kinds {
		kinds[i] = fmt.Sprint("kind", i)
	}
	compare := func(fleets ...fleet) func() {
		return func() {
			for _, engine := range engines {
				var all []system
				for _, f := range fleets {
					all = append(all, system{f.name, f.goal, f.on(engine)})
				}
				measure(engine, []step{life(*rate, time.Millisecond, span{0, 2 * time.Second})}, all...)
			}
		}
	}
	return []scenario{
		{"mixed", compare(
			fleet{name: "two workers that run two kinds", workers: [][]string{both, both}, kinds: both},
			fleet{name: "one of the two runs one kind", goal: "p99 1.5", workers: [][]string{one, both}, kinds: both},
		)},
		{"one", compare(
			fleet{name: "a worker of one kind", workers: [][]string{one}, kinds: one},
			fleet{name: fmt.Sprint(*backlog, " overdue that nobody runs"), goal: "p99, CPU 1.2", workers: [][]string{one}, kinds: one, overdue: "nobody's"},
			fleet{name: fmt.Sprint(*backlog, " overdue of a kind at its limit"), goal: "p99, CPU 1.2", workers: [][]string{one}, kinds: one, overdue: "full", full: true},
			fleet{name: "ten limits of other kinds", goal: "CPU 1.03", workers: [][]string{one}, kinds: one, limits: 10},
			fleet{name: fmt.Sprint(many, " kinds"), goal: "CPU 1.2", workers: [][]string{kinds}, kinds: kinds},
		)},
	}
}

// on returns a function that calls another with the fleet on an engine.
func (f fleet) on(engine string) func(func(*meter)) {
	return func(measure func(*meter)) {
		s := newStore(engine)
		defer s.remove()
		run := running{ours: ours{q: s.open(), kinds: f.kinds}, full: make(chan struct{})}
		if f.overdue != "" {
			fill(ours{q: run.q, kinds: []string{f.overdue}}, *backlog, within(0, 1))
		}
		for i := range f.limits {
			name := fmt.Sprint("other", i)
			must(run.q.SetLimit(background, name, durable.Limit{Kind: name, Running: 1, PerLane: i%2 == 0}))
		}
		for _, kinds := range f.workers {
			q := s.open(durable.WithKindConcurrency("full", 2))
			if f.full {
				q.Handle(f.overdue, func(context.Context, *durable.Attempt) error { <-run.full; return nil })
			}
			run.workers = append(run.workers, ours{q: q, kinds: kinds})
		}
		measure(&meter{peer: run, store: s, pg: s.pg})
	}
}

// running is a fleet that runs. It adds jobs by a Queue of their own.
type running struct {
	ours
	workers []ours
	full    chan struct{} // closed at the end
}

func (r running) work(ctx context.Context, ran func(timedJob)) {
	var all group
	for _, w := range r.workers {
		all.run(func() { w.work(ctx, ran) })
	}
	<-ctx.Done()
	close(r.full)
	all.wait()
}
