//go:build unix

package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

var (
	length  = flag.Duration("for", 0, "how long a fault goes on, or a rate is held; 0: a minute for chaos and limits, else seconds; beside/vacuum holds the highest rate 20 times as long")
	rate    = flag.Int("rate", 0, "jobs a second; 0: 400 for chaos, 500 for fleet, 1000 for beside")
	rounds  = flag.Int("rounds", 0, "how often each figure of bench, fleet and beside is measured; 0: once for bench, 3 times else")
	only    = flag.String("only", "", "the system of bench or beside that is measured; empty: all, by turns")
	backlog = flag.Int("backlog", 100_000, "jobs that are overdue in fleet, bench/overdue and beside/overdue")
	pending = flag.Int("n", 1_000_000, "jobs of bench and of beside/vacuum that are pending")
)

// scenario is one of a group. It ends by must if a promise was broken.
type scenario struct {
	name string
	run  func()
}

// theme is what scenarios have in common. The names of scenarios are GROUP/NAME.
type theme struct {
	name      string
	length    time.Duration
	rate      int
	rounds    int
	scenarios func() []scenario
}

func themes() []theme {
	return []theme{
		{"chaos", time.Minute, 400, 0, chaos},
		{"limits", time.Minute, 0, 0, goals},
		{"fleet", 6 * time.Second, 500, 3, comparisons},
		{"bench", 10 * time.Second, 0, 1, benchmarks},
		{"beside", 30 * time.Second, 1000, 3, besides},
	}
}

func main() {
	if text := os.Getenv(envSpec); text != "" {
		if err := attempt(func() { play(text) }); err != nil {
			fmt.Fprintln(os.Stderr, "a process of the trial:", err)
			os.Exit(statusFailed)
		}
		return
	}
	if len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") {
		flag.Usage()
		for _, t := range themes() {
			for _, s := range t.scenarios() {
				fmt.Fprintf(os.Stderr, "%s/%s\n", t.name, s.name)
			}
		}
		os.Exit(2)
	}
	must(flag.CommandLine.Parse(os.Args[2:]))
	ran, failed := runNamed(strings.Cut(os.Args[1], "/"))
	if !ran {
		fmt.Fprintf(os.Stderr, "there is no %q; go run . lists all\n", os.Args[1])
	}
	if !ran || failed {
		os.Exit(1)
	}
}

// runNamed runs the scenarios of a group, or some of them.
func runNamed(group, members string, some bool) (ran, failed bool) {
	for _, t := range themes() {
		if t.name != group {
			continue
		}
		*length, *rate, *rounds = cmp.Or(*length, t.length), cmp.Or(*rate, t.rate), cmp.Or(*rounds, t.rounds)
		for _, s := range t.scenarios() {
			if some && !slices.Contains(strings.Split(members, ","), s.name) {
				continue
			}
			ran = true
			if err := attempt(s.run); errors.Is(err, errors.ErrUnsupported) {
				fmt.Printf("%-15s left out: %v\n", s.name, err)
			} else if err != nil {
				fmt.Printf("%-15s FAILED: %v\n", s.name, err)
				failed = true
			}
		}
	}
	return ran, failed
}

// engines are those of fleets and limits.
var engines = []string{onJetStream, onPostgres}

// chaos returns a scenario for each fault.
func chaos() (all []scenario) {
	for _, f := range append(faultsOf(false), faultsOf(true)...) {
		all = append(all, scenario{f.name, func() { harm(f) }})
	}
	return all
}

// harm runs a fault and prints what the ledgers say. They stay if a promise was broken.
func harm(f fault) {
	dir := get(os.MkdirTemp("", "chaos-"+f.name))
	r, err := f.harm(dir, settings{length: *length, rate: *rate, near: 6 * time.Second, far: 25 * time.Second})
	if !errors.Is(err, errors.ErrUnsupported) {
		fmt.Printf("%-15s %v\n", f.name, r)
		if err = cmp.Or(err, r.check()); err != nil {
			must(fmt.Errorf("%w; its ledgers are in %s", err, dir))
		}
	}
	must(os.RemoveAll(dir))
	must(err)
}
