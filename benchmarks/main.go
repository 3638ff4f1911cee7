// Benchmarks compares the wheel with package time, with other libraries, and with
// a heap. It writes RESULTS.md, the raw results and the charts.
//
//	go run . -size quick    # two minutes
//	go run . -size full     # fifteen
//
// Package subject says who takes part, package workload what is measured, and
// package run how.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tickwheel/tickwheel/benchmarks/internal/report"
	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/run"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

var sizes = map[string]workload.Size{"full": workload.Full, "quick": workload.Quick, "tiny": workload.Tiny}

// budgets bound a run: nothing begins after them, and what has begun is bounded by
// its own timeout.
var budgets = map[workload.Size]time.Duration{
	workload.Full: 14*time.Minute + 30*time.Second, workload.Quick: 115 * time.Second, workload.Tiny: time.Minute,
}

func main() {
	if err := command(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func command(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	sizeName := flags.String("size", "quick", "quick: two minutes; full: fifteen; tiny: to see that it works")
	workloads := flags.String("run", "", "only workloads whose name matches this `regexp`")
	subjects := flags.String("subjects", "", "only subjects whose name matches this `regexp`")
	rounds := flags.Int("rounds", 0, "at most so many rounds, instead of each workload's own number")
	out := flags.String("out", ".", "the `directory` for RESULTS.md and results/")
	again := flags.Bool("report", false, "measure nothing: write the report anew from the raw results in -out")
	child := flags.String("child", "", "run one case of this `workload` on one subject; used by the program itself")
	childCase := flags.String("case", "", "the `case` for -child")
	if err := flags.Parse(args); err != nil {
		return err
	}
	size, ok := sizes[*sizeName]
	if !ok {
		return fmt.Errorf("no size %q", *sizeName)
	}
	if *child != "" {
		return run.Child(size, *child, *childCase, *subjects, stdout)
	}
	if *again {
		return write(*out, size, stdout)
	}
	workloadsRegexp, err := regexp.Compile(*workloads)
	if err != nil {
		return err
	}
	subjectsRegexp, err := regexp.Compile(*subjects)
	if err != nil {
		return err
	}
	plan := run.Plan{
		Size: size, SizeFlag: *sizeName, Workloads: workloadsRegexp, Subjects: subjectsRegexp,
		Rounds: *rounds, Budget: budgets[size], Progress: stdout,
	}
	begin := time.Now()
	if err := measure(plan, *out, args); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%.0f s in all\n", time.Since(begin).Seconds())
	return write(*out, size, stdout)
}

// Where results are, below -out.
const (
	resultsFile = "RESULTS.md"
	chartsDir   = "results"
	rawFile     = "results/raw.txt"
)

func measure(plan run.Plan, out string, args []string) error {
	if err := os.MkdirAll(filepath.Join(out, chartsDir), 0o755); err != nil {
		return err
	}
	raw, err := os.Create(filepath.Join(out, rawFile))
	if err != nil {
		return err
	}
	defer raw.Close()
	for _, s := range run.About(args) {
		if _, err := fmt.Fprintf(raw, "%s: %s\n", s.Key, s.Value); err != nil {
			return err
		}
	}
	plan.Raw = raw
	if err := plan.Run(); err != nil {
		return err
	}
	return raw.Close()
}

// write turns the raw results into RESULTS.md and charts.
func write(out string, size workload.Size, stdout io.Writer) error {
	raw, err := os.Open(filepath.Join(out, rawFile))
	if err != nil {
		return err
	}
	defer raw.Close()
	set, err := result.Read(raw)
	if err != nil {
		return err
	}
	charts, err := report.Charts(set, size, filepath.Join(out, chartsDir))
	if err != nil {
		return err
	}
	page := report.Page{Set: set, Workloads: workload.All(size), Raw: rawFile, ChartsDir: chartsDir, Charts: charts}
	if err := os.WriteFile(filepath.Join(out, resultsFile), []byte(page.String()), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "wrote %s, %s and %d charts, in %s\n", resultsFile, rawFile, len(charts), out)
	return err
}
