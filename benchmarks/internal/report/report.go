// Package report turns results into a page of tables and into charts.
package report

import (
	"fmt"
	"strings"

	"github.com/tickwheel/tickwheel/benchmarks/internal/result"
	"github.com/tickwheel/tickwheel/benchmarks/internal/subject"
	"github.com/tickwheel/tickwheel/benchmarks/internal/workload"
)

// Page is RESULTS.md.
type Page struct {
	Set       *result.Set
	Workloads []workload.Workload
	Raw       string // where the raw results are
	ChartsDir string
	Charts    []Chart
}

const preamble = `# Results

Written by the benchmarks themselves; see [how to run them](README.md).

`

const howToRead = `
## How to read the tables

Each case ran in a process of its own for each subject and each round, the subjects
in turn within a round. A figure is the median of the rounds; after ± stands how far
the farthest round is from it, where there was more than one round. In parentheses is
the ratio to %s, or to what packages time and context have instead where no
function is run. It is the median of the ratios within each round, which is what to
trust, since what else the machine does moves the rounds rather than the subjects of one
round. The delays are the same for all subjects, from the same seeds. Garbage is
collected before each measurement. "of 10 k" after a name says that the subject was given
so many timers, fewer than the others, because it bears no more; its figures are of less
work, and without a ratio.

All subjects are called through one interface, which costs each of them some
nanoseconds; the row "%s" starts no timers, and is what the load generator costs. A
figure that is called net is without that row's, in the same round.

The load generator shares the processors with what it measures. While one goroutine
adds, a wheel's driver, a heap's worker, the goroutines that run tasks and the garbage
collector have what is left of the cores listed above: where all together need more
than that, the wall time of the tables of firing and lateness grows with the
generator's part of it, for all subjects. Processor time counts all of them too. So
the ratios understate differences, and the absolute figures hold for this machine only.

The raw results are in [%s](%s), in Go's benchmark format:

    go tool benchstat -col /subject %s

`

func (p Page) String() string {
	var b strings.Builder
	b.WriteString(preamble + p.summary() + p.machine())
	fmt.Fprintf(&b, howToRead, subject.Baseline, subject.None, p.Raw, p.Raw, p.Raw)
	b.WriteString("## Subjects\n\n")
	for _, s := range subject.All() {
		fmt.Fprintf(&b, "- **%s**: %s.\n", s.Name, s.Setup)
	}
	for _, w := range p.Workloads {
		b.WriteString(p.section(w))
	}
	b.WriteString(p.early() + p.failures())
	return b.String()
}

// machine says where and when the results are from. Workloads that were measured anew
// together have a row together.
func (p Page) machine() string {
	var b strings.Builder
	b.WriteString("## The machine\n\n| | |\n| --- | --- |\n")
	for i := 0; i < len(p.Set.About); {
		s := p.Set.About[i]
		keys := []string{s.Key}
		for i++; i < len(p.Set.About) && p.Set.About[i].Value == s.Value; i++ {
			keys = append(keys, p.Set.About[i].Key)
		}
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(keys, ", "), strings.ReplaceAll(s.Value, "|", `\|`))
	}
	return b.String()
}

// section is that of a workload, or nothing if there are no results for it: neither
// figures for its tables nor failures.
func (p Page) section(w workload.Workload) string {
	var tables strings.Builder
	for _, t := range w.Tables {
		if table := (grid{p.Set, w.Name}).table(t); table != "" {
			tables.WriteString("\n" + table)
		}
	}
	wrong := p.misses(w.Name, true)
	if tables.Len() == 0 && wrong == "" {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n%s\n%s", w.Title, w.Shows, tables.String())
	for _, c := range p.Charts {
		if c.Workload == w.Name {
			fmt.Fprintf(&b, "\n![%s](%s/%s)\n", c.Title, p.ChartsDir, c.File)
		}
	}
	if notes := p.misses(w.Name, false); notes != "" {
		b.WriteString("\nLeft out:\n\n" + notes)
	}
	if wrong != "" {
		b.WriteString("\nGone wrong:\n\n" + wrong)
	}
	return b.String()
}

// misses lists what is not in the tables of a workload, those with one reason
// together.
func (p Page) misses(workload string, failed bool) string {
	var order []string
	configs := map[string][]string{}
	for _, m := range p.Set.Misses {
		if m.Workload != workload || m.Failed != failed {
			continue
		}
		what := m.Subject + ": " + m.Reason
		if _, ok := configs[what]; !ok {
			order = append(order, what)
		}
		configs[what] = append(configs[what], "`"+m.Config+"`")
	}
	var b strings.Builder
	for _, what := range order {
		fmt.Fprintf(&b, "- %s (%s).\n", what, strings.Join(configs[what], ", "))
	}
	return b.String()
}

// early says who ran tasks before their deadlines.
func (p Page) early() string {
	type extent struct{ share, by float64 }
	worst := map[string]extent{}
	for _, l := range p.Set.Lines {
		share, ok := l.Get("early-%")
		if by, _ := l.Get("min-ms"); ok && share > 0 {
			w := worst[l.Subject]
			worst[l.Subject] = extent{max(w.share, share), min(w.by, by)}
		}
	}
	var b strings.Builder
	b.WriteString("\n## Early\n\nA timer that fires before its deadline breaks what its caller counts on. In any workload above:\n\n")
	for _, s := range subject.All() {
		if w, ok := worst[s.Name]; ok {
			fmt.Fprintf(&b, "- %s fired up to %s %% of its timers early, by up to %s ms.\n", s.Name, number(w.share), number(-w.by))
		}
	}
	if len(worst) == 0 {
		b.WriteString("- none.\n")
	}
	return b.String()
}

// failures counts what crashed, hung or lost timers, so that nobody has to look
// for it.
func (p Page) failures() string {
	n := 0
	for _, m := range p.Set.Misses {
		if m.Failed {
			n++
		}
	}
	if n == 0 {
		return "\n## Crashed or hung\n\nNothing did.\n"
	}
	return fmt.Sprintf("\n## Crashed or hung\n\n%d measurements are missing for it; each is listed with its workload, under \"Gone wrong\".\n", n)
}
