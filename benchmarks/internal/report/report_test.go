package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

const canned = `go: go1.26
command: go run . -size full
Stall: Monday, go run . -run 'Stall|Mix' -merge
Mix: Monday, go run . -run 'Stall|Mix' -merge
# round 1
BenchmarkStall/beside=old/subject=wheel.Schedule-2	1	5 old-us
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
BenchmarkMix/load=steady/subject=none-2	10	200 cpu-ns/timer
BenchmarkMix/load=steady/subject=time.AfterFunc-2	10	1000 cpu-ns/timer
BenchmarkMix/load=steady/subject=wheel.Schedule-2	10	600 cpu-ns/timer
BenchmarkFire/due=tick/tasks=empty/subject=gost-2	10000	5000 goroutines	8.47 last-ms	10000 timers
BenchmarkAddCancel/pending=10000000/subject=time.AfterFunc-2	1000	100 ns/op	10000000 timers
BenchmarkAddCancel/pending=10000000/subject=wheel.Schedule-2	1000	50 ns/op	10000000 timers
# round 2
BenchmarkAddCancel/pending=10000000/subject=time.AfterFunc-2	1000	200 ns/op	10000000 timers
BenchmarkAddCancel/pending=10000000/subject=wheel.Schedule-2	1000	60 ns/op	10000000 timers
BenchmarkAddCancel/pending=10000/subject=time.AfterFunc-2	1000	200 ns/op	10000 timers
BenchmarkAddCancel/pending=10000/subject=wheel.Schedule-2	1000	60 ns/op	10000 timers
# round 3
BenchmarkAddCancel/pending=10000000/subject=time.AfterFunc-2	1000	110 ns/op	10000000 timers
BenchmarkAddCancel/pending=10000000/subject=wheel.Schedule-2	1000	66 ns/op	10000000 timers
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
		Charts: []Chart{{File: "cost.svg", Title: "Cost of it", Workload: workload.AddCancel}},
	}.String()
	for _, want := range []string{
		"| command | go run . -size full |",
		`| Stall, Mix | Monday, go run . -run 'Stall\|Mix' -merge |`,
		"| time.AfterFunc |  | 110 ±82% |", // the median of 100, 200 and 110
		"| wheel.Schedule |",
		"| 60 ±17% (0.50) | 55 | 60 ±17% (0.50) |", // ratios 0.5, 0.3 and 0.6; a single round has no spread
		"| heap, of 1 k |",                         // fewer than the others
		"| 3,000 | - |",                            // so without a ratio; and none of the larger size
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
	for _, title := range []string{"## Requests with a timeout", "## Callers and timers beside a cascade"} {
		if strings.Contains(page, title) {
			t.Errorf("there is a section %q, without a figure for its tables", title)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestSummary(t *testing.T) {
	page := Page{Set: read(t), Workloads: workload.All(workload.Full)}.String()
	for _, want := range []string{
		"| the same, 10 M pending | wheel.Schedule | 60 ns | 110 ns | 0.50 | 0.30, 0.60 |",
		"| a realistic mix, a generator that sleeps in the runtime: CPU of a timer | wheel.Schedule | 600 ns | 1,000 ns | 0.60 |  |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "| AfterFunc and Stop") {
		t.Error("the summary has a row without figures")
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestNetColumn(t *testing.T) {
	page := Page{Set: read(t), Workloads: workload.All(workload.Full)}.String()
	for _, want := range []string{
		"| | CPU ns a timer (ratio) | net (ratio) |\n", // and no column that nobody has a figure for
		"| none | 200 |  |\n", "| time.AfterFunc | 1,000 | 800 |\n", "| wheel.Schedule | 600 (0.60) | 400 (0.50) |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		rounds map[int]float64
		want   string
	}{
		{map[int]float64{1: 5}, ""},
		{map[int]float64{1: 100, 2: 110, 3: 90, 4: 150}, " ±43%"},
		{map[int]float64{1: -10, 2: -10.5, 3: -9.8}, " ±5%"}, // of what is below zero, too
		{map[int]float64{1: -1, 2: 2, 3: 5}, " ±3"},          // a share of the median would say nothing
		{map[int]float64{1: 0, 2: 24.6}, " ±12.3"},           //
		{map[int]float64{1: 0, 2: 0}, ""},                    //
		{map[int]float64{1: 0.001, 2: 0.009}, ""},            // below what is written
		{map[int]float64{1: 7, 2: 7}, " ±0%"},                //
	} {
		if got := spread(c.rounds); got != c.want {
			t.Errorf("the spread of %v is %q, want %q", c.rounds, got, c.want)
		}
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
		checkTexts(t, c.File, string(svg))
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

var texts = regexp.MustCompile(`(?s)<text x="([^"]*)" y="([^"]*)"[^>]*font-size:([0-9.]*)px[^>]*>([^<]*)<`)

// checkTexts checks that no text leaves the chart, and none is so light that it cannot
// be read.
func checkTexts(t *testing.T, file, svg string) {
	found := texts.FindAllStringSubmatch(svg, -1)
	if len(found) < 5 {
		t.Fatalf("%s has %d texts", file, len(found))
	}
	for _, m := range found {
		x, _ := strconv.ParseFloat(m[1], 64)
		y, _ := strconv.ParseFloat(m[2], 64)
		size, _ := strconv.ParseFloat(m[3], 64)
		face := font.DefaultCache.Lookup(plot.DefaultFont, vg.Length(size))
		width := face.Width(html.UnescapeString(m[4])).Points()
		if strings.Contains(svg, fmt.Sprintf("rotate(90)\">\n%s", m[0])) {
			x, width = y, 0 // upwards, along the axis
		}
		if x < 0 || x+width > chartWidth.Points() {
			t.Errorf("%s: %q goes from %.0f to %.0f, and the chart is %v wide", file, m[4], x, x+width, chartWidth)
		}
	}
}

// A rival that goes far beyond the others is named, and leaves them their room; one that
// was given less than they has no bar.
func TestRivalsDoNotSpoilTheCharts(t *testing.T) {
	dir := t.TempDir()
	if _, err := Charts(read(t), workload.Full, dir); err != nil {
		t.Fatal(err)
	}
	cost, _ := os.ReadFile(filepath.Join(dir, "cost.svg"))
	if !strings.Contains(string(cost), "Beyond the axis, in ns: heap 3,000 to 3,000.") || strings.Contains(string(cost), ">1,000<") {
		t.Errorf("the chart of costs has room for the heap:\n%s", cost)
	}
	last, _ := os.ReadFile(filepath.Join(dir, "last-tick.svg"))
	if !strings.Contains(string(last), ">bears 10 k only<") || strings.Contains(string(last), ">8.47<") {
		t.Errorf("gost has a bar:\n%s", last)
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
