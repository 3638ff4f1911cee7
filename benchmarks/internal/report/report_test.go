package report

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

const canned = `go: go1.26
command: go run . -size full
# round 1
BenchmarkAddCancel/pending=0/subject=none-2	1000	5 ns/op	0 timers
BenchmarkAddCancel/pending=10000/subject=time.AfterFunc-2	1000	100 ns/op	10000 timers
BenchmarkAddCancel/pending=10000/subject=wheel.Schedule-2	1000	50 ns/op	10000 timers
BenchmarkAddCancel/pending=10000/subject=heap-2	1000	3000 ns/op	1000 timers
BenchmarkAddCancel/pending=100000/subject=wheel.Schedule-2	1000	55 ns/op	100000 timers
--- SKIP: AddCancel/pending=100000/subject=heap: too | much
--- FAIL: AddCancel/pending=100000/subject=go-zero: it had not ended after 1m0s
--- FAIL: AddCancel/pending=100000/subject=RussellLuo: it crashed: out of memory
BenchmarkLateness/rate=10000/tick=none/subject=time.AfterFunc-2	10	0.1 min-ms	0.5 p50-ms	1 max-ms	0 early-%
BenchmarkLateness/rate=10000/tick=1ms/subject=RussellLuo-2	10	-0.97 min-ms	0.1 p50-ms	1 max-ms	43 early-%
BenchmarkMemory/pending=1000000/functions=one/subject=time.AfterFunc-2	1000000	130 B/timer	1000000 timers
BenchmarkFire/due=spread/tasks=empty/subject=time.AfterFunc-2	1000000	684 last-ms	1000000 timers
BenchmarkFire/due=tick/tasks=empty/subject=time.AfterFunc-2	1000000	400000 goroutines	1129 last-ms	1000000 timers
# round 2
BenchmarkAddCancel/pending=10000/subject=time.AfterFunc-2	1000	200 ns/op	10000 timers
BenchmarkAddCancel/pending=10000/subject=wheel.Schedule-2	1000	60 ns/op	10000 timers
# round 3
BenchmarkAddCancel/pending=10000/subject=time.AfterFunc-2	1000	110 ns/op	10000 timers
BenchmarkAddCancel/pending=10000/subject=wheel.Schedule-2	1000	66 ns/op	10000 timers
`

func read(t *testing.T) *result.Set {
	t.Helper()
	set, err := result.Read(strings.NewReader(canned))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestPage(t *testing.T) {
	page := Page{
		Set: read(t), Workloads: workload.All(workload.Full), Raw: "results/raw.txt", ChartsDir: "results",
		Charts: []Chart{{"cost.svg", "Cost\nof it", workload.AddCancel}},
	}.String()
	for _, want := range []string{
		"| command | go run . -size full |",
		"| time.AfterFunc |  | 110 ±82% |", // the median of 100, 200 and 110
		"| wheel.Schedule |",
		"| 60 ±17% (0.50) | 55 |", // ratios 0.5, 0.3 and 0.6; a single round has no spread
		"| heap, of 1 k |",        // fewer than the others
		"| 3,000 (30) | - |",      // and none of the larger size
		"- heap: too | much (`pending=100000`).",
		"- go-zero: it had not ended after 1m0s",
		"- RussellLuo: it crashed: out of memory",
		"| hung |",
		"| failed |",
		"- RussellLuo fired up to 43 % of its timers early, by up to 0.97 ms.",
		"2 measurements are missing",
		"![Cost of it](results/cost.svg)",
		"| time.AfterFunc | 0.10 | 0.50 |", // where a tick of 1 ms is asked for, and it has none
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "## A realistic mix") {
		t.Error("a workload that was not run has a section")
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestEachChartIsDrawn(t *testing.T) {
	dir := t.TempDir()
	charts, err := Charts(read(t), workload.Full, dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(charts) != 6 {
		t.Errorf("%d charts, want 6", len(charts))
	}
	for _, c := range charts {
		svg, err := os.ReadFile(filepath.Join(dir, c.File))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(svg), "time.AfterFunc") {
			t.Errorf("%s names no subject", c.File)
		}
		decoder := xml.NewDecoder(strings.NewReader(string(svg)))
		for err = nil; err == nil; {
			_, err = decoder.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", c.File, err)
		}
	}
	none, err := Charts(&result.Set{}, workload.Full, dir)
	if err != nil || len(none) != 0 {
		t.Errorf("of no results: %d charts, %v", len(none), err)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 2: "2", -3: "-3", 93.14: "93.1", 0.254: "0.25", 123.4: "123", 4726.3: "4,726",
		1234567: "1,234,567", -0.97: "-0.97", -12.34: "-12.3", 0.0006: "0.0006",
	} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}
