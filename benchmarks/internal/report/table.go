package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

// grid turns the measurements of one workload into rows.
type grid struct {
	set      *result.Set
	workload string
}

func (g grid) key(config, subject string) result.Key {
	return result.Key{Workload: g.workload, Config: config, Subject: subject}
}

// table writes a table in Markdown, with a row for each subject that has a figure
// in it, or a reason for having none; and nothing if there is no such row.
func (g grid) table(t workload.Table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n| |", t.Caption)
	for _, c := range t.Columns {
		fmt.Fprintf(&b, " %s |", c.Head)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(t.Columns)) + "\n")
	empty := true
	for _, s := range subject.All() {
		if cells, some := g.row(t, s.Name); some {
			fmt.Fprintf(&b, "| %s | %s |\n", g.label(t, s.Name), strings.Join(cells, " | "))
			empty = false
		}
	}
	if empty {
		return ""
	}
	return b.String()
}

func (g grid) row(t workload.Table, subject string) (cells []string, some bool) {
	for _, c := range t.Columns {
		cell := g.cell(c, subject)
		cells = append(cells, cell)
		some = some || cell != ""
	}
	return cells, some
}

// label is the subject's name and, where it has been given fewer timers than
// others in this table, how many.
func (g grid) label(t workload.Table, subject string) string {
	most, mine, reduced := map[string]float64{}, map[string]float64{}, 0
	for _, l := range g.set.Lines {
		if l.Workload != g.workload {
			continue
		}
		n, _ := l.Get(workload.TimersUnit)
		most[l.Config] = max(most[l.Config], n)
		if l.Subject == subject {
			mine[l.Config] = n
		}
	}
	for _, c := range t.Columns {
		if n, ok := mine[c.Config]; ok && n < most[c.Config] {
			reduced = int(n)
		}
	}
	if reduced > 0 {
		return fmt.Sprintf("%s, of %s", subject, workload.Count(reduced))
	}
	return subject
}

// cell is the median of the rounds, how far the farthest round is from it, and the
// ratio; or what happened instead; or nothing.
func (g grid) cell(c workload.Column, name string) string {
	config := c.Config
	rounds := g.set.Rounds(g.key(config, name), c.Unit)
	if len(rounds) == 0 && c.Else != "" {
		config = c.Else
		rounds = g.set.Rounds(g.key(config, name), c.Unit)
	}
	if len(rounds) == 0 {
		if m, ok := g.set.Miss(g.key(c.Config, name)); ok {
			return outcome(m)
		}
		return ""
	}
	if c.Over != "" {
		return number(result.Median(ratios(rounds, g.set.Rounds(g.key(c.Over, name), c.Unit))))
	}
	text := number(result.Median(slices.Collect(maps.Values(rounds)))) + spread(rounds)
	if !c.Ratio || name == subject.Baseline || name == subject.None {
		return text
	}
	baseline := subject.Baseline
	if s, _ := subject.Named(name); s.Context {
		baseline = subject.ContextBaseline
	}
	if r := ratios(rounds, g.set.Rounds(g.key(c.Config, baseline), c.Unit)); len(r) > 0 && name != baseline {
		text += fmt.Sprintf(" (%s)", number(result.Median(r)))
	}
	return text
}

func outcome(m result.Miss) string {
	switch {
	case !m.Failed:
		return "-"
	case strings.HasPrefix(m.Reason, "it had not ended"):
		return "hung"
	}
	return "failed"
}

// ratios divides round by round.
func ratios(rounds, base map[int]float64) []float64 {
	var r []float64
	for round, v := range rounds {
		if b, ok := base[round]; ok && b != 0 {
			r = append(r, v/b)
		}
	}
	return r
}

// spread writes how far the farthest round is from the median, in the form of
// benchstat, whose own interval needs six rounds.
func spread(rounds map[int]float64) string {
	if len(rounds) < 2 {
		return ""
	}
	values := slices.Sorted(maps.Values(rounds))
	s := benchmath.Summary{Center: result.Median(values), Lo: values[0], Hi: values[len(values)-1]}
	if math.Abs(s.Center) < 0.01 {
		return ""
	}
	return " ±" + s.PctRangeString()
}

// number writes three significant digits, and integers as they are.
func number(v float64) string {
	switch a := math.Abs(v); {
	case v == math.Trunc(v) || a >= 1000:
		return grouped(v)
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a < 0.005:
		return strconv.FormatFloat(v, 'g', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// grouped writes an integer with a comma before each group of three digits.
func grouped(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if v < 0 {
		s = "-" + s
	}
	return s
}
