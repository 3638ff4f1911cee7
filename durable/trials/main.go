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
	length  = flag.Duration("for", 0, "how long a fault goes on, workers are killed, or a rate is held; 0: a minute for chaos and limits, else seconds; beside/vacuum holds the highest rate 20 times as long")
	rate    = flag.Int("rate", 0, "jobs a second; 0: 400 for chaos, 500 for fleet, 1000 for beside")
	only    = flag.String("engine", "", "only this one: "+onJetStream+" or "+onPostgres)
	keep    = flag.Bool("keep", false, "keep the directories of ledgers")
	rounds  = flag.Int("rounds", 3, "how often each case of fleet, and each figure of beside is measured")
	backlog = flag.Int("backlog", 100_000, "jobs that are overdue in fleet, bench/overdue and beside/overdue")
	many    = flag.Int("kinds", 1000, "kinds on one store in fleet")
	pending = flag.Int("n", 1_000_000, "jobs of bench and of beside/vacuum that are pending")
	filling = flag.Int("fill", 15000, "how many of them can be added in a second, for the cascade to begin when all are")
)

// scenario is one of a group. It returns an error if a promise was broken.
type scenario struct {
	name string
	run  func() error
}

// theme is what scenarios have in common. The names of scenarios are GROUP/NAME.
type theme struct {
	name      string
	head      string // of the table
	length    time.Duration
	rate      int
	scenarios []scenario
}

func themes() []theme {
	return []theme{
		{"chaos", "", time.Minute, 400, chaos()},
		{"limits", "| Engine | Goal | Measured | Met |\n|---|---|---|---|", time.Minute, 0, goals()},
		{"fleet", "| engine | case | late by p99 | beside | ratio | CPU a job | beside | ratio | goal |\n" +
			"| --- | --- | --- | --- | --- | --- | --- | --- | --- |", 6 * time.Second, 500, comparisons()},
		{"bench", "", 10 * time.Second, 0, benchmarks()},
		{"beside", "", 30 * time.Second, 1000, besides(whole)},
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
			for _, s := range t.scenarios {
				fmt.Fprintf(os.Stderr, "%s/%s\n", t.name, s.name)
			}
		}
		os.Exit(2)
	}
	must(flag.CommandLine.Parse(os.Args[2:]))
	if failed := runNamed(os.Args[1]); failed {
		os.Exit(1)
	}
}

// runNamed runs the scenarios of a group, or those of them that are named after a slash.
func runNamed(arg string) (failed bool) {
	name, members, some := strings.Cut(arg, "/")
	i := slices.IndexFunc(themes(), func(t theme) bool { return t.name == name })
	if i < 0 {
		fmt.Fprintf(os.Stderr, "there is no %q; go run . lists all\n", name)
		return true
	}
	t := themes()[i]
	*length, *rate = cmp.Or(*length, t.length), cmp.Or(*rate, t.rate)
	chosen := slices.DeleteFunc(t.scenarios, func(s scenario) bool {
		return some && !slices.Contains(strings.Split(members, ","), s.name)
	})
	if len(chosen) == 0 {
		fmt.Fprintf(os.Stderr, "there is no %q; go run . lists all\n", arg)
		return true
	}
	if t.head != "" {
		fmt.Println(t.head)
	}
	for _, s := range chosen {
		var err error
		if ended := attempt(func() { err = s.run() }); ended != nil {
			err = ended
		}
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			fmt.Printf("%-15s left out: %v\n", s.name, err)
		case err != nil:
			fmt.Printf("%-15s FAILED: %v\n", s.name, err)
			failed = true
		}
	}
	return failed
}

// engines are those that are to be measured.
func engines() []string {
	if *only != "" {
		return []string{*only}
	}
	return []string{onJetStream, onPostgres}
}

// chaos returns a scenario for each fault.
func chaos() (all []scenario) {
	for _, name := range names() {
		f := faults[name]
		if *only == "" || *only == f.engine || *only == onJetStream && f.engine == onEmbedded {
			all = append(all, scenario{name, func() error { return harm(name) }})
		}
	}
	return all
}

// harm runs a fault and prints what the ledgers say.
func harm(name string) error {
	dir, remove := directory("chaos-" + name)
	defer remove()
	r, err := runFault(name, dir, settings{length: *length, rate: *rate, near: 6 * time.Second, far: 25 * time.Second, leaders: 2})
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	fmt.Printf("%-15s %v\n", name, r)
	return cmp.Or(err, r.check())
}

// directory makes one for ledgers, which is removed unless it is to be kept.
func directory(name string) (dir string, remove func()) {
	dir = get(os.MkdirTemp(os.Getenv("BENCH_DIR"), name))
	return dir, func() {
		if *keep {
			fmt.Fprintln(os.Stderr, dir)
		} else {
			os.RemoveAll(dir)
		}
	}
}
