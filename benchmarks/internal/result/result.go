// Package result holds measurements, writes them in Go's benchmark format, which
// benchstat reads, and reads them back.
//
// Lines that benchstat skips say what a benchmark line cannot:
// "# round 2" before the lines of a round, "--- SKIP: name: reason" for what a
// subject cannot do, and "--- FAIL: name: reason" for what has gone wrong.
package result

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Value is a figure and its unit, such as 93.1 and "ns/op".
type Value struct {
	Value float64
	Unit  string
}

// Key says what was measured: a workload, one configuration of it, and on whom.
type Key struct {
	Workload string // "AddCancel"
	Config   string // "pending=1000000"; several are joined by slashes
	Subject  string // "go-zero"
}

func (k Key) String() string {
	parts := []string{k.Workload}
	if k.Config != "" {
		parts = append(parts, k.Config)
	}
	return strings.Join(append(parts, "subject="+k.Subject), "/")
}

func parseKey(name string) (Key, error) {
	rest, subject, ok := strings.Cut(name, "/subject=")
	if !ok {
		return Key{}, fmt.Errorf("no subject in %q", name)
	}
	workload, config, _ := strings.Cut(rest, "/")
	return Key{Workload: workload, Config: config, Subject: subject}, nil
}

// Line is one measurement.
type Line struct {
	Key
	Procs  int // GOMAXPROCS
	N      int // operations, over which the values are averaged
	Round  int // from 1
	Values []Value
}

func (l Line) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%v-%d\t%d", l.Key, l.Procs, l.N)
	for _, v := range l.Values {
		fmt.Fprintf(&b, "\t%s %s", strconv.FormatFloat(v.Value, 'f', decimals(v.Value), 64), v.Unit)
	}
	return b.String()
}

// decimals keeps four significant digits.
func decimals(v float64) int {
	n := 4
	for v = max(v, -v); v >= 10 && n > 0; v /= 10 {
		n--
	}
	return n
}

// Get returns the value of that unit.
func (l Line) Get(unit string) (float64, bool) {
	i := slices.IndexFunc(l.Values, func(v Value) bool { return v.Unit == unit })
	if i < 0 {
		return 0, false
	}
	return l.Values[i].Value, true
}

// Miss is a measurement that does not exist, and why.
type Miss struct {
	Key
	Failed bool // it crashed, hung or lost timers; otherwise it was not tried
	Reason string
}

func (m Miss) String() string {
	kind := "SKIP"
	if m.Failed {
		kind = "FAIL"
	}
	return fmt.Sprintf("--- %s: %v: %s", kind, m.Key, m.Reason)
}

// Set is all that one run has brought.
type Set struct {
	About  []Setting // the machine, the date, the command
	Lines  []Line
	Misses []Miss
}

// Setting is a line "key: value".
type Setting struct{ Key, Value string }

// Setting returns the value of a key, or "".
func (s *Set) Setting(key string) string {
	for _, a := range s.About {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

// Read reads what String methods of Lines, Misses and rounds have written.
func Read(r io.Reader) (*Set, error) {
	set, round := &Set{}, 1
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		switch {
		case strings.HasPrefix(line, "Benchmark"):
			l, err := parseLine(line)
			if err != nil {
				return nil, err
			}
			l.Round = round
			set.Lines = append(set.Lines, l)
		case strings.HasPrefix(line, "--- "):
			m, err := parseMiss(line)
			if err != nil {
				return nil, err
			}
			set.Misses = append(set.Misses, m)
		case strings.HasPrefix(line, "# round "):
			if _, err := fmt.Sscanf(line, "# round %d", &round); err != nil {
				return nil, fmt.Errorf("%q: %w", line, err)
			}
		default:
			if key, value, ok := strings.Cut(line, ": "); ok {
				set.About = append(set.About, Setting{key, value})
			}
		}
	}
	return set, scanner.Err()
}

// parseLine leaves the format to benchstat's own reader, so that what is read here
// is what benchstat reads.
func parseLine(line string) (Line, error) {
	reader := benchfmt.NewReader(strings.NewReader(line+"\n"), "")
	if !reader.Scan() {
		return Line{}, fmt.Errorf("no result in %q", line)
	}
	r, ok := reader.Result().(*benchfmt.Result)
	if !ok {
		return Line{}, fmt.Errorf("%q: %v", line, reader.Result())
	}
	name, procs := r.Name.String(), 1
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if n, err := strconv.Atoi(name[i+1:]); err == nil {
			name, procs = name[:i], n
		}
	}
	key, err := parseKey(name)
	if err != nil {
		return Line{}, err
	}
	l := Line{Key: key, Procs: procs, N: r.Iters}
	for _, v := range r.Values {
		if v.OrigUnit != "" { // benchfmt has turned ns into sec
			v.Value, v.Unit = v.OrigValue, v.OrigUnit
		}
		l.Values = append(l.Values, Value{v.Value, v.Unit})
	}
	return l, nil
}

func parseMiss(line string) (Miss, error) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(line, "--- "), ": ")
	name, reason, ok := strings.Cut(rest, ": ")
	if !ok || (kind != "SKIP" && kind != "FAIL") {
		return Miss{}, fmt.Errorf("not a skip or failure: %q", line)
	}
	key, err := parseKey(name)
	return Miss{Key: key, Failed: kind == "FAIL", Reason: reason}, err
}

// Merge takes over what newer has, in place of all that s has of the same workloads, and
// notes of each of them when and how it was measured. The machine and Go must be the
// same.
func (s *Set) Merge(newer *Set) error {
	for _, key := range []string{"goos", "goarch", "cpu", "cores", "go"} {
		if old, now := s.Setting(key), newer.Setting(key); old != now {
			return fmt.Errorf("the recorded results are not of this machine: %s was %q and is %q", key, old, now)
		}
	}
	for _, name := range newer.Workloads() {
		s.Lines = append(slices.DeleteFunc(s.Lines, func(l Line) bool { return l.Workload == name }),
			slices.DeleteFunc(slices.Clone(newer.Lines), func(l Line) bool { return l.Workload != name })...)
		s.Misses = append(slices.DeleteFunc(s.Misses, func(m Miss) bool { return m.Workload == name }),
			slices.DeleteFunc(slices.Clone(newer.Misses), func(m Miss) bool { return m.Workload != name })...)
		s.About = append(slices.DeleteFunc(s.About, func(a Setting) bool { return a.Key == name }),
			Setting{name, newer.Setting("date") + ", " + newer.Setting("command")})
	}
	return nil
}

// Workloads returns the names of those that it has something of, in order of their
// appearance.
func (s *Set) Workloads() (names []string) {
	note := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, l := range s.Lines {
		note(l.Workload)
	}
	for _, m := range s.Misses {
		note(m.Workload)
	}
	return names
}

// Write writes what Read reads: workload by workload, and round by round.
func (s *Set) Write(w io.Writer) error {
	b := bufio.NewWriter(w) // keeps the first error until Flush
	for _, a := range s.About {
		fmt.Fprintf(b, "%s: %s\n", a.Key, a.Value)
	}
	for _, name := range s.Workloads() {
		round := 0
		for _, l := range s.Lines {
			if l.Workload != name {
				continue
			}
			if l.Round != round {
				round = l.Round
				fmt.Fprintf(b, "# round %d\n", round)
			}
			fmt.Fprintln(b, l)
		}
		for _, m := range s.Misses {
			if m.Workload == name {
				fmt.Fprintln(b, m)
			}
		}
	}
	return b.Flush()
}

// Rounds returns the values of a unit by round, for those rounds that have one.
func (s *Set) Rounds(k Key, unit string) map[int]float64 {
	rounds := map[int]float64{}
	for _, l := range s.Lines {
		if v, ok := l.Get(unit); ok && l.Key == k {
			rounds[l.Round] = v
		}
	}
	return rounds
}

// Miss returns why there is no such measurement.
func (s *Set) Miss(k Key) (Miss, bool) {
	for _, m := range s.Misses {
		if m.Key == k {
			return m, true
		}
	}
	return Miss{}, false
}

// Median returns the median, and zero of nothing.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
