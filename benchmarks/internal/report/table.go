package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

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
// in it, or a reason for having none, and a column for each that somebody has a figure
// in; and nothing if there is no such row.
func (g grid) table(t workload.Table) string {
	t.Columns = slices.DeleteFunc(slices.Clone(t.Columns), func(c workload.Column) bool { return !g.some(c) })
	var rows strings.Builder
	for _, s := range subject.All() {
		if cells, some := g.row(t, s); some {
			fmt.Fprintf(&rows, "| %s | %s |\n", g.label(t, s.Name), strings.Join(cells, " | "))
		}
	}
	if rows.Len() == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n| |", t.Caption)
	for _, c := range t.Columns {
		fmt.Fprintf(&b, " %s |", c.Head)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(t.Columns)) + "\n")
	return b.String() + rows.String()
}

// some reports whether a subject has a figure in the column.
func (g grid) some(c workload.Column) bool {
	return slices.ContainsFunc(g.set.Lines, func(l result.Line) bool {
		_, ok := l.Get(c.Unit)
		return ok && l.Workload == g.workload && (l.Config == c.Config || c.Else != "" && l.Config == c.Else)
	})
}

func (g grid) row(t workload.Table, s subject.Subject) (cells []string, some bool) {
	for _, c := range t.Columns {
		cell := g.cell(c, s)
		cells = append(cells, cell)
		some = some || cell != ""
	}
	return cells, some
}

// label is the subject's name and, where it has been given fewer timers than
// others in this table, how many.
func (g grid) label(t workload.Table, subject string) string {
	for _, c := range slices.Backward(t.Columns) {
		if mine, reduced := g.reduced(c.Config, subject); reduced {
			return fmt.Sprintf("%s, of %s", subject, workload.Count(mine))
		}
	}
	return subject
}

// reduced reports whether a subject has been given fewer timers than others, and how
// many.
func (g grid) reduced(config, subject string) (mine int, reduced bool) {
	rounds := g.set.Rounds(g.key(config, subject), workload.TimersUnit)
	if len(rounds) == 0 {
		return 0, false
	}
	given := result.Median(slices.Collect(maps.Values(rounds)))
	return int(given), given < mostTimers(g.set, g.workload, config)
}

// mostTimers is the most that a subject has been given.
func mostTimers(set *result.Set, workloadName, config string) (most float64) {
	for _, l := range set.Lines {
		if l.Workload == workloadName && l.Config == config {
			n, _ := l.Get(workload.TimersUnit)
			most = max(most, n)
		}
	}
	return most
}

// cell is the median of the rounds, how far the farthest round is from it, and the
// ratio, unless the subject has been given fewer timers than its baseline; or what
// happened instead; or nothing.
func (g grid) cell(c workload.Column, s subject.Subject) string {
	config := c.Config
	rounds := g.rounds(c, config, s.Name)
	if len(rounds) == 0 && c.Else != "" {
		config = c.Else
		rounds = g.rounds(c, config, s.Name)
	}
	if len(rounds) == 0 {
		if m, ok := g.set.Miss(g.key(c.Config, s.Name)); ok {
			return outcome(m)
		}
		return ""
	}
	if c.Over != "" {
		return number(result.Median(ratios(rounds, g.rounds(c, c.Over, s.Name))))
	}
	text := number(result.Median(slices.Collect(maps.Values(rounds)))) + spread(rounds)
	if !c.Ratio || s.Name == s.Baseline() || s.Name == subject.None {
		return text
	}
	if _, less := g.reduced(config, s.Name); less {
		return text
	}
	if r := ratios(rounds, g.rounds(c, c.Config, s.Baseline())); len(r) > 0 {
		text += fmt.Sprintf(" (%s)", number(result.Median(r)))
	}
	return text
}

// rounds are the figures of a column by round: net of what the load generator took in
// that round, if the column is so. The generator has none then.
func (g grid) rounds(c workload.Column, config, name string) map[int]float64 {
	rounds := g.set.Rounds(g.key(config, name), c.Unit)
	if !c.Net {
		return rounds
	}
	own := g.set.Rounds(g.key(config, subject.None), c.Unit)
	net := map[int]float64{}
	for round, v := range rounds {
		if share, ok := own[round]; ok && name != subject.None {
			net[round] = v - share
		}
	}
	return net
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

// spread writes how far the farthest round is from the median: in per cent of it, or as
// a figure if the rounds lie on both sides of zero, where a share of the median says
// nothing. benchstat's own interval needs six rounds.
func spread(rounds map[int]float64) string {
	if len(rounds) < 2 {
		return ""
	}
	values := slices.Sorted(maps.Values(rounds))
	least, median, most := values[0], result.Median(values), values[len(values)-1]
	far := max(most-median, median-least)
	switch {
	case least <= 0 && most >= 0 && far == 0:
		return ""
	case least <= 0 && most >= 0:
		return " ±" + number(far)
	case math.Abs(median) < 0.01:
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", 100*far/math.Abs(median))
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
