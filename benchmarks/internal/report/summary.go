package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

const summaryHead = `## Summary

The wheel beside package time or context: the medians of the rounds. The ratio is the
median of the ratios within each round, and the last column has the lowest and the highest
of these, where there was more than one round. A ratio with 1 between its lowest and its
highest says nothing. The workloads below have the other subjects.

| work | with | it takes | package time or context | ratio | lowest, highest |
| --- | --- | ---: | ---: | ---: | ---: |
`

// summary has a row for each headline that there are results for.
func (p Page) summary() string {
	var b strings.Builder
	for _, w := range p.Workloads {
		for _, h := range w.Headlines {
			b.WriteString(grid{p.Set, w.Name}.headline(h))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return summaryHead + b.String() + "\n"
}

// headline is a row of the summary, or nothing if the wheel or its baseline has no
// figure.
func (g grid) headline(h workload.Headline) string {
	s, ok := subject.Named(h.Subject)
	if !ok {
		return ""
	}
	c := workload.Column{Config: h.Config, Unit: h.Unit, Net: h.Net}
	wheel, baseline := g.rounds(c, h.Config, s.Name), g.baseline(h, c, s)
	r := slices.Sorted(slices.Values(ratios(wheel, baseline)))
	if len(r) == 0 {
		return ""
	}
	figure := func(rounds map[int]float64) string {
		return number(result.Median(slices.Collect(maps.Values(rounds)))) + " " + plain(h.Unit)
	}
	interval := ""
	if len(r) > 1 {
		interval = number(r[0]) + ", " + number(r[len(r)-1])
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n",
		h.Work, s.Name, figure(wheel), figure(baseline), number(result.Median(r)), interval)
}

// baseline are the rounds of the subject's baseline.
func (g grid) baseline(h workload.Headline, c workload.Column, s subject.Subject) map[int]float64 {
	if h.BaselineConfig != "" {
		return g.rounds(c, h.BaselineConfig, s.Baseline())
	}
	return g.rounds(c, h.Config, s.Baseline())
}

// plain is the unit for a reader: "ns" of "cpu-ns/task".
func plain(unit string) string {
	name, _, _ := strings.Cut(unit, "/")
	return name[strings.LastIndexByte(name, '-')+1:]
}
