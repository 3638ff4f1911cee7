//go:build unix

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tickwheel/tickwheel/durable"
)

// figures are what one case of a fleet has shown.
type figures struct {
	p99, cpu time.Duration // lateness, and processor time of a job
	hot      float64       // of PostgreSQL's updates, the share that stays within its page; 0: no such thing
}

// fleetCase is workers that run jobs, and what there is besides.
type fleetCase struct {
	name    string
	workers [][]string // the kinds of each
	kinds   []string   // of the jobs
	overdue string     // a kind of which there are jobs that are overdue and not run; "": none
	full    bool       // that is since it has as many as may run; else it has no handler
	goal    string
}

// comparisons are cases that are each measured right after what they are compared with, in
// each round and on a store of its own. The figures are medians over the rounds. Only the
// ratios mean something on a machine that is busy.
func comparisons() []scenario {
	both, one := []string{"a", "b"}, []string{"a"}
	kinds := make([]string, *many)
	for i := range kinds {
		kinds[i] = fmt.Sprint("kind", i)
	}
	compare := func(base fleetCase, cases ...fleetCase) func() error {
		return func() error {
			for _, engine := range engines() {
				measureFleet(engine, base, cases)
			}
			return nil
		}
	}
	return []scenario{
		{"mixed", compare(fleetCase{name: "two workers that run two kinds", workers: [][]string{both, both}, kinds: both},
			fleetCase{name: "one of the two runs one kind", workers: [][]string{one, both}, kinds: both, goal: "p99 1.5"})},
		{"one", compare(fleetCase{name: "a worker of one kind", workers: [][]string{one}, kinds: one},
			fleetCase{name: fmt.Sprint(*backlog, " overdue that nobody runs"), workers: [][]string{one}, kinds: one, overdue: "nobody's", goal: "p99, CPU 1.2"},
			fleetCase{name: fmt.Sprint(*backlog, " overdue of a kind at its limit"), workers: [][]string{one}, kinds: one, overdue: "full", full: true, goal: "p99, CPU 1.2"},
			fleetCase{name: fmt.Sprint(*many, " kinds"), workers: [][]string{kinds}, kinds: kinds, goal: "CPU 1.2"})},
	}
}

// measureFleet prints the rows of an engine.
func measureFleet(engine string, base fleetCase, cases []fleetCase) {
	of := make([][]figures, 1+len(cases))
	for range *rounds {
		for i, c := range append([]fleetCase{base}, cases...) {
			of[i] = append(of[i], c.run(engine))
		}
	}
	p99 := func(f figures) float64 { return f.p99.Seconds() * 1e3 }
	cpu := func(f figures) float64 { return f.cpu.Seconds() * 1e6 }
	for i, c := range cases {
		fmt.Printf("| %s | %s, beside %s | %s | %s | %s |\n", engine, c.name, base.name,
			fields(of[i+1], of[0], p99, "%.2f ms"), fields(of[i+1], of[0], cpu, "%.0f us"), c.goal)
	}
	var hot []float64
	for _, f := range of[0] {
		hot = append(hot, f.hot)
	}
	if share := median(hot); share > 0 {
		fmt.Printf("| %s | updates that are HOT, with nothing overdue: %.1f %% | | | | | | | 96 %% |\n", engine, 100*share)
	}
}

// fields returns three fields of the table: the median of a figure, that of what it is compared
// with, and the median of the ratios of each round.
func fields(all, base []figures, f func(figures) float64, format string) string {
	var own, others, ratios []float64
	for i := range all {
		a, b := f(all[i]), f(base[i])
		own, others, ratios = append(own, a), append(others, b), append(ratios, a/b)
	}
	return fmt.Sprintf(format+" | "+format+" | %.2f", median(own), median(others), median(ratios))
}

// settled is how long workers run before anything is measured: they have found one another
// and what is overdue.
const settled = 3 * time.Second

// run runs the case on a new store: jobs are added at the rate, and due within two seconds.
func (c *fleetCase) run(engine string) (f figures) {
	s := newStore(engine)
	defer s.remove()
	adder := s.open()
	if c.overdue != "" {
		fillStore(adder, *backlog, durable.Job{Kind: c.overdue, Payload: make([]byte, 100)}, 0, 1)
	}
	workers := newCrew()
	for _, kinds := range c.workers {
		if c.full {
			workers.work(s.open(durable.WithKindConcurrency(c.overdue, 2)), kinds, c.overdue)
		} else {
			workers.work(s.open(), kinds, "")
		}
	}
	time.Sleep(settled)
	before := s.cpu()
	added := addAtRate(adder, c.kinds, *rate, *length, 0)
	workers.await(added)
	f.cpu = each(s.cpu()-before, added)
	workers.end()
	f.p99, f.hot = quantile(lateOf(workers.runs), 0.99), s.hot()
	return f
}

// hot hangs up first: with that the server's processes tell their counts.
func (s *store) hot() (share float64) {
	if s.pg == nil {
		return 0
	}
	s.hangUp()
	ctx := context.Background()
	c := get(pgx.Connect(ctx, s.pg.DSN()))
	defer c.Close(ctx)
	must(c.QueryRow(ctx, `select n_tup_hot_upd::float8 / greatest(n_tup_upd, 1)
		from pg_stat_user_tables where schemaname = 'tickwheel' and relname = 'job'`).Scan(&share))
	return share
}
