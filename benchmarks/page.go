package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// benchmark is a function of this folder, what its comment says, and its results.
type benchmark struct {
	name string // without "Benchmark"
	doc  string
	*results
}

// benchmarks reads the benchmarks of this folder in the order of its files, and their results.
func benchmarks(folder string) (all []benchmark, err error) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(f.Name.Name, "Benchmark") {
				continue
			}
			b := benchmark{name: strings.TrimPrefix(f.Name.Name, "Benchmark"), doc: f.Doc.Text()}
			if b.results, err = read(filepath.Join(folder, b.name+".txt")); err != nil {
				return nil, err
			}
			if b.results != nil {
				all = append(all, b)
			}
		}
	}
	return all, nil
}

// write writes RESULTS.md and the charts, and the block of figures in the README.
func write(out, readme string) error {
	all, err := benchmarks(filepath.Join(out, "results"))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no results in %s", filepath.Join(out, "results"))
	}
	beside, err := otherReleases(out)
	if err != nil {
		return err
	}
	var page strings.Builder
	page.WriteString(head)
	writeSummary(&page, all, beside)
	about := all[0].about
	fmt.Fprintf(&page, machine, about["cpu"], about["cores"], about["goos"], about["goarch"], about["go"], about["date"], about["load"])
	for _, other := range beside {
		about := other[0].about
		fmt.Fprintf(&page, "For %s it was %s, on %s.\n", about["go"], about["load"], about["date"])
	}
	page.WriteString(howToRead)
	for _, b := range all {
		fmt.Fprintf(&page, "\n## %s\n\n%s\n    go test -bench=%s\n", b.name, b.doc, b.name)
		b.writeTables(&page)
		if c, ok := charts[b.name]; ok {
			if err := b.chart(filepath.Join(out, "results"), c[0], c[1]); err != nil {
				return err
			}
			fmt.Fprintf(&page, "\n![%s](results/%s)\n", c[1], c[0])
		}
	}
	if err := writePeers(&page, out); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "RESULTS.md"), []byte(page.String()), 0o644); err != nil {
		return err
	}
	if readme == "" {
		return nil
	}
	return writeReadme(readme, all)
}

const head = `# Results

Written by ` + "`make bench`" + `; see [how to run the benchmarks](README.md).

## Summary

The wheel beside package time or context, or beside a program's own code. Times
are medians of the rounds. A ratio is the median of the ratios within each round, and the
column beside it has the lowest and the highest of these. A ratio with 1 between its lowest and its
highest says nothing. A column with the name of a release of Go has the ratios with that release.
To measure a row, run ` + "`go test -bench=NAME`" + ` in this folder.

`

const machine = `
## The machine

%s, %s processors, %s/%s, %s. On %s, the load before the first benchmark was %s.
`

const howToRead = `
## How to read the tables

The subjects of a benchmark alternate in one process, in up to seven rounds. A figure is the
median of the rounds; after ± stands how far the farthest round is from it. The figure in
parentheses is the median of the ratios, within each round, to the first subject. Trust it rather than the
times: other work of the machine moves whole rounds. Delays and random choices are the same
for all subjects. Garbage is collected before each measurement. A subject that makes garbage
also pays for its collection.

All subjects are called through one interface, which costs each a nanosecond or two. The row
none starts no timers, and is the load generator's own cost. Where there is such a row, the
ratios of processor time are without it.

The load generator shares the processors with its subject. So the ratios understate
differences, and the times hold for this machine only. [README.md](README.md) says how each
subject is set up. The folder results/ has all measurements, which benchstat reads:

    go tool benchstat -col /subject -ignore /round results/AddCancel.txt
`

// writeTables writes a table for each unit, of subjects and configurations; or, where there
// are more units than configurations, a table for each configuration. The longer axis goes
// down the page. A unit or a configuration that no subject was measured for is left out.
func (b *benchmark) writeTables(page *strings.Builder) {
	if len(b.units) > len(b.configs) {
		for _, config := range b.configs {
			b.writeTable(page, config, b.units, func(subject, unit string) figure { return figure{config, subject, unit} })
		}
	} else {
		for _, unit := range b.units {
			b.writeTable(page, unit, b.configs, func(subject, config string) figure { return figure{config, subject, unit} })
		}
	}
	if len(b.missing) > 0 {
		page.WriteString("\nMissing, in at least one round:\n\n")
	}
	for _, m := range b.missing {
		fmt.Fprintf(page, "- %s\n", m)
	}
}

func (b *benchmark) writeTable(page *strings.Builder, caption string, others []string, at func(subject, other string) figure) {
	others = slices.DeleteFunc(slices.Clone(others), func(other string) bool {
		return !slices.ContainsFunc(b.subjects, func(subject string) bool { return len(b.values[at(subject, other)]) > 0 })
	})
	down, across := b.subjects, others
	turned := len(others) > len(b.subjects)
	if turned {
		down, across = across, down
	}
	if caption != "" {
		fmt.Fprintf(page, "\n**%s**\n", caption)
	}
	fmt.Fprintf(page, "\n| | %s |\n| --- |%s\n", strings.Join(across, " | "), strings.Repeat(" ---: |", len(across)))
	for _, row := range down {
		fmt.Fprintf(page, "| %s |", row)
		for _, column := range across {
			subject, other := row, column
			if turned {
				subject, other = column, row
			}
			fmt.Fprintf(page, " %s |", b.cell(at(subject, other)))
		}
		page.WriteString("\n")
	}
}

func (b *benchmark) cell(f figure) string {
	text := b.spread(f)
	if text == "" {
		return ""
	}
	comparable := !strings.HasSuffix(f.unit, "%") && !strings.HasSuffix(f.unit, "/s") && f.unit != "goroutines"
	if r := b.ratios(f, b.base()); comparable && len(r) > 0 && f.subject != b.base() && f.subject != "none" {
		text += fmt.Sprintf(" (%s)", number(median(r)))
	}
	return text
}

// spread writes the median of the rounds, and how far from it the farthest is.
func (r *results) spread(f figure) string {
	m, far, ok := r.medianOf(f)
	switch {
	case !ok:
		return ""
	case len(r.values[f]) == 1 || far == 0:
		return number(m)
	case math.Abs(m) < far: // a share of the median would say nothing
		return number(m) + " ±" + number(far)
	}
	return number(m) + fmt.Sprintf(" ±%.0f%%", 100*far/math.Abs(m))
}

// headline is a row of the summary.
type headline struct {
	work      string
	benchmark string // and its configuration
	subject   string
	unit      string
	readme    bool // also a row of the README
}

// otherReleases reads what was measured with other releases of Go.
func otherReleases(out string) (all [][]benchmark, err error) {
	folders, err := filepath.Glob(filepath.Join(out, "results", "go*"))
	for _, folder := range folders {
		of, err := benchmarks(folder)
		if err != nil {
			return nil, err
		}
		if len(of) > 0 {
			all = append(all, of)
		}
	}
	return all, err
}

func writeSummary(page *strings.Builder, all []benchmark, beside [][]benchmark) {
	page.WriteString("| work | with | it takes | instead of | ratio | lowest, highest |")
	for _, other := range beside {
		fmt.Fprintf(page, " %s |", other[0].about["go"])
	}
	fmt.Fprintf(page, " benchmark |\n| --- | --- | ---: | ---: | ---: | ---: |%s --- |\n", strings.Repeat(" ---: |", len(beside)))
	for _, h := range headlines {
		if b, f, r := h.find(all); len(r) > 0 {
			theirs, _, _ := b.medianOf(figure{f.config, b.base(), f.unit})
			mine, _, _ := b.medianOf(f)
			fmt.Fprintf(page, "| %s | %s | %s | %s | %s | %s, %s |", h.work, h.subject, withUnit(mine, h.unit), withUnit(theirs, h.unit),
				number(median(r)), number(r[0]), number(r[len(r)-1]))
			for _, other := range beside {
				if _, _, r := h.find(other); len(r) > 0 {
					fmt.Fprintf(page, " %s |", number(median(r)))
				} else {
					page.WriteString(" |")
				}
			}
			fmt.Fprintf(page, " `%s` |\n", h.benchmark)
		}
	}
}

// find returns the ratios of a headline, and what they are of. There are none if it was not
// measured.
func (h headline) find(all []benchmark) (benchmark, figure, []float64) {
	name, config, _ := strings.Cut(h.benchmark, "/")
	f := figure{config, h.subject, h.unit}
	for _, b := range all {
		if b.name == name {
			return b, f, b.ratios(f, b.base())
		}
	}
	return benchmark{}, f, nil
}

// The block of the README stands between these.
const (
	blockBegin = "<!-- figures: make bench writes this -->\n"
	blockEnd   = "<!-- end of figures -->"
)

func writeReadme(file string, all []benchmark) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(content, []byte(blockBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(blockEnd))
	if !ok || !ok2 {
		fmt.Printf("%s has no place for figures, between %q and %q\n", file, blockBegin, blockEnd)
		return nil
	}
	var block strings.Builder
	block.WriteString("| work | with | it takes | package time | ratio |\n| --- | --- | ---: | ---: | ---: |\n")
	for _, h := range headlines {
		if !h.readme {
			continue
		}
		b, f, r := h.find(all)
		if len(r) == 0 {
			fmt.Printf("%s keeps its figures: there is no %s of %s\n", file, h.benchmark, h.subject)
			return nil
		}
		theirs, _, _ := b.medianOf(figure{f.config, b.base(), f.unit})
		mine, _, _ := b.medianOf(f)
		fmt.Fprintf(&block, "| %s | %s | %s | %s | %s |\n", h.work, h.subject, withUnit(mine, h.unit), withUnit(theirs, h.unit), number(median(r)))
	}
	return os.WriteFile(file, bytes.Join([][]byte{before, []byte(blockBegin), []byte(block.String()), []byte(blockEnd), after}, nil), 0o644)
}

// withUnit writes a figure for a reader: "42 ns" for cpu-ns/op.
func withUnit(v float64, unit string) string {
	unit, _, _ = strings.Cut(unit, "/")
	return number(v) + " " + unit[strings.LastIndexByte(unit, '-')+1:]
}

// number writes three significant digits, and a comma before each group of three.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case v == math.Trunc(v) || a >= 100:
		s := strconv.FormatFloat(a, 'f', 0, 64)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		if v < 0 {
			s = "-" + s
		}
		return s
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
