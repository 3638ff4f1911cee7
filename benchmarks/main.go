// Benchmarks compares the wheel with package time, with other libraries, and with
// a heap. It writes RESULTS.md, the raw results and the charts.
//
//	go run . -size quick                       # five minutes
//	go run . -size full                        # half an hour
//	go run . -size full -run 'Mix|Fire' -merge # these anew, beside what is recorded
//
// Package subject says who takes part, package workload what is measured, and
// package run how.
package main

import (
	"bytes"
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
	workload.Full: 35 * time.Minute, workload.Quick: 6 * time.Minute, workload.Tiny: time.Minute,
}

func main() {
	if err := command(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func command(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	sizeName := flags.String("size", "quick", "quick: five minutes; full: half an hour; tiny: to see that it works")
	workloads := flags.String("run", "", "only workloads whose name matches this `regexp`")
	subjects := flags.String("subjects", "", "only subjects whose name matches this `regexp`")
	rounds := flags.Int("rounds", 0, "at most so many rounds, instead of each workload's own number")
	out := flags.String("out", ".", "the `directory` for RESULTS.md and results/")
	again := flags.Bool("report", false, "measure nothing: write the report anew from the raw results in -out")
	merge := flags.Bool("merge", false, "replace the workloads of -run in the raw results in -out, and keep the others")
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
	if *merge {
		if *subjects != "" {
			return errors.New("-merge needs all subjects: their ratios are taken within a round")
		}
		err = measureAnew(plan, *out, args)
	} else {
		err = measure(plan, *out, args)
	}
	if err != nil {
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
	if err := measureInto(raw, plan, args); err != nil {
		return err
	}
	return raw.Close()
}

func measureInto(raw io.Writer, plan run.Plan, args []string) error {
	for _, s := range run.About(args) {
		if _, err := fmt.Fprintf(raw, "%s: %s\n", s.Key, s.Value); err != nil {
			return err
		}
		if s.Key == "quiet" {
			fmt.Fprintln(plan.Progress, s.Value)
		}
	}
	plan.Raw = raw
	return plan.Run()
}

// measureAnew measures the plan and merges that into the raw results, which stay as they
// are until it has all.
func measureAnew(plan run.Plan, out string, args []string) error {
	set, err := recorded(out)
	if err != nil {
		return err
	}
	var raw bytes.Buffer
	if err := measureInto(&raw, plan, args); err != nil {
		return err
	}
	newer, err := result.Read(&raw)
	if err != nil {
		return err
	}
	if err := set.Merge(newer); err != nil {
		return err
	}
	raw.Reset()
	if err := set.Write(&raw); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, rawFile), raw.Bytes(), 0o644)
}

// recorded returns the raw results.
func recorded(out string) (*result.Set, error) {
	raw, err := os.Open(filepath.Join(out, rawFile))
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	return result.Read(raw)
}

// write turns the raw results into RESULTS.md and charts.
func write(out string, size workload.Size, stdout io.Writer) error {
	set, err := recorded(out)
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
