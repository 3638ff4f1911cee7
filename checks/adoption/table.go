package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// printTable writes what the suites have done as Markdown. A test counts as failed in a
// round in which it, or a subtest of it, failed. Import lines are those in what the tests are
// built of, and those of the module. Times are medians of the rounds.
func printTable(out io.Writer, rows []row) {
	fmt.Fprintln(out, "| module | version | import lines | compile errors | package time: passed, failed | the wheel: passed, failed | elapsed, s | CPU, s |")
	fmt.Fprintln(out, "| --- | --- | ---: | ---: | --- | --- | ---: | ---: |")
	for _, r := range rows {
		name := strings.TrimPrefix(r.path, "github.com/")
		if r.reason != "" {
			fmt.Fprintf(out, "| %s | %s | | %d | %s | | | |\n", name, r.version, r.compileErrors, r.reason)
			continue
		}
		fmt.Fprintf(out, "| %s | %s | %d of %d | %d | %s | %s | %s | %s |\n", name, r.version, r.built, r.imports,
			r.compileErrors, counts(r.std), counts(r.wheel),
			medians(r, func(r run) time.Duration { return r.elapsed }),
			medians(r, func(r run) time.Duration { return r.cpu }))
	}
	for _, r := range rows {
		printFailures(out, r)
		printAbsent(out, r, "package time", ran(r.std), ran(r.wheel))
		printAbsent(out, r, "the wheel", ran(r.wheel), ran(r.std))
	}
}

// counts has each round's, such as "71, 0; 70, 1".
func counts(runs []run) string {
	var each []string
	for _, r := range runs {
		each = append(each, fmt.Sprintf("%d, %d", len(r.passed), len(r.failed)))
	}
	return strings.Join(each, "; ")
}

// medians has package time's and the wheel's.
func medians(r row, of func(run) time.Duration) string {
	median := func(runs []run) float64 {
		var all []time.Duration
		for _, r := range runs {
			all = append(all, of(r))
		}
		slices.Sort(all)
		return all[len(all)/2].Seconds()
	}
	return fmt.Sprintf("%.1f, %.1f", median(r.std), median(r.wheel))
}

func printFailures(out io.Writer, r row) {
	if r.tests != "" {
		fmt.Fprintf(out, "\n- %s, only `%s`\n", r.path, r.tests)
	}
	if r.skip != "" {
		fmt.Fprintf(out, "\n- %s, without `%s`: %s\n", r.path, r.skip, r.because)
	}
	std, wheel := failures(r.std), failures(r.wheel)
	both := maps.Clone(std)
	maps.Copy(both, wheel)
	for _, test := range slices.Sorted(maps.Keys(both)) {
		only := ""
		if std[test] == 0 {
			only = ", **only with the wheel**"
		}
		fmt.Fprintf(out, "\n- %s, `%s`: failed in %d of %d rounds with package time, in %d of %d with the wheel%s",
			r.path, test, std[test], len(r.std), wheel[test], len(r.wheel), only)
	}
	if len(both) > 0 {
		fmt.Fprintln(out)
	}
}

func failures(runs []run) map[string]int {
	times := map[string]int{}
	for _, r := range runs {
		for test := range r.failed {
			times[test]++
		}
	}
	return times
}

// printAbsent lists the tests that ran in one copy, and in no round in the other. A test that
// fails before its subtests leaves such, and so does one that ends the process. One that is
// skipped has run.
func printAbsent(out io.Writer, r row, with string, here, there map[string]bool) {
	var absent []string
	for _, test := range slices.Sorted(maps.Keys(here)) {
		if !there[test] {
			absent = append(absent, "`"+test+"`")
		}
	}
	if len(absent) > 0 {
		fmt.Fprintf(out, "\n- %s: %d ran with %s only: %s\n", r.path, len(absent), with, strings.Join(absent, ", "))
	}
}

// ran has the tests that ran in a round at least.
func ran(runs []run) map[string]bool {
	tests := map[string]bool{}
	for _, r := range runs {
		maps.Copy(tests, r.passed)
		maps.Copy(tests, r.skipped)
		for test := range r.failed {
			if !strings.Contains(test, " ended: ") {
				tests[test] = true
			}
		}
	}
	return tests
}
