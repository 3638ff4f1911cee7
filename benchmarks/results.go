package main

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// results is what one benchmark has printed. The lists are in the order of appearance.
type results struct {
	about    map[string]string // the machine, the date
	configs  []string          // "pending=1M", or "" where there is only one
	subjects []string
	units    []string
	values   map[figure]map[int]float64 // by round
	missing  []string                   // "wheel.Schedule (pending=1M): reason"
}

// figure is what was measured, in one or more rounds.
type figure struct{ config, subject, unit string }

// read returns nil if there is no such file: the benchmark was not run.
func read(file string) (*results, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	r := &results{about: map[string]string{}, values: map[figure]map[int]float64{}}
	for name := range strings.FieldsSeq(string(content)) { // of those without a figure, too
		if at := r.place(name); at.subject != "" && strings.HasPrefix(name, "Benchmark") {
			addTo(&r.subjects, at.subject)
		}
	}
	reader := benchfmt.NewReader(strings.NewReader(string(content)), file)
	for reader.Scan() {
		line, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue // a line that is not whole, such as the last before a crash
		}
		for _, c := range line.Config {
			r.about[c.Key] = string(c.Value)
		}
		r.note(line)
	}
	r.readMissing(string(content))
	return r, reader.Err()
}

func (r *results) note(line *benchfmt.Result) {
	at := r.place(line.Name.String())
	at.config = addTo(&r.configs, at.config)
	for _, v := range line.Values {
		if v.OrigUnit != "" { // the package has turned ns into sec
			v.Value, v.Unit = v.OrigValue, v.OrigUnit
		}
		f := figure{at.config, at.subject, addTo(&r.units, v.Unit)}
		if r.values[f] == nil {
			r.values[f] = map[int]float64{}
		}
		r.values[f][at.round] = v.Value
	}
}

func addTo(list *[]string, s string) string {
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
	return s
}

type place struct {
	config, subject string
	round           int
}

// place reads a name like AddCancel/pending=1M/subject=heap/round=2-8. GOMAXPROCS, which is
// the end of it, is a part of the configuration where it is not the number of processors.
func (r *results) place(name string) place {
	procs := "1"
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if _, err := strconv.Atoi(name[i+1:]); err == nil {
			name, procs = name[:i], name[i+1:]
		}
	}
	p := place{round: 1}
	var config []string
	for i, part := range strings.Split(name, "/") {
		key, value, _ := strings.Cut(part, "=")
		switch {
		case i == 0:
		case key == "subject":
			p.subject = value
		case key == "round":
			p.round, _ = strconv.Atoi(value)
		default:
			config = append(config, part)
		}
	}
	if cores := r.about["cores"]; cores != "" && procs != cores {
		config = append(config, "GOMAXPROCS="+procs)
	}
	p.config = strings.Join(config, "/")
	return p
}

// readMissing reads lines like
//
//	--- SKIP: BenchmarkFire/within=1s/subject=gost
//	    file_test.go:7: the reason
func (r *results) readMissing(content string) {
	for _, part := range strings.Split(content, "\n--- ")[1:] {
		title, rest, _ := strings.Cut(part, "\n")
		reason, _, _ := strings.Cut(rest, "\n")
		reason, ok := strings.CutPrefix(reason, "    ")
		kind, name, _ := strings.Cut(title, ": ")
		if !ok || kind == "BENCH" {
			continue
		}
		if _, after, ok := strings.Cut(reason, "_test.go:"); ok {
			_, reason, _ = strings.Cut(after, ": ")
		}
		at := r.place(name + "-" + r.about["cores"]) // the name has no GOMAXPROCS here
		addTo(&r.missing, strings.TrimPrefix(strings.TrimSpace(at.subject+" "+at.config)+": "+reason, ": "))
	}
}

// medianOf returns the median of the rounds, and how far from it the farthest is.
func (r *results) medianOf(f figure) (m, far float64, ok bool) {
	values := sorted(r.values[f])
	if len(values) == 0 {
		return 0, 0, false
	}
	m = median(values)
	return m, max(values[len(values)-1]-m, m-values[0]), true
}

// ratios returns the ratios of a figure to the same of another subject, each within a round.
// Where the load generator's own processor time is known, the ratios are without it.
func (r *results) ratios(f figure, base string) (ratios []float64) {
	theirs := r.values[figure{f.config, base, f.unit}]
	own := r.values[figure{f.config, "none", f.unit}]
	for round, v := range r.values[f] {
		b, ok := theirs[round]
		if strings.HasPrefix(f.unit, "cpu-") {
			v, b = v-own[round], b-own[round]
		}
		if ok && b > 0 {
			ratios = append(ratios, v/b)
		}
	}
	slices.Sort(ratios)
	return ratios
}

// base is the subject to which ratios are taken.
func (r *results) base() string {
	return r.subjects[min(len(r.subjects)-1, slices.Index(r.subjects, "none")+1)]
}

func sorted(rounds map[int]float64) (values []float64) {
	for _, v := range rounds {
		values = append(values, v)
	}
	slices.Sort(values)
	return values
}

// median is that of sorted values.
func median(v []float64) float64 { return (v[(len(v)-1)/2] + v[len(v)/2]) / 2 }
