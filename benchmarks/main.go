// Benchmarks runs the benchmarks of this folder, and writes RESULTS.md and the charts from
// what they print. Each benchmark has a process of its own, in which its subjects alternate.
//
//	go run .                          # all: three quarters of an hour
//	go run . -bench 'Mix|Fire'        # these anew, beside what is recorded
//	go run . -short -out /tmp/try     # in little, to see that it works
//	go run . -beside                  # those of the summary, with another release of Go: see RELEASES in the Makefile
//	go run . -report                  # measures nothing
//
// A row needs no more than go test: go test -bench 'CancelRandom/pending=1M'.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

func main() {
	var r runner
	flag.StringVar(&r.bench, "bench", "", "measure only benchmarks whose name matches this `regexp`, and keep the results of the others")
	flag.IntVar(&r.rounds, "rounds", 7, "rounds in which the subjects alternate")
	flag.DurationVar(&r.limit, "limit", 10*time.Second, "begin no further round of a comparison after this `time`, beyond the third")
	flag.DurationVar(&r.benchtime, "benchtime", 100*time.Millisecond, "go test's, for each subject in each round")
	flag.BoolVar(&r.short, "short", false, "with small loads, whose figures mean nothing")
	out := flag.String("out", ".", "the `folder` of RESULTS.md and results/")
	readme := flag.String("readme", "", "the `file` whose block of figures is written, between two comments")
	flag.BoolVar(&r.beside, "beside", false, "measure the benchmarks of the summary, and keep the results beside those of another release of Go")
	report := flag.Bool("report", false, "measure nothing, and write the report from the results that are there")
	flag.Parse()
	r.folder = filepath.Join(*out, "results")
	if r.beside {
		r.folder = filepath.Join(r.folder, runtime.Version())
	}
	var err error
	if !*report {
		err = r.compileAndRun(os.Stdout)
	}
	if err2 := write(*out, *readme); err == nil {
		err = err2
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

// runner runs benchmarks, and keeps what each prints in a file of its own.
type runner struct {
	program          string // the test binary of this folder
	folder, bench    string
	rounds           int
	limit, benchtime time.Duration
	short            bool
	beside           bool // only those of the summary
}

// further are second runs of a benchmark, with other flags: sizes for which a few rounds must
// do, and other numbers of processors.
var further = map[string][]string{
	"BenchmarkAddCancel":    {"-pending=10M", "-rounds=3"},
	"BenchmarkCancelRandom": {"-pending=10M", "-rounds=3"},
	"BenchmarkMemory":       {"-pending=10M", "-rounds=1", "-test.bench=Memory//hold=function"},
	"BenchmarkParallel":     {"-test.cpu=1,4", "-rounds=3"},
	"BenchmarkScale":        {"-pending=100M", "-rounds=1"},
}

func (r *runner) compileAndRun(progress io.Writer) error {
	r.program = filepath.Join(os.TempDir(), fmt.Sprintf("benchmarks-%d.test", os.Getpid()))
	defer os.Remove(r.program)
	if out, err := exec.Command("go", "test", "-c", "-o", r.program, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	return r.run(progress)
}

func (r *runner) run(progress io.Writer) error {
	if r.bench == "" { // nothing of another run may remain
		if err := os.RemoveAll(r.folder); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.folder, 0o755); err != nil {
		return err
	}
	match, err := regexp.Compile(r.bench)
	if err != nil {
		return err
	}
	names, err := exec.Command(r.program, "-test.list", "^Benchmark").Output()
	if err != nil {
		return err
	}
	var failed []string
	for name := range strings.FieldsSeq(string(names)) {
		if !match.MatchString(name) || r.beside && !hasHeadline(name) {
			continue
		}
		begin := time.Now()
		if err := r.one(name); err != nil {
			failed = append(failed, name)
		}
		fmt.Fprintf(progress, "%-24s %4.0f s\n", name, time.Since(begin).Seconds())
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

// one runs a benchmark. A crash or a limit of time ends its process, and is noted.
func (r *runner) one(name string) error {
	file, err := os.Create(filepath.Join(r.folder, strings.TrimPrefix(name, "Benchmark")+".txt"))
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(file, "go: %s\ncores: %d\ndate: %s\nload: %s\n", runtime.Version(), runtime.GOMAXPROCS(0),
		time.Now().UTC().Format("2006-01-02 15:04 MST"), load())
	run := func(more ...string) error {
		args := append([]string{
			"-test.v", "-test.run=^$", "-test.bench=^" + name + "$", "-test.timeout=20m",
			fmt.Sprintf("-test.short=%t", r.short), fmt.Sprintf("-test.benchtime=%v", r.benchtime),
			fmt.Sprintf("-rounds=%d", r.rounds), fmt.Sprintf("-limit=%v", r.limit),
		}, more...)
		cmd := exec.Command(r.program, args...)
		cmd.Stdout, cmd.Stderr = file, file
		err := cmd.Run()
		if err != nil {
			fmt.Fprintf(file, "--- FAIL: %s\n    its process ended: %v\n", name, err)
		}
		return err
	}
	if err := run(); err != nil || r.short || r.rounds == 1 || further[name] == nil {
		return err
	}
	return run(further[name]...)
}

// load returns the load average of the last minute, which tells whether the machine was quiet
// before the first benchmark.
func load() string {
	content, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(content))[0]
}
