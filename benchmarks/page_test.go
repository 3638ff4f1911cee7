package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const printed = `go: go1.26.8
cores: 2
cpu: EPYC
BenchmarkMix/tick=1ms/subject=none/round=1-2 	 1	 10 cpu-ns/op	 1 runs/s
BenchmarkMix/tick=1ms/subject=time.AfterFunc/round=1-2 	 1	 110 cpu-ns/op	 3 runs/s
BenchmarkMix/tick=1ms/subject=wheel.Schedule/round=1-2
BenchmarkMix/tick=1ms/subject=wheel.Schedule/round=1-2 	 1	 60 cpu-ns/op	 1500 runs/s
BenchmarkMix/tick=1ms/subject=none/round=2-2 	 1	 10 cpu-ns/op
BenchmarkMix/tick=1ms/subject=time.AfterFunc/round=2-2 	 1	 1010 cpu-ns/op
BenchmarkMix/tick=1ms/subject=wheel.Schedule/round=2-2 	 1	 260 cpu-ns/op
BenchmarkMix/tick=1ms/subject=time.AfterFunc/round=2-4 	 1	 7 cpu-ns/op
BenchmarkMix/tick=1ms/subject=gost/round=1
--- SKIP: BenchmarkMix/tick=1ms/subject=gost/round=1
    mix_test.go:7: 3 of 4 timers have not run
--- FAIL: BenchmarkMix
    its process ended: exit status 2
`

func TestTables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Mix.txt")
	if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	b := benchmark{name: "Mix", results: r}
	b.writeTables(&page)
	for _, want := range []string{
		"| | tick=1ms | tick=1ms/GOMAXPROCS=4 |\n",
		"| none | 10 |  |\n| time.AfterFunc | 560 ±80% | 7 |\n",
		// Of 60 and 260. The ratios within the rounds are 50/100 and 250/1000.
		"| wheel.Schedule | 160 ±62% (0.38) |  |\n",
		"| | tick=1ms |\n| --- | ---: |\n| none | 1 |\n", // nothing was measured in the other
		"| wheel.Schedule | 1,500 |\n",                   // no ratio of rates
		"- gost tick=1ms: 3 of 4 timers have not run\n",
		"- its process ended: exit status 2\n",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the tables lack %q:\n%s", want, page.String())
		}
	}
}

// The report has what was measured: in the summary, in a table and a chart, and in the README,
// whose figures change only if all of them were measured.
func TestReport(t *testing.T) {
	out := t.TempDir()
	folder, readme := filepath.Join(out, "results"), filepath.Join(out, "README.md")
	put := func(file, content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(folder, "go1.27.0"), 0o700); err != nil {
		t.Fatal(err)
	}
	cancels := strings.NewReplacer("Mix/tick=1ms", "CancelRandom/pending=1M", "mix_test", "add_test").Replace(printed)
	put(filepath.Join(folder, "CancelRandom.txt"), cancels)
	put(filepath.Join(folder, "go1.27.0", "CancelRandom.txt"), strings.NewReplacer("go1.26.8", "go1.27.0", " 260 ", " 510 ").Replace(cancels))
	for _, before := range []string{"no block", "before\n" + blockBegin + "old\n" + blockEnd + "after\n"} {
		put(readme, before)
		if err := write(out, readme); err != nil {
			t.Fatal(err)
		}
		if content, _ := os.ReadFile(readme); string(content) != before {
			t.Errorf("README has changed from %q to %q", before, content)
		}
	}
	for _, h := range headlines {
		if name, config, _ := strings.Cut(h.benchmark, "/"); h.readme {
			var lines strings.Builder
			for i, subject := range []string{"none", "time.AfterFunc", h.subject} {
				fmt.Fprintf(&lines, "Benchmark%s/%s/subject=%s-2 1 %d %s\n", name, config, subject, []int{10, 110, 60}[i], h.unit)
			}
			file := filepath.Join(folder, name+".txt")
			earlier, _ := os.ReadFile(file)
			put(file, "cores: 2\n"+strings.TrimPrefix(string(earlier), "cores: 2\n")+lines.String())
		}
	}
	if err := write(out, readme); err != nil {
		t.Fatal(err)
	}
	const work = "| cancel one of 1 M at random and add another: CPU | "
	for file, wants := range map[string][]string{
		"RESULTS.md": {
			"| ratio | lowest, highest | go1.27.0 | benchmark |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |\n",
			work + "wheel.Schedule | 160 ns | 560 ns | 0.38 | 0.25, 0.50 | 0.50 | `CancelRandom/pending=1M` |\n",
			"| 60 MB | 110 MB | 0.55 | 0.55, 0.55 | | `Stopped` |\n", // not measured with go1.27.0,
			"BenchmarkCancelRandom cancels one of the pending timers", "go test -bench=CancelRandom\n", "| 160 ±62% (0.38) |", "](results/cost-random.svg)",
		},
		"README.md":               {"before\n" + blockBegin, work + "wheel.Schedule | 160 ns | 560 ns | 0.38 |\n", " |\n" + blockEnd + "after\n"},
		"results/cost-random.svg": {"wheel.Schedule"},
	} {
		content, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(content), want) {
				t.Errorf("%s lacks %q:\n%s", file, want, content)
			}
		}
	}
}

// A run keeps what each benchmark prints in each round. Beside the results of another release it
// leaves out what is not in the summary.
func TestRun(t *testing.T) {
	r := runner{
		program: os.Args[0], folder: t.TempDir(), bench: "^Benchmark(Group|Idle)$",
		rounds: 2, benchtime: time.Millisecond, short: true, beside: true,
	}
	if err := r.run(io.Discard); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(r.folder); err != nil || len(files) != 1 {
		t.Errorf("%v (%v), want Group.txt alone", files, err)
	}
	got, err := read(filepath.Join(r.folder, "Group.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if rounds := len(got.values[figure{"", "wheel.Group", "ns/op"}]); rounds != 2 || got.about["cores"] == "" {
		printed, _ := os.ReadFile(filepath.Join(r.folder, "Group.txt"))
		t.Errorf("%d rounds, want 2:\n%s", rounds, printed)
	}
}
